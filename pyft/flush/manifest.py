"""The manifest of a line on disk: what it is of, and the digests of its data, cell by cell."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyft
from pyft import _native
from pyft.errors import PyftError
from pyft.flush.codes import MOST_CELLS
from pyft.images.contents import Contents

LINE, PARTIAL, REFUSED = "line-", ".partial", ".refused"
DATA, MANIFEST = "data", "manifest"
FORMAT = 1
CELL = 1 << 20
MOST_TEXT = 1 << 30
_LINE = re.compile(rf"{LINE}(\d{{1,18}})")
_ANY_LINE = re.compile(rf"{LINE}(\d{{1,18}})({re.escape(PARTIAL)}|{re.escape(REFUSED)})?")
_DIGEST = re.compile(r"[0-9a-f]{32}")


class FlushError(PyftError):
    """A folder has no line that can be resumed, or none can be taken now."""


class DamagedError(Exception):
    """A line is not as it was written; the sentence says what is wrong."""


def unreadable(what: str, error: OSError) -> FlushError | DamagedError:
    """Return what is wrong where a file cannot be read: the line, or what this process may use."""
    why = f"{what} cannot be read: {error.strerror}"
    of_here = error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return FlushError(f"{why}; no line is changed") if of_here else DamagedError(why)


@dataclass(frozen=True)
class Manifest:
    """A line on disk."""

    number: int
    step: int
    bytes: int
    data: int  # cells of each stripe,
    parity: int  # and those of its parity
    index: int  # which of them this folder has
    cells: list[str]  # digests of all, stripe by stripe
    contents: Contents
    about: dict[str, Any]  # all of it

    @property
    def each(self) -> int:
        """Return how many cells a stripe has."""
        return self.data + self.parity

    @property
    def stripes(self) -> int:
        """Return how many there are."""
        return len(self.cells) // self.each

    def length(self, stripe: int) -> int:
        """Return how long the cells of a stripe are: as its first one."""
        return min(CELL, self.bytes - stripe * self.data * CELL)

    def is_of(self, other: Manifest) -> bool:
        """Say whether two folders have parts of the same line."""
        return self.about | {"index": 0} == other.about | {"index": 0}


def name_of(number: int) -> str:
    """Return the name of a line's folder."""
    return f"{LINE}{number}"


def lines_in(folders: Iterable[Path]) -> list[int]:
    """Return the numbers of the lines that folders have, the newest first."""
    found = (_LINE.fullmatch(name) for name in _names_in(folders))
    return sorted({int(one[1]) for one in found if one}, reverse=True)


def last_number(folders: Iterable[Path]) -> int:
    """Return the highest number that was ever begun, and is to be seen."""
    found = (_ANY_LINE.fullmatch(name) for name in _names_in(folders))
    return max((int(one[1]) for one in found if one), default=0)


def _names_in(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        with contextlib.suppress(OSError):  # it is lost
            yield from os.listdir(folder)


def text_of(about: dict[str, Any]) -> bytes:
    """Return a manifest's file: one line of JSON, and its digest."""
    values = {"format": FORMAT, "pyft": pyft.__version__, "cell": CELL} | about
    line = json.dumps(values, separators=(",", ":")).encode()
    return line + b"\n" + _native.digest(line).encode() + b"\n"


def read(folder: Path) -> Manifest:
    """Read the manifest of a line, and check all that is used of it; raise DamagedError."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(MOST_TEXT)
    except OSError as error:
        raise unreadable("its manifest", error) from None
    line, _, rest = data.partition(b"\n")
    if rest != _native.digest(line).encode() + b"\n":
        raise DamagedError("the digest of its manifest differs")
    try:
        return _checked(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"its manifest is none: {error}") from None


def _checked(about: dict[str, Any]) -> Manifest:
    if about["format"] != FORMAT or about["cell"] != CELL:
        raise ValueError(f"format [{about['format']}] is another version's")
    if about["pyft"] != pyft.__version__:
        raise ValueError(f"it was written by pyft [{about['pyft']}], this is [{pyft.__version__}]")
    numbers = [*(about[name] for name in ("number", "step", "bytes", "index")), *about["code"]]
    if any(type(one) is not int or one < 0 for one in numbers):
        raise ValueError("a number is none")
    number, step, size, index, data, parity = numbers
    if not data or data + parity > MOST_CELLS or index >= data + parity:
        raise ValueError(f"there is no code of [{data}] + [{parity}] cells")
    contents, cells = Contents.from_note(about["contents"]), about["cells"]
    if contents.bytes != size or len(cells) != -(-size // (data * CELL)) * (data + parity):
        raise ValueError("its sizes do not fit")
    if not all(isinstance(cell, str) and _DIGEST.fullmatch(cell) for cell in cells):
        raise ValueError("a digest is none")
    return Manifest(number, step, size, data, parity, index, cells, contents, about)
