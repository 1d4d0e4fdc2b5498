"""Servers and GPUs die in the middle of trainings: no script notices anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from recovery_run import STEPS, check, command, run, undisturbed

CASES = str(Path(__file__).parent / "programs" / "recovery_cases.py")


def test_context_is_lost(tmp_path: Path) -> None:
    report = check(tmp_path, ("sticky,rank=0,step=2",))
    assert report["faults"][0]["gpu_to"] == report["faults"][0]["gpu_from"]


def test_gpu_is_lost(tmp_path: Path) -> None:
    report = check(tmp_path, ("gpu-lost,rank=0,step=2",), spares=1)
    assert report["faults"][0]["gpu_to"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_two_ranks_dies(tmp_path: Path, rank: int) -> None:
    arguments = (*STEPS, "--parallel", "ddp")
    fault = f"server-kill,rank={rank},step=2,call=90"
    check(tmp_path, (fault,), ranks=2, arguments=arguments, torchrun=True)


def test_both_ranks_die_in_one_step(tmp_path: Path) -> None:
    faults = ("server-kill,rank=0,step=2,call=60", "server-kill,rank=1,step=2,call=75")
    check(tmp_path, faults, ranks=2, arguments=(*STEPS, "--parallel", "ddp"))


@pytest.mark.long
def test_four_ranks_die_one_after_the_other(tmp_path: Path) -> None:
    """Each of them while others are being replaced; the first that comes back is alone."""
    calls = {0: 43, 3: 115, 1: 93, 2: 92}
    faults = tuple(f"server-kill,rank={rank},step=2,call={call}" for rank, call in calls.items())
    check(tmp_path, faults, ranks=4, arguments=(*STEPS, "--parallel", "ddp"))


def test_a_rank_of_sharded_training_dies(tmp_path: Path) -> None:
    arguments = (*STEPS, "--parallel", "fsdp")
    check(tmp_path, ("server-kill,rank=1,step=2,call=70",), ranks=2, arguments=arguments)


# Programs that are hard to repeat; the other cases: recovery_cases.py --help.
@pytest.mark.parametrize("case", ["offload", "scaler", "record_stream", "graph"])
def test_hard_cases(tmp_path: Path, case: str) -> None:
    arguments = ("--case", case)
    check(tmp_path, ("server-kill,rank=0,step=1,call=5",), program=CASES, arguments=arguments)


def test_plans_of_transforms_are_made_again(tmp_path: Path) -> None:
    """Some are older than the cut, some are made and used between it and the death."""
    faults = ("server-kill,rank=0,step=1,call=60", "server-kill,rank=0,step=2,call=20,server=2")
    check(tmp_path, faults, program=CASES, arguments=("--case", "sound"))


@pytest.mark.parametrize("seed", ["3", "5"])
def test_streams_that_are_as_unfair_as_they_may_be(tmp_path: Path, seed: str) -> None:
    arguments = ("--case", "record_stream")
    fault = "server-kill,rank=0,step=1,call=120"
    check(tmp_path, (fault,), program=CASES, arguments=arguments, SOFTGPU_STREAM_SEED=seed)


def test_without_observed_marks_such_a_replay_is_wrong(tmp_path: Path) -> None:
    """What the test before relies on: one that ignores the marks reuses blocks too early."""
    arguments = ("--case", "record_stream")
    options = ("--gpus", "soft:1", "--inject", "server-kill,rank=0,step=1,call=120")
    wanted = undisturbed(CASES, 1, arguments)
    for seed in range(3, 12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        env = {"SOFTGPU_STREAM_SEED": str(seed), "PYFT_IGNORE_OBSERVED": "1"}
        try:
            got, _ = run(folder, options, command(CASES, 1, arguments), **env)
        except AssertionError:
            continue  # it has not ended well, which says nothing of the marks
        if tuple(got) != wanted:
            return
    raise AssertionError("every replay was right")


def test_all_kinds_of_collectives(tmp_path: Path) -> None:
    fault = "server-kill,rank=1,step=1,call=18"
    check(tmp_path, (fault,), ranks=2, program=CASES, arguments=("--case", "collectives"))
