"""`pyft trace --follow`: prints what is added to the rings of a job, until it ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TypedDict

from pyft.agent.job import job_folder
from pyft.errors import TraceError
from pyft.trace import targets
from pyft.trace.reader import TraceReader, format_entry

FOLLOW_S = 0.2  # between two looks at the rings
RINGS_S = 1.0  # between two looks for more of them


class Chosen(TypedDict):
    """Which entries are printed or counted."""

    call: str | None
    thread: int | None
    handle: str | None


class Followed:
    """One ring. Its reader stays where it was; the memory is the same whichever agent holds it."""

    def __init__(self, ring: targets.Ring, deterministic: bool) -> None:
        self.title, self.inode = ring.title, os.stat(ring.path).st_ino
        self.reader = TraceReader(ring.path, deterministic=deterministic)
        self._begun, self._start_ns = False, 0
        self.last = 0  # number of the last entry that was seen

    def lines(self, chosen: Chosen, tail: int | None) -> Iterator[str]:
        """Yield what is there, or the last of it; from the second time on what was added."""
        if not self._start_ns:
            self._start_ns, self._begun = start_ns(self.reader), False
        again = self._begun
        found = self.reader.added(**chosen) if again else self.reader.entries(**chosen, tail=tail)
        self._begun = bool(self._start_ns)
        for entry in found:
            if entry.seq > self.last:
                self.last = entry.seq
                deterministic = self.reader.deterministic
                yield format_entry(entry, deterministic=deterministic, start_ns=self._start_ns)


def start_ns(reader: TraceReader) -> int:
    """Return from when times count, whatever is printed: when the first entry was written."""
    first = next(reader.entries(), None)
    return first.time_ns if first else 0


def follow(target: str | None, chosen: Chosen, tail: int | None, deterministic: bool) -> None:
    """Print the rings that there are, then what is added, and rings of those that attach later."""
    folder = targets.folder_of(target)
    named = str(folder) if target is None and folder else target  # later another one is the latest
    rings = targets.find(named)
    known: dict[str, Followed] = {}
    looked = time.monotonic()
    first = True
    with contextlib.ExitStack() as stack:
        while True:
            alive = folder is not None and job_folder.is_live(job_folder.read_meta(folder))
            if not first and (not alive or time.monotonic() - looked >= RINGS_S):
                with contextlib.suppress(TraceError):  # another agent takes over just now
                    rings = targets.find(named)
                looked = time.monotonic()
            _open(rings, known, deterministic, stack)
            for one in known.values():
                label = f"{one.title} " if len(known) > 1 else ""
                for line in one.lines(chosen, tail if first else None):
                    print(f"{label}{line}", flush=True)
            if not alive:
                return
            first = False
            time.sleep(FOLLOW_S)


def _open(
    rings: list[targets.Ring],
    known: dict[str, Followed],
    deterministic: bool,
    stack: contextlib.ExitStack,
) -> None:
    """Open the rings that are new: a rank's number may change, and its saved file is no new one."""
    for ring in rings:
        key = ring.title.partition("-")[2] or ring.title
        before = known.get(key)
        with contextlib.suppress(TraceError, OSError):  # it has just ended, and will be saved
            if before and (not ring.live or os.stat(ring.path).st_ino == before.inode):
                continue
            known[key] = Followed(ring, deterministic)
            stack.enter_context(known[key].reader)
            if before:  # the job went back to an image
                known[key].last = before.last
