"""Run trainings with faults and compare them with the same without.

The oracle is bitwise: losses and parameters equal those of a run without faults.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from job import TRAIN, Job

from pyft.recovery.inject import parse

RANKS = str(Path(__file__).with_name("ranks.py"))
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
STEPS = ("--steps", "4")


def command(
    program: str, ranks: int, arguments: tuple[str, ...], torchrun: bool = False
) -> list[str]:
    """Return the command line of a training on so many ranks."""
    if torchrun:
        return [TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), program, *arguments]
    launcher = [RANKS, str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, program, *arguments]


def lines(job: Job) -> list[str]:
    """Return what has to be equal: losses and hashes."""
    return sorted(
        line for line in job.output().splitlines() if "loss=" in line or "sha256=" in line
    )


def run(
    folder: Path,
    options: tuple[str, ...],
    argv: list[str],
    meanwhile: Callable[[Job], None] = lambda job: None,
    **environment: str,
) -> tuple[list[str], dict]:
    """Return the results of a run that must end well, and its report; `meanwhile` disturbs it."""
    report = folder / "report.json"
    job = Job(folder, argv, options=(*options, "--report", str(report)), environment=environment)
    try:
        meanwhile(job)
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
    dead: set[int] | None = None,
    protect: str = "snapshot",
    torchrun: bool = False,
    meanwhile: Callable[[Job], None] = lambda job: None,
    **environment: str,
) -> dict:
    """Run with the faults; compare with the run without; return the report.

    All faults must have happened, or the exit code is not 0. A fault that meets a recovery ends it and
    makes another one: with `recovered` -1 the ranks are compared that had any, and that work again.
    These are those of the faults, or `dead`.
    """
    options = ["--gpus", f"soft:{ranks}", "--protect", protect, "--spares", str(spares)]
    for fault in faults:
        options += ["--inject", fault]
    argv = command(program, ranks, arguments, torchrun)
    got, report = run(folder, tuple(options), argv, meanwhile, **environment)
    assert tuple(got) == undisturbed(program, ranks, arguments)
    assert report["not_injected"] == []
    if recovered == -1:
        ranks = {parse(fault).rank for fault in faults} if dead is None else dead
        last = {fault["rank"]: fault["outcome"] for fault in report["faults"]}
        assert set(last) == ranks, report
        assert set(last.values()) == {"recovered"}, report
    else:
        assert report["recovered"] == (len(faults) if recovered is None else recovered), report
    assert report["verdict"] == "exact", report
    return report
