"""Places of a step at which faults happen, each once in the life of a cell."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyft_lab.api import ASKED, BALLAST, OF_JOBS, READY, RESCALE, STORAGE

CONTROL = "control"  # what the soft GPUs are told (SOFTGPU_CONTROL); in the cell's folder
WORDS = {"gpu-lost": "lost", "sticky": "error,code=700", "ecc": "ecc",
         "bitflip": "flip,result=changed,bit=6"}  # fmt: skip
BEGIN_S = 30.0  # for a fault of storage to begin
HEARD_S = 0.02  # the soft GPU looks at the file at once; the next launch should be its first


def tear_newest(folder: Path) -> None:
    """Cut the newest file of checkpoints in half, as a disk does that has said it was written."""
    names = (*folder.glob("*.pt"), *folder.glob("*/*.distcp"))
    whole = sorted(names, key=lambda path: path.stat().st_mtime_ns)
    if whole:
        os.truncate(whole[-1], whole[-1].stat().st_size // 2)


def fill(folder: Path) -> None:
    """Take all room of the disk that a folder is on; it is a small one of its own."""
    file = os.open(folder / BALLAST, os.O_CREAT | os.O_WRONLY)
    for size in (1 << 20, 4096, 1):
        try:
            while True:
                os.write(file, bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    os.close(file)


def clear_memory(folder: Path, rank: int) -> None:
    """Empty what the launcher keeps for a rank, as the loss of a host would."""
    for place in json.loads((folder / "memory.json").read_text())[rank]:
        os.truncate(place, 0)


def begin_storage_fault(folder: Path, kind: str, number: int) -> None:
    """Let a fault of storage begin; it goes on while the script does."""
    asked = folder / f"io-{number}{ASKED}"
    if kind == "disk-full":
        fill(folder / "checkpoints")
        asked.write_text(kind)
        return
    part = asked.with_suffix(".part")  # the launcher never sees half of a request
    part.write_text(kind)
    part.rename(asked)
    last = time.monotonic() + BEGIN_S
    while not asked.with_suffix(READY).exists():
        if time.monotonic() > last:
            raise TimeoutError(f"fault [{kind}] did not begin")
        time.sleep(HEARD_S)


def happen(folder: Path, kind: str, rank: int, number: int) -> None:
    """Let a fault happen, here and now: the device has done all that came before."""
    if kind == RESCALE:
        sys.exit(RESCALE)
    if kind in STORAGE:
        begin_storage_fault(folder, kind, number)
        return
    if kind in OF_JOBS:
        (folder / f"job-{number}{ASKED}").touch()
        time.sleep(BEGIN_S)
        raise TimeoutError("the job was not killed")
    if kind == "torn":
        tear_newest(folder / "checkpoints")
    if kind == "memory-lost":
        clear_memory(folder, rank)
    if kind in ("rank-kill", "torn", "memory-lost"):
        os.kill(os.getpid(), signal.SIGKILL)
    with (folder / CONTROL).open("a") as control:
        control.write(f"{WORDS[kind]},device={rank}\n")
    time.sleep(HEARD_S)


def fault_points(
    folder: Path, cell: dict[str, Any], rank: int, synchronize: Callable[[], None]
) -> Callable[[int, str], None]:
    """Return what a rank calls at each moment of its steps."""

    def point(step: int, moment: str) -> None:
        for number, fault in enumerate(cell["faults"]):
            if (fault["step"], fault["rank"], fault["moment"]) == (step, rank, moment):
                synchronize()
                try:
                    mark = os.open(folder / f"fired-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                except FileExistsError:
                    continue
                os.write(mark, json.dumps({"t": time.time()}).encode())
                os.close(mark)
                happen(folder, fault["kind"], rank, number)

    return point
