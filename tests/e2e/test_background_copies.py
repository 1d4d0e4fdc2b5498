"""Copies behind cuts of a GPU whose memory the server cannot look at, and deaths around them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job import PYFT, TRAIN, Job
from recovery_run import command, lines
from recovery_run import undisturbed as undisturbed_without_snapshots
from vendor import environment

PROGRAM = str(Path(__file__).with_name("programs") / "late_change.py")
# Parameters are copied behind the cut from the fifth snapshotted one on.
STAGES = ["cut.copying:5"]  # the others: tests/recovery/background_copies_test.cc
LATE = {"PYFT_CUT_EVERY": "1", "PYFT_BACKGROUND_COPIES": "always"}
LARGE = 12 << 20  # bytes of the parameter that late_change.py releases
pytestmark = pytest.mark.soft


def run(
    folder: Path, *options: str, argument: str = "", **variables: str
) -> tuple[str, dict[str, Any], str]:
    """Train on a driver's GPU, each cut snapshotted; return the output, the report, what was said."""
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    line = [PYFT, "run", "--gpus", "0", "--report", str(report), *options]
    line += ["--log-dir", str(folder / "log"), "--", sys.executable, PROGRAM]
    line += [argument] if argument else []
    env = os.environ | environment(folder / "driver")
    env |= LATE | variables
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text()), done.stderr


def store_of(report: dict[str, Any]) -> dict[str, int]:
    return report["channels"][0]["store"]


def faults(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f["fault"], f["outcome"], f["verdict"]) for f in report["recovery"]["faults"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the program prints without snapshots."""
    folder = tmp_path_factory.mktemp("undisturbed")
    output, _, _ = run(folder, "--protect", "none")
    return output


def test_most_is_copied_behind_the_cut(tmp_path: Path, undisturbed: str) -> None:
    output, report, said = run(tmp_path)
    assert output == undisturbed
    store = store_of(report)
    assert (store["snapshots"], store["cancelled"]) == (9, 0), said
    assert 0 < store["later_bytes"] < store["copied_bytes"] == store["fetched_bytes"]
    assert store["later_ns"] > 0
    at_cuts, _, _ = run(tmp_path / "at_cuts", PYFT_BACKGROUND_COPIES="never")
    assert at_cuts == undisturbed


def test_a_killed_server_comes_back_from_background_copies(
    tmp_path: Path, undisturbed: str
) -> None:
    output, report, said = run(tmp_path, "--inject", "server-kill,rank=0,step=7,call=12")
    assert output == undisturbed
    assert faults(report) == [("server-killed", "recovered", "exact")], said
    store = store_of(report)
    assert store["later_bytes"] > 0
    assert store["cancelled"] == 0, said


@pytest.mark.parametrize("stage", STAGES)
def test_a_death_at_each_stage(stage: str, tmp_path: Path, undisturbed: str) -> None:
    output, report, said = run(tmp_path, PYFT_FAULT=stage)
    assert output == undisturbed
    assert faults(report) == [("server-killed", "recovered", "exact")], said
    assert report["recovery"]["faults"][0]["restored_bytes"] > 0


@pytest.mark.parametrize("launch", ["194"])
def test_the_device_fails_while_it_copies(launch: str, tmp_path: Path, undisturbed: str) -> None:
    """Behind the sixth or seventh cut: whoever meets it first, it is the device's failure."""
    output, report, said = run(tmp_path, SOFTGPU_FAULT=f"error:{launch},code=700")
    assert output == undisturbed
    assert faults(report) == [("context-lost", "recovered", "exact")], said


def test_parameters_that_change_without_a_gate(tmp_path: Path) -> None:
    """They may change before they are copied: then the cut is none, and nothing else happens."""
    wanted, _, _ = run(tmp_path / "undisturbed", "--protect", "none", argument="--without-gate")
    where = "server-kill,rank=0,step=7,call=12"
    disturbed = tmp_path / "disturbed"
    output, report, said = run(disturbed, "--inject", where, argument="--without-gate")
    assert output == wanted
    assert faults(report) == [("server-killed", "recovered", "exact")], said


def test_memory_that_is_given_back_has_been_copied_first(tmp_path: Path) -> None:
    """Right behind a cut at which it is copied later."""
    wanted, _, _ = run(tmp_path / "undisturbed", "--protect", "none", argument="--release")
    output, report, said = run(tmp_path / "snapshotted", argument="--release")
    assert output == wanted
    store = store_of(report)
    assert store["cancelled"] == 0, said
    assert store["later_bytes"] > LARGE


@pytest.mark.long
def test_ranks_of_one_gpu_copy_behind_cuts_and_share(tmp_path: Path) -> None:
    """Collectives pass the host; blocks that both have are copied by one of them."""
    folder, arguments = tmp_path / "driver", ("--steps", "10")
    report = tmp_path / "report.json"
    options = ("--gpus", "0,0", "--inject", "server-kill,rank=1,step=8,call=120")
    job = Job(
        tmp_path,
        command(TRAIN, 2, arguments),
        options=(*options, "--report", str(report)),
        environment=environment(folder) | LATE,
    )
    try:
        assert job.wait(180) == 0, job.errors()
        job.assert_nothing_left()
        got = lines(job)
    finally:
        job.kill_everything()
    assert tuple(got) == undisturbed_without_snapshots(TRAIN, 2, arguments)
    what = json.loads(report.read_text())
    assert faults(what) == [("server-killed", "recovered", "exact")], job.errors()
    stores = [channel["store"] for channel in what["channels"]]
    # Not by each: a gate where a collective does not end within a second teaches nothing.
    assert any(store["later_bytes"] > 0 for store in stores), stores
    assert any(store["elsewhere_bytes"] > 0 for store in stores), stores
