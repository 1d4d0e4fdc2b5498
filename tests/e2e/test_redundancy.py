"""A product that computes wrongly is noticed by its second execution, named, and undone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job import TRAIN, Job
from recovery_run import command, run, undisturbed

ARGUMENTS = ("--steps", "4", "--channels", "32", "--block", "16", "--batch", "2", "--recompute")
TOLD = str(Path(__file__).with_name("programs") / "told_early.py")
CHECKED = ("--dmr", "checkpoint")
# A step has 33 products; this is one of the second block, in the forward pass of step 3.
UPSET = "upset,kernel=cublas,bit=28,seed=3,device=0,in=73"


def channel(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())["channels"][0]


def test_a_product_of_the_forward_pass_is_executed_again(tmp_path: Path) -> None:
    line = ("--gpus", "soft:1", *CHECKED)
    argv = command(TRAIN, 1, ARGUMENTS)
    got, found = run(tmp_path, line, argv, SOFTGPU_FAULT=UPSET, PYFT_CUT_EVERY="1")
    errors = (tmp_path / "stderr.txt").read_text()
    assert "upset of the product" in errors, errors
    assert "mismatch behind cut [2], product [cublasLtMatmul] of [128 x 32]" in errors, errors
    assert [(f["rank"], f["fault"], f["outcome"]) for f in found["faults"]][0] == (
        0,
        "mismatch",
        "recovered",
    ), found
    assert tuple(got) == undisturbed(TRAIN, 1, ARGUMENTS)
    assert "has other bits at entry" in found["faults"][0]["evidence"]
    assert found["faults"][0]["culprit"] == "first"
    assert [(one["gpu"], one["left"]) for one in found["strikes"]] == [(0, False)]
    covered = channel(tmp_path)["dmr"]
    assert covered["mismatches"] == 1
    assert covered["pairs"] > 20
    assert covered["single"] > 0


def test_records_may_hold_what_is_wrong(tmp_path: Path) -> None:
    line = ("--gpus", "soft:2", *CHECKED)
    argv = command(TRAIN, 2, (*ARGUMENTS, "--parallel", "ddp"))
    upset = UPSET.replace("device=0", "device=1")
    environment = {"SOFTGPU_FAULT": upset, "PYFT_REPLAY": "one"}
    job = Job(tmp_path, argv, options=line, environment=environment)
    try:
        assert job.wait(120) != 0, "the job has gone on with what is wrong"
        assert "has other bits at entry" in job.errors(), job.errors()
    finally:
        job.kill_everything()


def test_all_ranks_go_back_together(tmp_path: Path) -> None:
    arguments = (*ARGUMENTS, "--parallel", "ddp")
    line = ("--gpus", "soft:2", *CHECKED)
    environment = {
        "SOFTGPU_FAULT": UPSET.replace("device=0", "device=1"),
        "PYFT_CUT_EVERY": "1",
    }
    got, found = run(tmp_path, line, command(TRAIN, 2, arguments), **environment)
    assert tuple(got) == undisturbed(TRAIN, 2, arguments)
    assert sorted((f["rank"], f["fault"], f["outcome"]) for f in found["faults"]) == [
        (0, "peer-failed", "recovered"),
        (1, "mismatch", "recovered"),
    ]


def told(folder: Path) -> list[str]:
    out = (folder / "stdout.txt").read_text().splitlines()
    return [line for line in out if line.startswith("told=")]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_the_program_was_told_meanwhile(tmp_path: Path, ranks: int) -> None:
    arguments = (*ARGUMENTS, "--parallel", "ddp")
    upset = UPSET.replace("device=0", f"device={ranks - 1}")
    line = ("--gpus", f"soft:{ranks}", *CHECKED)
    environment = {"SOFTGPU_FAULT": upset, "PYFT_CUT_EVERY": "1"}
    got, found = run(tmp_path, line, command(TOLD, ranks, arguments), **environment)
    assert tuple(got) == undisturbed(TOLD, ranks, arguments)
    assert {fault["verdict"] for fault in found["faults"]} == {"corrected"}
    assert {fault["outcome"] for fault in found["faults"]} == {"recovered"}
    of_steps = [told(tmp_path)[step * ranks : (step + 1) * ranks] for step in range(4)]
    assert all(len(set(step)) == 1 for step in of_steps), of_steps


def test_a_gpu_that_computes_wrongly_is_left(tmp_path: Path) -> None:
    line = ("--gpus", "soft:1", "--spares", "1", *CHECKED)
    environment = {"SOFTGPU_FAULT": UPSET, "PYFT_CUT_EVERY": "1", "PYFT_DMR_STRIKES": "1"}
    got, found = run(tmp_path, line, command(TRAIN, 1, ARGUMENTS), **environment)
    assert tuple(got) == undisturbed(TRAIN, 1, ARGUMENTS)
    (fault,) = found["faults"]
    assert (fault["fault"], fault["gpu_from"], fault["gpu_to"]) == ("mismatch", 0, 1)
    assert fault["culprit"] == "first"
    assert [(one["gpu"], one["left"]) for one in found["strikes"]] == [(0, True)]
    errors = (tmp_path / "stderr.txt").read_text()
    assert "which had differed: the first execution was wrong" in errors
    assert "GPU [0] has computed wrongly [1] times; it is not used again" in errors
