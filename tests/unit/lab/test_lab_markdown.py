"""The page of a matrix for a repository: its numbers are those of the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyft_lab.command import markdown
from pyft_lab.command.cli import app
from pyft_lab.matrix import runner
from pyft_lab.matrix.runner import Result
from pyft_lab.matrix.spec import Cell, Fault

SECONDS = {"blocking": 8.0, "pyft-snapshot": 0.4}


def run(mechanism: str, seed: int, good: bool = True, claimed: bool = True) -> Result:
    """Return a run with one fault, which costs a little more with each seed."""
    cell = Cell("soft", "gpt", mechanism, 2, 40, 10, seed, (Fault(15, 0, "backward", "ecc"),))
    lost = SECONDS[mechanism] * (1 + seed / 100)
    fault = {"kind": "ecc", "moment": "backward", "step": 15, "lost_s": lost}
    fault["phases_s"] = {"detect": lost / 5, "restore": 4 * lost / 5}
    data = {"claimed": claimed, "good": good, "step_s": 0.01, "wall_s": 10 + lost, "load1": 1.0}
    return Result(cell, Path(), {**data, "faults": [fault]}, cached=True)


def results() -> list[Result]:
    plain = run("blocking", 1)
    reference = replace(plain, cell=plain.cell.reference, data={**plain.data, "faults": []})
    return [reference, *(run(m, seed) for seed in range(1, 9) for m in SECONDS)]


def test_the_page_has_what_faults_cost_and_what_the_model_says() -> None:
    lines = markdown.write(results(), "small").splitlines()
    assert lines[0] == "# small: what was measured"
    assert "| `blocking` | `ecc` | 8.36 (8.08 to 8.64, 8) | the base, `blocking` |" in lines
    assert "| `pyft-snapshot` | `ecc` | 0.42 (0.40 to 0.43, 8) | 5 % (5 to 5 %, 8 pairs) |" in lines
    assert "| `pyft-snapshot` | detect 0.084, restore 0.334 |" in lines
    assert "2 of 2 hold; order right in 1 of 1 pairs" in lines


def test_runs_that_are_wrong_or_not_claimed_are_told_and_not_measured() -> None:
    wrong, refused = run("blocking", 9, good=False), run("blocking", 10, claimed=False)
    refused.data["status"] = "not claimed"
    page = markdown.write([*results(), wrong, refused], "small")
    assert "18 runs, of which 1 are references without faults; 1 are not claimed" in page
    assert "| `blocking` | `ecc` | 9 | 9 | 8 |" in page
    assert "8.36 (8.08 to 8.64, 8)" in page


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load", lambda _: results())
    monkeypatch.setattr(runner, "older", lambda *_: [])
    path = tmp_path / "small.md"
    monkeypatch.setattr("pyft_lab.command.cli.finish", lambda *_: None)
    done = CliRunner().invoke(app, ["report", "--markdown", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_text() == markdown.write(results(), "small")
