"""Faults that no error tells of: which losses may differ, and none besides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyft_lab.matrix.spec import Fault
from pyft_lab.oracles import oracle, silent_oracle

FAULTS = (Fault(3, 0, "forward", "bitflip"),)
STARTED = 1000.0
SEEN = {"rank": 0, "fault": "mismatch", "outcome": "recovered", "began": 4.2, "ended": 5.5}


def folder_of(path: Path, found: dict[str, Any], wrong: tuple[int, ...] = ()) -> Path:
    """Make a run of eight steps, a second each, whose losses are wrong in some."""
    (path / "ranks").mkdir(parents=True)
    report = {"started": STARTED, "recovery": {"faults": [found] if found else []}}
    (path / "report-0.json").write_text(json.dumps(report))
    with (path / "ranks" / "0.jsonl").open("w") as file:
        for step in range(8):
            loss = "0x2" if step in wrong else "0x1"
            line = {"attempt": 0, "step": step, "loss": loss, "ids": [step], "t": STARTED + step}
            file.write(json.dumps(line) + "\n")
    (path / "final-0").write_text("state")
    return path


def losses(run: Path, reference: Path) -> list[str]:
    told = silent_oracle.told_before(run, FAULTS, [oracle.lines_of(run, 0)])
    return oracle.judge(run, reference, 1, 8, told=told).losses


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((), []),
        ((3, 5), []),  # between the fault and its repair
        ((2,), [2]),  # before the fault
        ((3, 4, 5, 6), [6]),  # told after the repair
    ],
)
def test_only_what_was_told_before_the_repair_may_differ(
    tmp_path: Path, wrong: tuple[int, ...], told: list[int]
) -> None:
    reference = folder_of(tmp_path / "reference", {})
    found = losses(folder_of(tmp_path / "run", SEEN, wrong), reference)
    assert [f"step {step}:" in text for step, text in zip(told, found, strict=True)] == [
        True for _ in told
    ]


@pytest.mark.parametrize(
    "found", [{}, {**SEEN, "outcome": "given up"}, {**SEEN, "fault": "peer-failed"}]
)
def test_a_fault_that_was_not_seen_excuses_nothing(tmp_path: Path, found: dict[str, Any]) -> None:
    reference = folder_of(tmp_path / "reference", {})
    assert len(losses(folder_of(tmp_path / "run", found, (4,)), reference)) == 1


def test_the_first_repair_ends_what_is_excused(tmp_path: Path) -> None:
    reference = folder_of(tmp_path / "reference", {})
    run = folder_of(tmp_path / "run", SEEN, (6,))
    report = json.loads((run / "report-0.json").read_text())
    report["recovery"]["faults"].append({**SEEN, "ended": 9.0})
    (run / "report-0.json").write_text(json.dumps(report))
    assert len(losses(run, reference)) == 1


def test_other_faults_excuse_nothing(tmp_path: Path) -> None:
    run = folder_of(tmp_path / "run", SEEN)
    ecc = (Fault(3, 0, "forward", "ecc"),)
    assert silent_oracle.told_before(run, ecc, [oracle.lines_of(run, 0)]) == frozenset()


def test_its_cost_is_the_longest_pause_after_it(tmp_path: Path) -> None:
    lines = [{"step": step, "t": t} for step, t in enumerate((1.0, 2.0, 3.0, 7.0, 8.0))]
    assert silent_oracle.lost_seconds(lines, 2.5, 1.0) == 3.0
    assert silent_oracle.lost_seconds(lines, 9.0, 1.0) is None
