"""The head's log: what has been decided, safe before any process acts on it. Here: in a file.

pyft.hosts.etcd and pyft.hosts.kubernetes have it elsewhere, for several heads of which one decides.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Protocol

from pyft.errors import PyftError, UsageError


class LedgerLost(PyftError):
    """This head may decide no more; another one may."""


class Ledger(Protocol):
    """Where decisions are kept. `entries`: those of heads before this one, in their order."""

    entries: list[dict[str, Any]]
    is_shared: bool  # another head may decide with it while this one still runs

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; the next head will read it when this returns. Raise OSError."""

    def lost(self) -> str:
        """Return why this head may decide and say nothing any more, nothing as long as it may."""

    def close(self) -> None:
        """End it."""


class FileLedger:
    """Lines of JSON in a file that is only appended to. Without a path nothing outlives the head."""

    is_shared = False

    def __init__(self, path: Path | None) -> None:
        self._fd = -1
        self.entries: list[dict[str, Any]] = []  # of heads before this one
        if path is None:
            return
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _lock(self._fd, path)
            self.entries, whole = _read(path)
            os.ftruncate(self._fd, whole)  # a line that was being written decided nothing
            os.fsync(self._fd)
            _sync_folder(path)
        except BaseException:
            self.close()
            raise

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is on disk when this returns. Raise OSError."""
        if self._fd < 0:
            return
        data = json.dumps(entry).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def lost(self) -> str:
        """Return nothing: as long as this head has locked the file, it decides."""
        return ""

    def close(self) -> None:
        """End it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock(fd: int, path: Path) -> None:
    """Keep other heads away; raise UsageError if there is one."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another head decides with the ledger [{path}]: end that first") from None


def _sync_folder(path: Path) -> None:
    """Have the file's name on disk too."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the whole entries, and how many bytes they have. Only the last line may be damaged."""
    lines = path.read_bytes().split(b"\n")
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or not isinstance(entry["kind"], str):
                raise ValueError("it has no kind")
        except (ValueError, KeyError, RecursionError):
            if any(lines[number:]):
                raise UsageError(
                    f"the ledger [{path}] is damaged in line [{number}], and decisions follow it: "
                    "restore the file, or begin a new job with another one"
                ) from None
            break
        entries.append(entry)
    return entries, sum(len(line) + 1 for line in lines[: len(entries)])
