"""The operations on a file system that a flush consists of. A test puts a model in their place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class Disk:
    """A file system. Nothing is durable before it is synced: a file, and the name in its folder."""

    def make_folder(self, path: Path) -> None:
        """Make a folder that is not there."""
        path.mkdir(mode=0o700)

    def create(self, path: Path) -> int:
        """Make a file that is not there; return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | memoryview) -> None:
        """Append to a file; raise OSError when not all of it fits."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def sync_file(self, fd: int) -> None:
        """Return when the contents of a file are durable."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in a folder are durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, path: Path, to: Path) -> None:
        """Give a folder a name that is not in use."""
        os.rename(path, to)

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(path)

    def remove(self, path: Path) -> None:
        """Remove a folder and all that is in it, in any order."""
        shutil.rmtree(path, ignore_errors=True)
