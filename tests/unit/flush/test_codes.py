"""Codes: each pattern of lost cells up to the code's strength gives the same data."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from pyft._native import isal
from pyft.flush import codes
from pyft.flush.codes import Code, TooFewError

MOST = 8  # cells, of which each pattern is tried
LENGTHS = (1, 31, 4096 + 17)


def stripe(data: int, length: int, seed: int = 0) -> list[bytes]:
    """Return cells with any contents."""
    draw = random.Random(seed)
    return [draw.randbytes(length) for _ in range(data)]


@pytest.fixture
def with_isal(need: Callable[[str, bool, str], None]) -> None:
    """Skip where the library is missing."""
    need("isal", not isal.lacks(), isal.lacks())


@pytest.mark.parametrize("parity", range(1, 5))
@pytest.mark.usefixtures("with_isal")
def test_each_pattern_of_lost_cells(parity: int) -> None:
    """Of all codes with at most 8 cells: up to the parity they come back, one more is named."""
    tried = 0
    for data in range(1, MOST + 1 - parity):
        code = Code(data, parity)
        for length in LENGTHS:
            cells = stripe(data, length, seed=data * parity)
            all_cells = dict(enumerate([*cells, *code.encode(cells)]))
            for lost in range(parity + 1):
                for pattern in itertools.combinations(range(code.cells), lost):
                    left = {at: cell for at, cell in all_cells.items() if at not in pattern}
                    assert [bytes(cell) for cell in code.decode(left)] == cells
                    tried += 1
            for pattern in itertools.combinations(range(code.cells), parity + 1):
                left = {at: cell for at, cell in all_cells.items() if at not in pattern}
                with pytest.raises(TooFewError, match=rf"\[{parity + 1}\] of \[{code.cells}\]"):
                    code.decode(left)
    assert tried > 100


@pytest.mark.usefixtures("with_isal")
def test_one_cell_of_parity_is_the_same_without_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that hosts with and without it read each other's."""
    cells = stripe(4, 1000)
    parity = Code(4, 1).encode(cells)
    monkeypatch.setattr(isal, "lacks", lambda: "it is not there")
    assert Code(4, 1).encode(cells) == parity
    left = {0: cells[0], 2: cells[2], 3: cells[3], 4: parity[0]}
    assert Code(4, 1).decode(left) == cells


def test_without_the_library_more_parity_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isal, "lacks", lambda: "it is not there")
    with pytest.raises(ValueError, match=r"parity of \[2\] cells: it is not there"):
        Code(4, 2)


def test_what_is_no_code_is_refused() -> None:
    for data, parity in ((0, 1), (codes.MOST_CELLS, 1), (1, -1)):
        with pytest.raises(ValueError, match="there is no code"):
            Code(data, parity)
