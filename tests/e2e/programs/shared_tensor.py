"""A process trains with a tensor of another one (CUDA IPC), and writes into it at the end.

python shared_tensor.py FILE    # it stops after some steps until FILE is there
"""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

STEPS, STOP_AT, PATIENCE_S = 6, 3, 90.0


def work(inbox: mp.Queue, outbox: mp.Queue, file: str) -> None:
    """Train on what the other process has, and tell it when done."""
    shared = inbox.get()
    weight = torch.zeros(64, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.05, momentum=0.9)
    for step in range(STEPS):
        if step == STOP_AT:
            print("ready", flush=True)
            deadline = time.monotonic() + PATIENCE_S
            while not Path(file).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        optimizer.zero_grad()
        loss = (shared[:64] * 0.5 - weight).square().sum()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss={loss.item().hex()}", flush=True)
    shared[100] = 7
    torch.cuda.synchronize()
    outbox.put("done")
    assert inbox.get() == "bye"
    del shared


def main() -> None:
    """Share a tensor; print what is in it when the other process is done."""
    mp.set_start_method("spawn")
    inbox, outbox = mp.Queue(), mp.Queue()
    shared = torch.arange(1000.0, device="cuda")
    process = mp.Process(target=work, args=(inbox, outbox, sys.argv[1]), daemon=True)
    process.start()
    inbox.put(shared)
    while True:
        try:
            assert outbox.get(timeout=0.2) == "done"
            break
        except queue.Empty:
            if not process.is_alive():
                sys.exit("the other process has ended")
    print("sha256=", shared[98:102].tolist(), flush=True)
    inbox.put("bye")
    process.join(60)
    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
