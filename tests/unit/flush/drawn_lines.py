"""Lines of drawn bytes: written in two pieces, and compared when they are taken."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from pyft.flush import reader
from pyft.flush.manifest import FlushError
from pyft.flush.writer import Writer
from pyft.images.contents import Contents


@dataclass(frozen=True)
class DrawnLines:
    """Lines with files of two sizes."""

    a: int
    b: int

    def contents(self, number: int) -> tuple[dict, bytes]:
        """Return what is said of a line, and its data."""
        data = random.Random(number).randbytes(self.a + self.b)
        contents = Contents([("a", self.a), ("b", self.b)], []).note()
        image = {"record": {"clients": {}}}
        return {"step": 10 * number, "contents": contents, "image": image}, data

    def write(self, writer: Writer, number: int) -> None:
        """Write a line; a piece ends within a file."""
        about, data = self.contents(number)
        cut = self.a * 2 // 3
        writer.write(number, about, iter([data[:cut], data[cut:]]))

    def taken(self, folders: list[Path], into: Path) -> int:
        """Return the line that is taken, 0 for none; its data are what was written."""
        try:
            loaded = reader.newest(folders, into)
        except FlushError:
            return 0
        number = loaded.manifest.number
        data = (loaded.folder / "a").read_bytes() + (loaded.folder / "b").read_bytes()
        assert data == self.contents(number)[1]
        loaded.drop()
        return number
