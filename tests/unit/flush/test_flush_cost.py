"""What `pyft plan` says: the formulas beside simulated traces, and beside what is written."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyft._native import isal
from pyft.cli.main import app
from pyft.flush import cost, manifest
from pyft.flush.cost import Cost, failed_by
from pyft.flush.writer import KEPT, Writer
from pyft.images.contents import Contents

TRACES = 100_000
SIGMAS = 4.0  # of the interval around what the formula says


@pytest.mark.parametrize(
    ("folders", "parity", "shape"),
    [(2, 1, 1.0), (6, 2, 1.0), (6, 2, 0.7), (5, 1, 1.5), (3, 0, 1.0)],
)
def test_losses_are_as_in_simulated_traces(folders: int, parity: int, shape: float) -> None:
    """REFT's equation (5) and its like: each folder fails at a time that Weibull's law draws."""
    mean, hours, draw = 1000.0, 300.0, random.Random(5)
    scale = mean / math.gamma(1.0 + 1.0 / shape)
    lost = 0
    for _ in range(TRACES):
        failed = sum(draw.weibullvariate(scale, shape) <= hours for _ in range(folders))
        lost += failed > parity
    said = Cost(1, 1.0, folders, parity).loss(failed_by(hours, mean, shape))
    sigma = math.sqrt(said * (1.0 - said) / TRACES)
    assert 0.01 < said < 0.99
    assert abs(lost / TRACES - said) < SIGMAS * sigma


def test_weibull_of_shape_one_is_exponential() -> None:
    assert failed_by(10.0, 100.0) == pytest.approx(1.0 - math.exp(-0.1))
    assert failed_by(0.0, 100.0, 0.5) == 0.0


@pytest.mark.parametrize(("folders", "parity"), [(1, 0), (3, 1), (6, 2)])
def test_bytes_are_as_written(
    tmp_path: Path, folders: int, parity: int, need: Callable[[str, bool, str], None]
) -> None:
    """With more lines than are kept, what is on disk never outgrows what is said."""
    need("isal", parity < 2 or not isal.lacks(), isal.lacks())
    line = 24 * manifest.CELL
    paths = [tmp_path / str(at) for at in range(folders)]
    for path in paths:
        path.mkdir()
    about = {"step": 1, "contents": Contents([("a", line)], []).note(), "image": {}}
    writer, cell = Writer(paths, parity, []), bytes(manifest.CELL)
    said = Cost(line, 1.0, folders, parity)
    for number in range(1, KEPT + 3):
        assert writer.write(number, about, (cell for _ in range(24))) == line
    for path in paths:
        data = sum(file.stat().st_size for file in path.glob("*/data"))
        assert data == KEPT * said.each_folder / (KEPT + 1)
    assert said.factor == folders / (folders - parity)


def test_the_figures_of_a_code_beside_copies() -> None:
    """The bar is 0.55 for four and two."""
    four_and_two = Cost(100, 1.0, 6, 2)
    assert four_and_two.factor / four_and_two.copies == 0.5
    assert four_and_two.traffic == 150.0
    assert cost.Cost(100, 10.0, 1, 0).traffic == 10.0


def test_the_command_prints_a_line_for_each_code(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "--gigabytes", "40", "--flush-every", "600"])
    assert done.exit_code == 0
    rows = [line.split() for line in done.output.splitlines()]
    assert ["6", "2", "1.50", "3", "30.00", "100.00", "6", "2.7e-07"] in rows
    (tmp_path / "f").mkdir()
    refused = CliRunner().invoke(app, ["plan", "--flush", str(tmp_path / "f")])
    assert "has no line that can be read" in str(refused.exception)
    neither = CliRunner().invoke(app, ["plan"])
    assert "say how large a line is" in str(neither.exception)
