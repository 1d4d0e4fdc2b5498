"""A device that fails, or loses its server, under callbacks: each is told once, nobody hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import torch
from callbacks import CALLBACK, callback, cuda, launch

told: dict[int, list[int]] = {1: [], 2: []}
both = threading.Event()


def note(stream: int, status: int, data: int) -> None:
    told[data].append(status)
    if all(told.values()):
        both.set()


def servers() -> list[int]:
    """Return the servers of this job, the children of our parent (the agent)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and (entry / "comm").read_text() == "pyft-server\n":
                found.append(int(entry.name))
    return found


x = torch.zeros(10, device="cuda")
index = torch.tensor([100], device="cuda")
stream = torch.cuda.Stream()
torch.cuda.synchronize()
never: list[int] = []
if sys.argv[1] == "assert":
    with torch.cuda.stream(stream):
        x[index]
    launch(stream, lambda data: never.append(1))
    callback(stream, note, 1)
    callback(stream, note, 2)
else:
    pids = servers()
    assert len(pids) == 1, pids
    os.kill(pids[0], signal.SIGSTOP)
    callback(stream, note, 1)
    callback(stream, note, 2)
    os.kill(pids[0], signal.SIGKILL)
done = both.wait(60)
print(done, [len(status) for status in told.values()], never)
if sys.argv[1] == "assert":
    print(told[1], told[2], cuda.cudaStreamAddCallback(None, CALLBACK(note), None, 0))
sys.stdout.flush()
os._exit(0)  # PyTorch's own clean-up aborts on a GPU that has failed
