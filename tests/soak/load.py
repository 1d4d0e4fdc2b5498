"""Load from outside, for as long as a run takes: `load.py processor|memory|disk FOLDER`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

MEGABYTE = 1 << 20
TOUCHED_MB, WRITTEN_MB = 256, 16
SPINNING = 2  # processes


def spin(_: Path) -> None:
    """Use a processor."""
    while True:
        sum(range(10_000))


def touch(_: Path) -> None:
    """Ask for memory, write it, give it back."""
    while True:
        bytearray(TOUCHED_MB * MEGABYTE)


def write(folder: Path) -> None:
    """Write a file to the disk, again and again."""
    data = os.urandom(MEGABYTE)
    path = folder / f"load-{os.getpid()}"
    while True:
        with path.open("wb") as file:
            for _ in range(WRITTEN_MB):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())


KINDS: dict[str, tuple[int, Callable[[Path], None]]] = {
    "processor": (SPINNING, spin),
    "memory": (1, touch),
    "disk": (1, write),
}


@contextlib.contextmanager
def loaded(kind: str, folder: Path) -> Iterator[None]:
    """Put a load on the machine; nothing for an empty kind."""
    count = KINDS[kind][0] if kind else 0
    line = [sys.executable, __file__, kind, str(folder)]
    processes = [subprocess.Popen(line) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for path in folder.glob("load-*"):
            path.unlink()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    KINDS[sys.argv[1]][1](Path(sys.argv[2]))
