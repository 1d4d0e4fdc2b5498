"""Files that a program opens anew for each line: as they were when an image was made.

The library `shim/appended.cc` notes each file that a process opens to append to, with how long it was:
in one file of the job, the *notes*. An image has how long that was, and what each file of it was then.
Going back takes away what was appended since. Unlike files that an image has open, these are not needed
to go on: one that is not there any more, or is another one, is left as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft.images import appended
from pyft.images.appended import MOST_LOGS, Log, open_at_once

MOST_BYTES = 16 << 20  # of the notes; more is not read
_MOST = 1 << 63
NAME = "appended"  # of the notes, in the job's folder


@dataclass(frozen=True)
class Opened:
    """A file that was opened to be appended to, and how long it was then."""

    device: int
    inode: int
    size: int
    path: str

    @property
    def identity(self) -> tuple[int, int]:
        """Return what two notes of one file have in common."""
        return self.device, self.inode

    def cut_back(self) -> str:
        """Take away what was appended since; return the path if that was something."""
        try:
            with open(self.path, "r+b", buffering=0, opener=open_at_once) as file:
                about = os.fstat(file.fileno())
                same = (about.st_dev, about.st_ino) == self.identity
                if not same or not stat.S_ISREG(about.st_mode) or about.st_size <= self.size:
                    return ""
                os.ftruncate(file.fileno(), self.size)
        except OSError:
            return ""
        return self.path


def of_image(notes: Path, besides: Sequence[Log]) -> dict[str, Any]:
    """Return what an image has to know. `besides`: files that it has open anyway."""
    known = {(log.device, log.inode) for log in besides}
    logs: dict[tuple[int, int], Log] = {}
    size = _size_of(notes)
    for one in _first_of_each(read(notes, 0, size)):
        if one.identity in known or len(logs) == MOST_LOGS:
            continue
        try:
            log = Log.of(one.path, durable=False)
        except OSError:  # it is gone
            continue
        if (log.device, log.inode) == one.identity:
            logs[one.identity] = log
    own = {"path": str(notes), "size": size}
    return own | {"logs": [log.note() for log in logs.values()]}


def from_note(note: Any) -> dict[str, Any]:
    """Return what another process has noted of an image; raise ValueError or TypeError if it is none."""
    path, size = note["path"], note["size"]
    if not isinstance(path, str) or path[:1] != "/" or "\0" in path:
        raise ValueError("a path is none")
    if type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise ValueError("a number is none")
    logs = appended.from_notes(note["logs"])
    return {"path": path, "size": size, "logs": [log.note() for log in logs]}


def cut_back(
    image: dict[str, Any], besides: Sequence[Log], *, may_have_booted: bool = False
) -> list[str]:
    """Take away what was appended since an image; return the paths from which something was taken.

    What was first opened after the image is cut back to what it had been then. Nothing of the job runs.
    `besides`: files that the image has open. `may_have_booted`: this host since.
    """
    notes, size = Path(image["path"]), image["size"]
    logs = [Log(**note) for note in image["logs"]]
    known = {(log.device, log.inode) for log in [*logs, *besides]}
    later = [one for one in _first_of_each(read(notes, size)) if one.identity not in known]
    there = [log for log in logs if not log.lacks(may_have_booted=may_have_booted)]
    cut = [log.path for log in there if _shortened(log)]
    cut += [path for one in later if (path := one.cut_back())]
    if _size_of(notes) > size:
        os.truncate(notes, size)
    return cut


def read(notes: Path, start: int = 0, end: int = MOST_BYTES) -> Iterator[Opened]:
    """Yield what was noted between two places. What is no note is left out: programs write them."""
    try:
        with open(notes, "rb", buffering=0, opener=open_at_once) as file:
            file.seek(start)
            data = file.read(max(0, min(end, MOST_BYTES) - start))
    except OSError:
        return
    for line in data.split(b"\0")[:-1]:
        words = line.split(b" ", 3)
        if len(words) == 4 and all(word.isdigit() for word in words[:3]) and words[3][:1] == b"/":
            numbers = (
                [int(word) for word in words[:3]] if max(map(len, words[:3])) < 20 else [_MOST]
            )
            if max(numbers) < _MOST:
                yield Opened(*numbers, os.fsdecode(words[3]))


def _first_of_each(found: Iterator[Opened]) -> list[Opened]:
    """Return the first note of each file: several processes may have opened it."""
    first: dict[tuple[int, int], Opened] = {}
    for one in found:
        first.setdefault(one.identity, one)
    return list(first.values())


def _shortened(log: Log) -> bool:
    """Cut a file back; say whether something was taken away."""
    longer = os.stat(log.path).st_size > log.size
    return not log.cut_back() and longer


def _size_of(notes: Path) -> int:
    try:
        return min(os.stat(notes).st_size, MOST_BYTES)
    except OSError:
        return 0
