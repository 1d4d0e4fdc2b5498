"""Deaths in the middle of a snapshot, and snapshots whose copies are overtaken by the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAM = str(Path(__file__).with_name("programs") / "late_change.py")
# Parameters are copied behind the cut from the fifth snapshot on: the next one's stages, in order.
STAGES = [
    "cut.after_stage:2",
    "cut.after_release:2",
    "cut.copying:12",
    "store.after_publish:6",
]
pytestmark = pytest.mark.soft


def run(folder: Path, arguments: list[str], *options: str, **environment: str) -> tuple[str, dict]:
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    line = [PYFT, "run", "--gpus", "soft:1", "--protect", "snapshot", "--report", str(report)]
    line += [*options, "--log-dir", str(folder / "log"), "--", sys.executable, PROGRAM, *arguments]
    # Each cut is snapshotted, however busy the machine is.
    env = os.environ | {"PYFT_CUT_EVERY": "1", "PYFT_BACKGROUND_COPIES": "always"} | environment
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    output, report = run(tmp_path_factory.mktemp("undisturbed"), [])
    assert report["recovery"]["faults"] == []
    store = report["channels"][0]["store"]
    assert (store["snapshots"], store["cancelled"]) == (9, 0)
    # Most of what changes is behind the cut by then.
    assert 0 < store["later_bytes"] < store["copied_bytes"]
    return output


@pytest.mark.parametrize("stage", STAGES)
def test_a_death_at_each_stage_of_a_cut(stage: str, tmp_path: Path, undisturbed: str) -> None:
    output, report = run(tmp_path, [], PYFT_FAULT=stage)
    assert output == undisturbed
    faults = report["recovery"]["faults"]
    assert [(fault["outcome"], fault["verdict"]) for fault in faults] == [("recovered", "exact")]
    # The committed snapshot is the cut before, or this one once it has been published.
    assert faults[0]["restored_bytes"] > 0


def test_parameters_that_change_without_a_gate(tmp_path: Path) -> None:
    arguments = ["--without-gate"]
    wanted, _ = run(tmp_path / "undisturbed", arguments, "--protect", "none")
    where = "server-kill,rank=0,step=7,call=12"
    output, report = run(tmp_path / "disturbed", arguments, "--inject", where)
    assert output == wanted
    assert [fault["verdict"] for fault in report["recovery"]["faults"]] == ["exact"]
