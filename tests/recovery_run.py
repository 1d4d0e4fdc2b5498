"""Run trainings with faults and compare them with the same without.

The oracle is bitwise: losses and parameters equal those of a run without faults.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from job import TRAIN, Job

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


def replays_together(environment: Mapping[str, str]) -> bool:
    """Say whether a fault of one rank lets all others go back as well."""
    return environment.get("PYFT_REPLAY") == "all"


def check_deaths(
    report: dict, *possible: Sequence[int], others: int = 0, compared: bool = True
) -> None:
    """Fail unless exactly these ranks' servers were killed, so often, and were recovered.

    Of several lists one has to hold. With each of them as many as `others` may be ended, since all
    go back together. Unless `compared`, replicas may once have seemed to differ.
    """
    faults = report["faults"]
    killed = [fault for fault in faults if fault["fault"] == "server-killed"]
    assert sorted(fault["rank"] for fault in killed) in map(sorted, possible), report
    assert {fault["evidence"] for fault in killed} == {"killed by signal [9 SIGKILL]"}, report
    doubted = [fault for fault in faults if fault["fault"] == "replica"]
    assert not doubted or (not compared and len(doubted) <= 2), report
    ended = [fault for fault in faults if fault not in killed and fault not in doubted]
    assert {fault["fault"] for fault in ended} <= {"peer-failed"}, report
    assert len(ended) <= others * len(killed), report
    # One that another fault of the same rank has met did not come to its end.
    last = {fault["rank"]: fault for fault in faults}
    assert {fault["outcome"] for fault in last.values()} == {"recovered"}, report
    met = [fault for fault in faults if fault is not last[fault["rank"]]]
    assert {fault["outcome"] for fault in met} <= {"recovered", "failed again"}, report
    recovered = sum(fault["outcome"] == "recovered" for fault in faults)
    assert report["recovered"] == recovered >= len(last), report
    assert report["given_up"] == 0, report


def check(
    folder: Path,
    faults: tuple[str, ...],
    *,
    ranks: int = 1,
    spares: int = 0,
    program: str = TRAIN,
    arguments: tuple[str, ...] = STEPS,
    recovered: int | None = None,
    deaths: Sequence[int] | None = None,
    either: Collection[Sequence[int]] = (),
    compared: bool = True,
    protect: str = "snapshot",
    torchrun: bool = False,
    meanwhile: Callable[[Job], None] = lambda job: None,
    **environment: str,
) -> dict:
    """Run with the faults; compare with the run without; return the report.

    All faults must have happened, or the exit code is not 0, and each is recovered. A fault that meets
    a recovery ends it and makes another one. Where that can be, `deaths` has the rank of each server
    that dies: no more and no fewer die, and the last of each rank is recovered. `either` has several
    such lists, where chance decides who comes first.
    """
    options = ["--gpus", f"soft:{ranks}", "--protect", protect, "--spares", str(spares)]
    for fault in faults:
        options += ["--inject", fault]
    argv = command(program, ranks, arguments, torchrun)
    got, report = run(folder, tuple(options), argv, meanwhile, **environment)
    assert tuple(got) == undisturbed(program, ranks, arguments)
    assert report["not_injected"] == []
    if possible := either or ([] if deaths is None else [deaths]):
        others = ranks - 1 if replays_together(environment) else 0
        check_deaths(report, *possible, others=others, compared=compared)
    else:
        assert report["recovered"] == (len(faults) if recovered is None else recovered), report
    assert report["verdict"] == "exact", report
    return report
