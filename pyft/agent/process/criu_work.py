"""What CRIU is at work on: the supervisor and CRIU's process write it, the launcher's lease reads it.

A stop signal for CRIU's processes, or for those that it dumps or restores, makes CRIU fail. These do
nothing of their own meanwhile, and stand still when CRIU has ended.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection
from dataclasses import dataclass

_PID, _ROOT, _RESTORES = range(3)


@dataclass(frozen=True)
class Work:
    """CRIU's process, and the first one of the tree that it dumps, or restores."""

    pid: int
    root: int
    restores: bool


class CriuWork:
    """One page, which is shared with all processes that are forked after it was made."""

    def __init__(self) -> None:
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")

    def begins(self, work: Work) -> None:
        """Note it: CRIU's own process does so before it becomes CRIU, which has no children yet."""
        self._page[_PID] = 0
        self._page[_ROOT], self._page[_RESTORES] = work.root, work.restores
        self._page[_PID] = work.pid

    def ended(self, pid: int) -> None:
        """Forget a process that is about to lose its number."""
        if self._page[_PID] == pid:
            self._page[_PID] = 0

    def among(self, living: Collection[int]) -> Work | None:
        """Return what it is at work on, None if it is not among the processes that live."""
        pid = self._page[_PID]
        if not pid or pid not in living:
            return None
        return Work(pid, self._page[_ROOT], bool(self._page[_RESTORES]))
