"""Copies of memory objects: those of an image, and those that a restored client gets."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARTS = ("log", "control", "bounce", "pinned", "store")  # of a client
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CHUNK = 64 << 20
_GROUPS, _GROUP_FILES = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


class _Version(NamedTuple):
    """What a version of the kernel's control groups calls its files."""

    name: str
    folder: str
    limit: str
    used: str
    files: tuple[str, str]


_VERSIONS = (
    _Version("", ".", "memory.max", "memory.current", ("active_file", "inactive_file")),
    _Version(
        "memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
)


def copy_of(source: int, name: str) -> int:
    """Return a new memory object with this name and the same contents, holes and seals."""
    fd = new(name, os.fstat(source).st_size)
    try:
        for start, end in data_of(source):
            _copy(source, fd, start, end)
        seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def new(name: str, size: int) -> int:
    """Return a new memory object that is one hole."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd


def seal(fd: int) -> None:
    """Keep the size of a memory object as it is."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)


def available() -> int:
    """Return how many bytes of memory the host has left, and the container of this process."""
    host = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            host = int(value.split()[0]) << 10
    return min([host, *_left_to_groups()])


def _left_to_groups() -> Iterator[int]:
    """Yield what the control groups of this process have left, of those that have a limit."""
    lines = _GROUPS.read_text().splitlines() if _GROUPS.exists() else []
    for version in _VERSIONS:
        named = (line.split(":", 2) for line in lines)
        own = next((path for _, names, path in named if version.name in names.split(",")), "")
        top = _GROUP_FILES / version.folder
        folder = top / own.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(top):
                break
            with contextlib.suppress(OSError, ValueError, KeyError):  # `max` is no number
                yield _left_to_group(group, version)


def _left_to_group(group: Path, version: _Version) -> int:
    most, used = (int((group / name).read_text()) for name in (version.limit, version.used))
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = sum(int(stat[name]) for name in version.files)  # is given up for it
    return max(0, most - used + cached)


def data_of(fd: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of an object that are no holes. Other processes may be changing it."""
    at, size = 0, os.fstat(fd).st_size
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows
            return
        end = os.lseek(fd, at, os.SEEK_HOLE)
        yield at, end
        at = end


def _copy(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        done = os.copy_file_range(source, target, min(_CHUNK, end - start), start, start)
        if done <= 0:
            raise OSError(5, "a memory object ends before its size")
        start += done
