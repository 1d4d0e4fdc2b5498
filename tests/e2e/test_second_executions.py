"""What the program executes once is executed again by the server, and what differs is undone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from job import TRAIN, Job
from recovery_run import command, run, undisturbed

SMALL = ("--steps", "4", "--channels", "32", "--block", "16", "--batch", "2")
AGAIN = re.compile(r"mismatch behind cut \[(\d+)\], .* than when it was executed again")
# Products of a step without activation checkpointing; each is executed once.
PRODUCTS = 27


def covered(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())["channels"][0]["dmr"]


def undone(tmp_path: Path, upset: str) -> tuple[dict, str]:
    """Train with an upset that is seen and undone; return the coverage, and what was said."""
    line = ("--gpus", "soft:1", "--dmr", "full")
    got, found = run(
        tmp_path, line, command(TRAIN, 1, SMALL), SOFTGPU_FAULT=upset, PYFT_CUT_EVERY="1"
    )
    errors = (tmp_path / "stderr.txt").read_text()
    assert AGAIN.search(errors), errors
    assert tuple(got) == undisturbed(TRAIN, 1, SMALL)
    (fault,) = found["faults"]
    assert (fault["fault"], fault["outcome"], fault["culprit"]) == (
        "mismatch",
        "recovered",
        "first",
    )
    dmr = covered(tmp_path)
    assert dmr["mismatches"] == 1
    assert dmr["kernels"] == 0, dmr
    return dmr, errors


@pytest.mark.parametrize("place", [2, 14, 23])
def test_a_product_that_is_in_no_pair(tmp_path: Path, place: int) -> None:
    upset = f"upset,kernel=cublas,bit=28,seed=3,device=0,in={2 * PRODUCTS + place}"
    dmr, errors = undone(tmp_path, upset)
    assert "upset of the product" in errors, errors
    assert dmr["single"] == dmr["opaque"] == dmr["refused"] == dmr["no_room"] == 0, dmr


def test_pairs_are_not_executed_a_third_time(tmp_path: Path) -> None:
    line = ("--gpus", "soft:1", "--dmr", "full")
    got, _ = run(tmp_path, line, command(TRAIN, 1, (*SMALL, "--recompute")))
    assert tuple(got) == undisturbed(TRAIN, 1, (*SMALL, "--recompute"))
    dmr = covered(tmp_path)
    assert dmr["covered"] == dmr["products"]
    assert dmr["period"] == 1
    first_step = dmr["products"] // 4  # it is not known yet which will be in pairs
    once = dmr["products"] - 2 * dmr["pairs"]
    assert once <= dmr["again"] <= once + first_step, dmr


def test_a_fault_that_lasts_is_seen_within_the_period(tmp_path: Path) -> None:
    steps = ("--steps", "30", *SMALL[2:])
    stuck = f"stuck,sm=0,unit=fma,lane=1,bit=20,to=1,device=0,kernel=cublas,in={6 * PRODUCTS}"
    job = Job(
        tmp_path,
        command(TRAIN, 1, steps),
        options=("--gpus", "soft:1", "--dmr", "idle", "--report", str(tmp_path / "report.json")),
        environment={"SOFTGPU_FAULT": stuck, "PYFT_DMR_ACTION": "report"},
    )
    try:
        assert job.wait(120) == 0, job.errors()
    finally:
        job.kill_everything()
    dmr = covered(tmp_path)
    seen = AGAIN.findall(job.errors())
    assert seen, (dmr, job.errors())
    assert 0 < dmr["period"] < 30, dmr
    assert int(seen[0]) <= 6 + 1 + dmr["period"], (seen[0], dmr)
    assert dmr["again"] < dmr["products"]
    assert dmr["later"] + dmr["expired"] > 0, dmr


def test_blocks_on_the_same_processors_err_alike(tmp_path: Path) -> None:
    stuck = f"stuck,sm=0,unit=fma,lane=1,bit=20,to=1,device=0,kernel=cublas,in={PRODUCTS}"
    line = ("--gpus", "soft:1", "--dmr", "full", "--dmr-where", "same")
    run(tmp_path, line, command(TRAIN, 1, SMALL), SOFTGPU_FAULT=stuck)
    dmr = covered(tmp_path)
    assert dmr["again"] == dmr["products"]
    assert dmr["mismatches"] == 0, "both executions have the stuck bit"


def test_all_ranks_go_back_together(tmp_path: Path) -> None:
    arguments = (*SMALL, "--parallel", "ddp")
    upset = f"upset,kernel=cublas,bit=28,seed=3,device=1,in={2 * PRODUCTS + 14}"
    line = ("--gpus", "soft:2", "--dmr", "full")
    got, found = run(
        tmp_path, line, command(TRAIN, 2, arguments), SOFTGPU_FAULT=upset, PYFT_CUT_EVERY="1"
    )
    assert tuple(got) == undisturbed(TRAIN, 2, arguments)
    assert sorted((f["rank"], f["fault"], f["outcome"]) for f in found["faults"]) == [
        (0, "peer-failed", "recovered"),
        (1, "mismatch", "recovered"),
    ]


@pytest.mark.parametrize("mode", ["idle", "full"])
def test_a_program_without_faults_has_no_mismatch(tmp_path: Path, mode: str) -> None:
    arguments = (*SMALL, "--dropout", "0.1", "--dtype", "bf16")
    got, found = run(tmp_path, ("--gpus", "soft:1", "--dmr", mode), command(TRAIN, 1, arguments))
    assert tuple(got) == undisturbed(TRAIN, 1, arguments)
    assert not found["faults"]
    dmr = covered(tmp_path)
    assert dmr["again"] > 0
    assert dmr["mismatches"] == 0


# Kernels of a step that are no products: in which launch of the second step, and what is hit.
KERNELS = {
    "gelu": "kernel=18GeluCUDAKernel,in=3,op=FMUL,nth=40,lane=26,mask=0x00400000",
    "norm": "kernel=vectorized_layer_norm,in=7,op=FFMA,nth=3,lane=3,mask=0x00400000",
    "optimizer": "kernel=LerpFunctor,in=2,op=FFMA,nth=5,lane=3,mask=0x3f000000",
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_is_no_product(tmp_path: Path, kernel: str) -> None:
    upset = f"upset,{KERNELS[kernel]},reg=0,device=0"
    dmr, errors = undone(tmp_path, upset)
    assert "softgpu: device [0]: upset of" in errors, errors
    assert dmr["kernels_again"] > dmr["products"]


@pytest.mark.parametrize("where", ["permuted", "same"])
def test_a_stuck_bit_of_one_processor_shows_in_a_kernel(tmp_path: Path, where: str) -> None:
    stuck = "stuck,sm=0,unit=mufu,lane=1,bit=20,to=1,device=0,kernel=vectorized_layer_norm,in=7"
    job = Job(
        tmp_path,
        command(TRAIN, 1, SMALL),
        options=(
            *("--gpus", "soft:1", "--dmr", "full", "--dmr-where", where),
            *("--report", str(tmp_path / "report.json")),
        ),
        environment={"SOFTGPU_FAULT": stuck, "PYFT_DMR_ACTION": "report"},
    )
    try:
        assert job.wait(180) == 0, job.errors()
    finally:
        job.kill_everything()
    assert "is stuck, first seen in [MUFU" in job.errors(), job.errors()
    dmr = covered(tmp_path)
    assert dmr["kernels_again"] > 0
    if where == "permuted":
        assert AGAIN.search(job.errors()), (dmr, job.errors())
        assert dmr["mismatches"] > 0
    else:
        assert dmr["mismatches"] == 0, "both executions have the stuck bit"


# Embeddings, dropout, statistics of batches, and an optimizer in many launches.
CLEAN = {
    "gpt": (TRAIN, (*SMALL, "--dropout", "0.1", "--recompute")),
    "cnn": (TRAIN.replace("gpt", "cnn"), ("--steps", "3")),
}


@pytest.mark.parametrize("program", CLEAN)
def test_kernels_without_faults_have_no_mismatch(tmp_path: Path, program: str) -> None:
    path, arguments = CLEAN[program]
    line = ("--gpus", "soft:1", "--dmr", "full")
    got, found = run(tmp_path, line, command(path, 1, arguments))
    assert tuple(got) == undisturbed(path, 1, arguments)
    assert not found["faults"]
    dmr = covered(tmp_path)
    assert dmr["mismatches"] == 0
    assert dmr["kernels_again"] > 100
    assert dmr["kernels"] == 0, dmr


def test_atomics_whose_order_is_drawn_are_not_compared(tmp_path: Path) -> None:
    line = ("--gpus", "soft:1", "--dmr", "full")
    program = str(Path(__file__).with_name("programs") / "nondeterministic.py")
    _, found = run(tmp_path, line, command(program, 1, ("--read", "total")), SOFTGPU_NOISE="7")
    assert not found["faults"]
    dmr = covered(tmp_path)
    assert dmr["mismatches"] == 0
    assert dmr["kernels_order"] > 0, dmr
    assert dmr["kernels_again"] > 10 * dmr["kernels_order"]
