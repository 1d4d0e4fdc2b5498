"""Erasure codes: cells of parity, from which as many lost cells of a stripe can be made again.

One cell of parity is the exclusive or of the others. More are a Reed-Solomon code with a Cauchy
matrix, by ISA-L.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyft._native import isal
from pyft._native.isal import Buffer

MOST_CELLS = 64  # of a stripe


class TooFewError(Exception):
    """More cells are lost than there is parity."""


class Code:
    """A code of `data` cells and `parity` ones. Raise ValueError where there is none."""

    def __init__(self, data: int, parity: int) -> None:
        if data < 1 or parity < 0 or data + parity > MOST_CELLS:
            raise ValueError(f"there is no code of [{data}] + [{parity}] cells")
        if parity > 1 and (why := isal.lacks()):
            raise ValueError(f"parity of [{parity}] cells: {why}")
        self.data, self.parity, self.cells = data, parity, data + parity
        self._rows = isal.cauchy(data, parity) if parity > 1 else []

    def encode(self, cells: Sequence[Buffer]) -> list[Buffer]:
        """Return the parity of a stripe's data, which are of the same length."""
        if self.parity <= 1:
            return [_exclusive_or(cells)] if self.parity else []
        return list(isal.multiply(self._rows, cells))

    def decode(self, cells: Mapping[int, Buffer]) -> list[Buffer]:
        """Return a stripe's data of those cells that there are; raise TooFewError."""
        lost = [at for at in range(self.data) if at not in cells]
        if len(cells) < self.data:
            raise TooFewError(f"[{self.cells - len(cells)}] of [{self.cells}] cells are lost")
        if not lost:
            return [cells[at] for at in range(self.data)]
        used = sorted(cells)[: self.data]
        if self.parity == 1:
            made: list[Buffer] = [_exclusive_or([cells[at] for at in used])]
        else:
            inverse = isal.inverse([self._row(at) for at in used])
            made = list(isal.multiply([inverse[at] for at in lost], [cells[at] for at in used]))
        whole = dict(cells) | dict(zip(lost, made, strict=True))
        return [whole[at] for at in range(self.data)]

    def _row(self, at: int) -> bytes:
        if at >= self.data:
            return self._rows[at - self.data]
        return bytes(int(column == at) for column in range(self.data))


def _exclusive_or(cells: Sequence[Buffer]) -> bytes:
    if not isal.lacks():
        return bytes(isal.multiply([b"\1" * len(cells)], cells)[0])
    total = 0
    for cell in cells:
        total ^= int.from_bytes(cell, "little")
    return total.to_bytes(len(cells[0]), "little")
