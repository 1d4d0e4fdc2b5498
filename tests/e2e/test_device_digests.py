"""Snapshots of a GPU whose memory the server cannot look at: the GPU hashes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job import TRAIN, Job
from recovery_run import STEPS, command, lines, undisturbed
from vendor import environment

KILL = "server-kill,rank=0,step=2,call=40"


def train(folder: Path, *options: str, **variables: str) -> tuple[list[str], dict, str]:
    """Train on the GPU of a driver, each cut snapshotted; return results, the report, what was said."""
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    job = Job(
        folder,
        command(TRAIN, 1, STEPS),
        options=("--gpus", "0", *options, "--report", str(report)),
        environment=environment(folder / "driver") | {"PYFT_CUT_EVERY": "1"} | variables,
    )
    try:
        assert job.wait(120) == 0, job.errors()
        return lines(job), json.loads(report.read_text()), job.errors()
    finally:
        job.kill_everything()


def test_what_has_not_changed_stays_on_the_device(tmp_path: Path) -> None:
    stores = {}
    for name, variables in {"device": {}, "host": {"PYFT_DEVICE_DIGEST": "0"}}.items():
        got, report, said = train(tmp_path / name, **variables)
        assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
        assert "to hash it" not in said
        stores[name] = report["channels"][0]["store"]
        assert stores[name]["snapshots"] > 0
        assert stores[name]["cancelled"] == 0
    device, host = stores["device"], stores["host"]
    assert device["unchanged_bytes"] > 0
    assert device["fetched_bytes"] == device["copied_bytes"] < device["hashed_bytes"]
    assert device["hashed_bytes"] == device["unchanged_bytes"] + device["copied_bytes"]
    assert host["fetched_bytes"] == host["hashed_bytes"] > device["fetched_bytes"]


def test_a_killed_server_comes_back(tmp_path: Path) -> None:
    got, report, said = train(tmp_path, "--inject", KILL)
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    recovery = report["recovery"]
    assert (recovery["recovered"], recovery["verdict"]) == (1, "exact"), said
    assert recovery["faults"][0]["restored_bytes"] > 0
    store = report["channels"][0]["store"]
    assert store["fetched_bytes"] == store["copied_bytes"] < store["hashed_bytes"]


def test_so_it_does_with_digests_of_the_host(tmp_path: Path) -> None:
    got, report, said = train(tmp_path, "--inject", KILL, PYFT_DEVICE_DIGEST="0")
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert (report["recovery"]["recovered"], report["recovery"]["verdict"]) == (1, "exact"), said


@pytest.mark.parametrize(
    ("request_", "fault", "variables"),
    [("error,code=700", "context-lost", {}), ("hang", "hang", {"PYFT_HANG_S": "4"})],
)
def test_the_kernel_fails(
    tmp_path: Path, request_: str, fault: str, variables: dict[str, str]
) -> None:
    """At the third cut: an error of the device like any other."""
    requested = f"{request_},kernel=pyft_nh_digest,at=3"
    got, report, said = train(tmp_path, SOFTGPU_FAULT=requested, **variables)
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert [one["fault"] for one in report["recovery"]["faults"]] == [fault], said
    assert report["recovery"]["verdict"] == "exact", said
