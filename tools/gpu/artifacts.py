"""What is kept of the checks: traces, logs, reports, in few archives that are not large.

An archive is made anew when one more of its checks is over, and takes the old one's place whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 12 << 20  # bytes of an archive
PARTS = 5  # archives at most: all of them have less than 64 MiB
READ = 128 << 20  # bytes of files that are compressed into one, at most
TRIES = 8
CUT = b"\n[... cut here ...]\n"


@dataclass
class Artifacts:
    """`kept`: a folder for each check, by its name. `part_of`: into which archive it goes."""

    target: Path
    kept: Path
    part_of: Mapping[str, str]

    def pack(self, part: str) -> None:
        """Write the archive of this part of the checks: smaller pieces until it fits."""
        folders = [self.kept / name for name, of in self.part_of.items() if of == part]
        files = [path for folder in folders for path in files_in(folder)]
        if not files:
            return
        self.target.mkdir(parents=True, exist_ok=True)
        new = self.target / f"{part}.new"
        for attempt in range(TRIES):
            self._write(new, files, READ >> attempt)
            if new.stat().st_size <= LIMIT:
                os.replace(new, self.target / f"{part}.tar.gz")
                return
        new.unlink()

    def _write(self, archive: Path, files: Sequence[Path], bytes_of_all: int) -> None:
        sizes = {path: size_of(path) for path in files}
        most = largest([*sizes.values()], bytes_of_all)
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            for path in files:
                with contextlib.suppress(OSError):  # gone, or not to be read
                    content = piece(path, most)
                    entry = tarfile.TarInfo(str(path.relative_to(self.kept)))
                    entry.size, entry.mtime = len(content), int(path.stat().st_mtime)
                    tar.addfile(entry, io.BytesIO(content))


def files_in(folder: Path) -> list[Path]:
    """Return the plain files; links lead to what is on the machine anyway."""
    found = sorted(folder.rglob("*"))
    return [path for path in found if path.is_file() and not path.is_symlink()]


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def largest(sizes: Sequence[int], together: int) -> int:
    """Return how long a file may be: only the largest are cut, all to the same size."""
    left, ordered = together, sorted(sizes)
    for number, size in enumerate(ordered):
        share = left // (len(ordered) - number)
        if size > share:
            return share
        left -= size
    return max(ordered, default=0)


def piece(path: Path, most: int) -> bytes:
    """Return a file's bytes, cut to so many: of text both ends, of the rest the beginning."""
    with path.open("rb") as file:
        if size_of(path) <= most:
            return file.read(most)
        if b"\0" in file.read(4096):
            file.seek(0)
            return file.read(most)
        half = max(0, (most - len(CUT)) // 2)
        file.seek(0)
        begin = file.read(half)
        file.seek(-half, os.SEEK_END)
        return begin + CUT + file.read(half)
