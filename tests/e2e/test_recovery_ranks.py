"""Servers and GPUs die in trainings of several ranks: no script notices anything.

The oracle is bitwise: losses and parameters equal those of a run without faults.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from job import TRAIN, Job

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
STEPS = ("--steps", "4")


def command(program: str, ranks: int, arguments: tuple[str, ...]) -> list[str]:
    """Return the command line of a training on so many ranks."""
    if ranks == 1:
        return [sys.executable, program, *arguments]
    return [TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), program, *arguments]


def lines(job: Job) -> list[str]:
    """Return what has to be equal: losses and hashes."""
    return sorted(
        line for line in job.output().splitlines() if "loss=" in line or "sha256=" in line
    )


def run(folder: Path, options: tuple[str, ...], argv: list[str]) -> tuple[list[str], dict]:
    """Return the results of a run that must end well, and its report."""
    report = folder / "report.json"
    job = Job(folder, argv, options=(*options, "--report", str(report)))
    try:
        assert job.wait(180) == 0, job.errors()
        job.assert_nothing_left()
        return lines(job), json.loads(report.read_text())["recovery"]
    finally:
        job.kill_everything()


@cache
def undisturbed(program: str, ranks: int, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the results without a fault and without protection."""
    with TemporaryDirectory() as folder:
        options = ("--gpus", f"soft:{ranks}", "--protect", "none")
        got, _ = run(Path(folder), options, command(program, ranks, arguments))
    assert len(got) > ranks
    return tuple(got)


def check(
    folder: Path,
    faults: tuple[str, ...],
    *,
    ranks: int = 1,
    spares: int = 0,
    program: str = TRAIN,
    arguments: tuple[str, ...] = STEPS,
    recovered: int | None = None,
) -> dict:
    """Run with the faults; compare with the run without; return the report."""
    options = ["--gpus", f"soft:{ranks}", "--protect", "capture", "--spares", str(spares)]
    for fault in faults:
        options += ["--inject", fault]
    got, report = run(folder, tuple(options), command(program, ranks, arguments))
    assert tuple(got) == undisturbed(program, ranks, arguments)
    assert report["recovered"] == (len(faults) if recovered is None else recovered), report
    assert report["verdict"] == "exact", report
    return report


def test_context_is_lost(tmp_path: Path) -> None:
    report = check(tmp_path, ("sticky,rank=0,step=2",))
    assert report["faults"][0]["gpu_to"] == report["faults"][0]["gpu_from"]


def test_gpu_is_lost(tmp_path: Path) -> None:
    report = check(tmp_path, ("gpu-lost,rank=0,step=2",), spares=1)
    assert report["faults"][0]["gpu_to"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_two_ranks_dies(tmp_path: Path, rank: int) -> None:
    arguments = (*STEPS, "--parallel", "ddp")
    check(tmp_path, (f"server-kill,rank={rank},step=2,call=90",), ranks=2, arguments=arguments)


def test_both_ranks_die_in_one_step(tmp_path: Path) -> None:
    faults = ("server-kill,rank=0,step=2,call=60", "server-kill,rank=1,step=2,call=75")
    check(tmp_path, faults, ranks=2, arguments=(*STEPS, "--parallel", "ddp"))


def test_a_rank_of_sharded_training_dies(tmp_path: Path) -> None:
    arguments = (*STEPS, "--parallel", "fsdp")
    check(tmp_path, ("server-kill,rank=1,step=2,call=70",), ranks=2, arguments=arguments)
