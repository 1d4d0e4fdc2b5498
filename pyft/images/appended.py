"""Files that are only appended to, such as a program's logs: as they were when an image was made."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pyft.images.disks import disk_of

MOST_LOGS = 512  # of one place
_TAIL_BYTES = 64 << 10
_MOST = 1 << 62
_MOST_ID = (1 << 32) - 2  # the next one is none
_MOST_MODE = 0o7777
_MOST_PATH = 4095


@dataclass(frozen=True)
class Log:
    """A file that is only appended to, as it was at the dump."""

    path: str
    disk: str  # of this host alone; empty if other hosts may see the same file
    device: int
    inode: int
    size: int
    tail: str  # digest of its last bytes
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, path: str, *, durable: bool = True) -> Log:
        """Look at a file now. `durable`: write it through; a host may lose its power, another go on."""
        with open(path, "rb", buffering=0, opener=open_at_once) as file:
            if durable:
                os.fsync(file.fileno())
            about = os.fstat(file.fileno())
            tail = _tail_of(file, about.st_size)
        where = (path, disk_of(path, about.st_dev), about.st_dev, about.st_ino)
        mode = stat.S_IMODE(about.st_mode)
        return cls(*where, about.st_size, tail, mode, about.st_uid, about.st_gid)

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> Log:
        """Return what another host has looked at; raise ValueError or TypeError if it is none."""
        log = cls(**note)
        if not all(isinstance(one, str) for one in (log.path, log.disk, log.tail)):
            raise ValueError("a path is none")
        if "\0" in log.path or log.path != os.path.normpath(log.path) or log.path[:1] != "/":
            raise ValueError("a path is none")
        if log.path[:2] == "//" or len(os.fsencode(log.path)) > _MOST_PATH:
            raise ValueError("a path is none")
        numbers = {"device": _MOST, "inode": (1 << 64) - 1, "size": _MOST}
        numbers |= {"mode": _MOST_MODE, "uid": _MOST_ID, "gid": _MOST_ID}
        for name, most in numbers.items():
            if type(value := getattr(log, name)) is not int or not 0 <= value <= most:
                raise ValueError("a number is none")
        return log

    @property
    def name(self) -> str:
        """Return what two hosts call a file that both of them see.

        A disk is seen by one host only; the device of a network's file system differs by host.
        """
        return f"{self.inode}:{self.disk}:{self.path}"

    def note(self) -> dict[str, object]:
        """Return all of it, in plain values."""
        return asdict(self)

    def cut_back(self) -> str:
        """Take away what was appended since; return why that cannot be done."""
        try:
            with open(self.path, "r+b", buffering=0, opener=open_at_once) as file:
                if self._is_other(file):
                    return f"[{self.path}] is not the file any more that it was"
                os.ftruncate(file.fileno(), self.size)
        except OSError as error:
            return f"[{self.path}] cannot be cut back: {error.strerror}"
        return ""

    def lacks(self, *, may_have_booted: bool = False) -> str:
        """Return why it cannot be cut back on this host, which may not be the one that has looked.

        `may_have_booted`: that host since, so that it calls its disks otherwise.
        """
        try:
            with open(self.path, "rb", buffering=0, opener=open_at_once) as file:
                elsewhere = not may_have_booted and self._is_on_another_disk(file)
                if not elsewhere and not self._is_other(file):
                    return ""
            why = "it is another file"
        except OSError as error:
            why = error.strerror
        return f"[{self.path}] is appended to, and this host has it not: {why}"

    def is_copied(self, path: Path) -> bool:
        """Say whether a file has what this one had at the dump, and nothing else."""
        with path.open("rb", buffering=0) as file:
            right = os.fstat(file.fileno()).st_size == self.size
            return right and _tail_of(file, self.size) == self.tail

    def _is_other(self, file: FileIO) -> bool:
        """Say whether this is not the file, or what was in it is not there any more.

        Its inode is the same on all hosts that see it, its device is not.
        """
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_ino != self.inode:
            return True
        return about.st_size < self.size or _tail_of(file, self.size) != self.tail

    def _is_on_another_disk(self, file: FileIO) -> bool:
        """On disks of two hosts files may have one inode by chance, and the same begin."""
        here = disk_of(self.path, os.fstat(file.fileno()).st_dev)
        return bool(self.disk and here and self.disk != here)


def from_notes(notes: Any) -> Sequence[Log]:
    """Return the files of an image of another host; raise ValueError or TypeError if they are none."""
    if not isinstance(notes, list) or len(notes) > MOST_LOGS:
        raise ValueError("its logs are none")
    return [Log.from_note(note) for note in notes]


def open_at_once(path: str, flags: int) -> int:
    """Open a file; not wait if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _tail_of(file: FileIO, size: int) -> str:
    file.seek(max(0, size - _TAIL_BYTES))
    return hashlib.sha256(file.read(min(size, _TAIL_BYTES))).hexdigest()
