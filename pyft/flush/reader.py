"""Reads lines from folders: each cell is compared with its digest before anything is made of it.

Cells that are lost or damaged are made again from those of the other folders, stripe by stripe.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyft import _native
from pyft._native.isal import Buffer
from pyft.flush import manifest
from pyft.flush.codes import Code
from pyft.flush.manifest import DamagedError, FlushError, Manifest
from pyft.images import memory
from pyft.images.contents import remove

LEAST_FREE = 1 << 28  # of the host's memory


@dataclass
class Loaded:
    """A line that was whole: CRIU's files in `folder`, and the memory objects of each client."""

    manifest: Manifest
    folder: Path
    memory: dict[int, list[int]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)  # newer lines, and why they are not taken
    mended: list[int] = field(default_factory=list)  # stripes of which cells were made again

    def drop(self) -> None:
        """Give it up."""
        remove(self.folder, self.memory)


def newest(folders: Sequence[Path], into: Path) -> Loaded:
    """Load the newest line that is whole, or can be made so; raise FlushError when there is none.

    Only damage leads to an older one: for what this host lacks now no line is given up.
    """
    for folder in folders:
        check_owner(folder)
    refused: dict[int, str] = {}
    for number in manifest.lines_in(folders):
        try:
            loaded = load(folders, number, into / str(number))
            loaded.refused = refused
            return loaded
        except DamagedError as error:
            refused[number] = str(error)
    whys = "; ".join(f"line [{number}]: {why}" for number, why in refused.items())
    where = ", ".join(map(str, folders))
    raise FlushError(f"[{where}] has no line that is whole: {whys or 'it has none'}")


def whole(folders: Sequence[Path]) -> list[int]:
    """Return the lines that enough folders have to read them; their cells are not looked at."""
    found = []
    for number in manifest.lines_in(folders):
        with contextlib.suppress(DamagedError):
            parts_of(folders, number)
            found.append(number)
    return found


def check_owner(folder: Path) -> None:
    """Refuse a folder into which others write: what is resumed runs with the user's rights."""
    try:
        about = folder.stat()
    except OSError as error:
        raise FlushError(f"[{folder}] cannot be read: {error.strerror}") from None
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
        raise FlushError(f"[{folder}] can be written by other users: nothing is resumed from there")


def load(folders: Sequence[Path], number: int, into: Path) -> Loaded:
    """Load a line; raise DamagedError, or FlushError if this host cannot take it; leave nothing."""
    about, lines = parts_of(folders, number)
    room = memory.available() - LEAST_FREE
    if (needed := about.contents.memory_bytes) > room:
        raise FlushError(
            f"line [{number}] needs [{needed / 1e6:.0f}] MB of memory, and there are "
            f"[{max(0, room) / 1e6:.0f}] MB; no line is changed"
        )
    loaded = Loaded(about, into)
    try:
        stream = _Stream(cells(about, lines, loaded.mended))
        names = {int(id): note["channel"]["name"] for id, note in _clients(about).items()}
        about.contents.make_files(into, stream.fill)
        about.contents.make_memory(names, stream.fill, loaded.memory)
    except (ValueError, KeyError, TypeError) as error:
        loaded.drop()
        raise DamagedError(f"its manifest is none: {error}") from None
    except OSError as error:  # of what is made here: a cell that cannot be read is damaged
        loaded.drop()
        where = f"[{into}] and memory"
        raise FlushError(
            f"line [{number}] cannot be written to {where}: {error.strerror}; no line is changed"
        ) from None
    except BaseException:
        loaded.drop()
        raise
    return loaded


def parts_of(folders: Sequence[Path], number: int) -> tuple[Manifest, dict[int, Path]]:
    """Return a line's manifest, and which folder has which of its cells; raise DamagedError."""
    found: list[tuple[Manifest, Path]] = []
    whys = []
    for line in (folder / manifest.name_of(number) for folder in folders):
        try:
            about = manifest.read(line)
            if about.number != number:
                raise DamagedError(f"it says that it is line [{about.number}]")
            found.append((about, line))
        except DamagedError as error:
            whys.append(str(error) if len(folders) == 1 else f"[{line}]: {error}")
    for about, _ in found:
        lines = {other.index: line for other, line in found if other.is_of(about)}
        if len(lines) >= about.data:
            return about, lines
    raise DamagedError("; ".join(whys) or "its parts are of different lines")


def _clients(about: Manifest) -> dict[str, dict]:
    return about.about["image"]["record"]["clients"]


def cells(about: Manifest, lines: dict[int, Path], mended: list[int]) -> Iterator[Buffer]:
    """Yield the data of a line, cell by cell, as they were written; raise DamagedError.

    `mended`: takes the stripes of which cells were made again.
    """
    code, left = Code(about.data, about.parity), about.bytes
    for stripe in range(about.stripes):
        there, whys = _good_cells(about, lines, stripe)
        if len(there) < about.data:
            lost = about.each - len(there)
            raise DamagedError(
                f"[{lost}] of [{about.each}] cells of stripe [{stripe}] are lost: {whys[0]}"
            )
        if whys:
            mended.append(stripe)
        for cell in code.decode(there):
            if left:
                yield memoryview(cell)[:left]
            left -= min(left, len(cell))


def _good_cells(
    about: Manifest, lines: dict[int, Path], stripe: int
) -> tuple[dict[int, Buffer], list[str]]:
    """Return cells of a stripe that are whole, enough of them if there are, and what the others lack."""
    there: dict[int, Buffer] = {}
    whys: list[str] = []
    for at in range(about.each):
        if len(there) == about.data:
            break
        try:
            there[at] = _good_cell(about, lines, stripe, at)
        except DamagedError as error:
            whys.append(str(error))
    return there, whys


def _good_cell(about: Manifest, lines: dict[int, Path], stripe: int, at: int) -> Buffer:
    if at not in lines:
        raise DamagedError("their folder has nothing of the line")
    path, cell = lines[at] / manifest.DATA, bytearray(about.length(stripe))
    try:
        with path.open("rb", buffering=0) as file:
            _read_into(file.fileno(), memoryview(cell), stripe)
    except OSError as error:
        raise manifest.unreadable(f"[{path}]", error) from None
    if _native.digest(memoryview(cell)) != about.cells[stripe * about.each + at]:
        raise DamagedError(f"the digest of cell [{stripe}] of [{path}] differs")
    return cell


def _read_into(fd: int, cell: memoryview, stripe: int) -> None:
    done = 0
    while done < len(cell):
        got = os.preadv(fd, [cell[done:]], stripe * manifest.CELL + done)
        if not got:
            raise DamagedError(f"the data end in cell [{stripe}]")
        done += got


class _Stream:
    """Hands out the bytes of cells in the pieces that are asked for."""

    def __init__(self, cells: Iterator[Buffer]) -> None:
        self._cells = cells
        self._rest = memoryview(b"")

    def fill(self, fd: int, start: int, end: int) -> None:
        """Write the next bytes to a place in a file."""
        while start < end:
            if not self._rest:
                self._rest = memoryview(next(self._cells))
            piece = self._rest[: end - start]
            done = os.pwrite(fd, piece, start)
            self._rest = self._rest[done:]
            start += done
