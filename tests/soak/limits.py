"""Limits near the edge: descriptors and addresses by prlimit, memory by a group of the kernel."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from job import having

DESCRIPTORS, ADDRESSES, MEMORY = "descriptors", "addresses", "memory"
GROUPS = Path("/sys/fs/cgroup/memory")  # version 1
NAME = "pyft-soak"
LOOK_S = 0.05
_ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


class Group:
    """A group of processes that share a limit of memory; not there where the kernel gives none."""

    def __init__(self) -> None:
        self.folder = GROUPS / f"{NAME}-{os.getpid()}"
        try:
            self.folder.mkdir()
            self.there = True
        except OSError:
            self.there = False

    def wrapper(self, most: int) -> tuple[str, ...]:
        """Return a command that starts another one in it; `most` bytes, -1 without a limit."""
        (self.folder / "memory.limit_in_bytes").write_text(str(most))
        (self.folder / "memory.max_usage_in_bytes").write_text("0")
        return ("sh", "-c", _ENTER, str(self.folder))

    def peak(self) -> int:
        """Return how many bytes were in use at once."""
        return int((self.folder / "memory.max_usage_in_bytes").read_text())


def descriptors(most: int) -> tuple[str, ...]:
    """Return a command that starts another one with so few."""
    return ("prlimit", f"--nofile={most}:{most}")


def addresses(most: int) -> tuple[str, ...]:
    """Return a command that starts another one whose processes have so few bytes of addresses each."""
    return ("prlimit", f"--as={most}:{most}")


@contextlib.contextmanager
def widest(mark: str) -> Iterator[list[int]]:
    """Look for the most addresses that a process with this mark in its environment has."""
    found, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            for pid in having(mark):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    if peak := re.search(r"VmPeak:\s+(\d+) kB", status):
                        found[0] = max(found[0], int(peak[1]) << 10)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
