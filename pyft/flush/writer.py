"""Writes lines into folders, so that a crash at any place leaves the one before as it was.

In each folder:
    make line-N.partial   write data, sync it   write manifest, sync it   sync line-N.partial
In all, when each has come so far:
    rename it to line-N   sync the folder
When all have:
    remove lines before the last two

A line counts as soon as enough folders have its name. What a name stands for is durable before that.
With several folders each has one cell of each stripe. One that fails is left out, as long as the others
are enough to read the line.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyft import _native
from pyft._native.isal import Buffer
from pyft.flush import manifest
from pyft.flush.codes import Code
from pyft.flush.disk import Disk

KEPT = 2  # the last one, and the one before: a reader may find the last one damaged


class Stopped(Exception):
    """The flush is given up because the job ends."""


class Writer:
    """Writes one line after the other. `good`: those that are there and are known to be whole.

    A name alone says nothing of that: the power may have gone when only some folders had it.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        parity: int,
        good: Iterable[int],
        disk: Disk | None = None,
    ) -> None:
        self._folders, self._disk = folders, disk or Disk()
        self._code = Code(len(folders) - parity, parity)
        self.good = sorted(good)
        self.failed: dict[Path, OSError] = {}  # folders that have nothing of the last line

    def write(self, number: int, about: dict[str, Any], stream: Iterable[Buffer]) -> int:
        """Write a line, and remove what it makes needless; return its bytes. Raise OSError.

        When this fails everything before it is as it was.
        """
        about = about | {"number": number, "id": secrets.token_hex(8)}
        self.failed = {}
        parts = [_Part(self._disk, folder, number) for folder in self._folders]
        try:
            written = self._write(parts, about, stream)
            self._each(parts, _Part.name)
        except BaseException:
            for part in parts:
                part.remove()
            raise
        self.good = [*self.good, number][-KEPT:]
        for part in parts:
            if part.folder not in self.failed:
                with contextlib.suppress(OSError):  # the line is whole all the same
                    part.clean(self.good)
        return written

    def _write(self, parts: list[_Part], about: dict[str, Any], stream: Iterable[Buffer]) -> int:
        self._each(parts, _Part.begin)
        digests, written = [], 0
        for cells in stripes_of(stream, self._code.data):
            written += sum(map(len, cells))
            cells = padded(cells, self._code.data)
            cells += self._code.encode(cells)
            digests += [_native.digest(cell) for cell in cells]
            self._each(parts, lambda part, of=cells: part.write(of[parts.index(part)]))
        about |= {"bytes": written, "cells": digests, "code": [self._code.data, self._code.parity]}
        self._each(
            parts, lambda part: part.end(manifest.text_of(about | {"index": parts.index(part)}))
        )
        return written

    def _each(self, parts: list[_Part], do: Callable[[_Part], object]) -> None:
        """Do something in each folder that is left; raise the first error when too few are."""
        for part in parts:
            if part.folder in self.failed:
                continue
            try:
                do(part)
            except OSError as error:
                self.failed[part.folder] = error
                part.remove()
        if len(self.failed) > self._code.parity:
            raise next(iter(self.failed.values()))


class _Part:
    """What one folder has of a line."""

    def __init__(self, disk: Disk, folder: Path, number: int) -> None:
        self._disk, self.folder = disk, folder
        self._line = folder / manifest.name_of(number)
        self._partial = self._line.with_name(self._line.name + manifest.PARTIAL)
        self._fd = -1

    def begin(self) -> None:
        self._disk.make_folder(self._partial)
        self._fd = self._disk.create(self._partial / manifest.DATA)

    def write(self, cell: Buffer) -> None:
        self._disk.write(self._fd, cell)

    def end(self, text: bytes) -> None:
        """Make all of it durable, under the name that does not count."""
        self._disk.sync_file(self._fd)
        self._close()
        self._fd = self._disk.create(self._partial / manifest.MANIFEST)
        self._disk.write(self._fd, text)
        self._disk.sync_file(self._fd)
        self._close()
        self._disk.sync_folder(self._partial)

    def name(self) -> None:
        """Make it count."""
        self._disk.rename(self._partial, self._line)
        self._disk.sync_folder(self.folder)

    def remove(self) -> None:
        """Leave nothing of it."""
        self._close()
        for path in (self._partial, self._line):
            self._disk.remove(path)

    def clean(self, good: list[int]) -> None:
        """Remove all other lines; these are durable."""
        kept = {manifest.name_of(number) for number in good}
        for name in self._disk.names(self.folder):
            if name.startswith(manifest.LINE) and name not in kept:
                self._disk.remove(self.folder / name)

    def _close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def stripes_of(stream: Iterable[Buffer], cells: int) -> Iterator[list[Buffer]]:
    """Yield a stream in stripes of so many cells of one size; the last cell may be shorter."""
    stripe: list[Buffer] = []
    for cell in cells_of(stream):
        stripe.append(cell)
        if len(stripe) == cells:
            yield stripe
            stripe = []
    if stripe:
        yield stripe


def padded(cells: list[Buffer], count: int) -> list[Buffer]:
    """Return so many cells that are as long as the first one, with zeros behind."""
    length = len(cells[0])
    whole = [cell if len(cell) == length else bytes(cell).ljust(length, b"\0") for cell in cells]
    return whole + [bytes(length)] * (count - len(cells))


def cells_of(stream: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield a stream in cells of one size; the last one may be shorter."""
    rest: Buffer = b""
    for piece in stream:
        rest = bytes(rest) + bytes(piece) if rest else piece
        while len(rest) >= manifest.CELL:
            yield rest[: manifest.CELL]
            rest = rest[manifest.CELL :]
    if rest:
        yield rest
