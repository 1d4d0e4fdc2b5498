"""Deaths in programs that are hard to repeat on several ranks; `make kill-sweep` has all of them, and more places."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from job import Job, wait_for
from recovery_run import STEPS, check

PROGRAMS = Path(__file__).parent / "programs"
CASES, PARALLEL, HOST = (
    str(PROGRAMS / f"{name}_cases.py") for name in ("recovery", "parallel", "host")
)


def live(job: Job) -> dict[int, dict]:
    """Return what is known of the ranks that live."""
    return {entry["rank"]: entry for entry in job.meta()["live"]}


def test_deaths_from_the_optimizer_to_the_next_forward(tmp_path: Path) -> None:
    """An average of the weights, running statistics and gradients in buckets change meanwhile."""
    places = ("step=2,call=131", "step=1,call=1,server=2", "step=1,call=132,server=3")
    faults = tuple(f"server-kill,rank=1,{place}" for place in places)
    arguments = ("--case", "ema", "--steps", "6")
    check(tmp_path, faults, ranks=2, program=CASES, arguments=arguments, deaths=[1, 1, 1])


def test_a_death_between_a_call_and_its_answer(tmp_path: Path) -> None:
    """The next server executes the call again and gives the answer; answers that there are stay."""
    check(tmp_path, (), deaths=[0], PYFT_FAULT="server.before_answer:40")


def test_deaths_among_dense_solvers(tmp_path: Path) -> None:
    """Shampoo decomposes matrices in each step; the steps come back by restoring and by replay."""
    faults = ("server-kill,rank=0,step=2,call=20", "server-kill,rank=0,step=1,call=25,server=2")
    check(
        tmp_path,
        faults,
        program=CASES,
        arguments=("--case", "shampoo", "--steps", "6"),
        deaths=[0, 0],
    )


@pytest.mark.long
def test_all_servers_of_sharded_training_die_at_once(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_for(lambda: "step=2 " in job.output(), 120, f"two steps: {job.errors()}")
        for entry in live(job).values():
            os.kill(entry["server_pid"], signal.SIGKILL)

    arguments = ("--case", "fsdp", "--steps", "8")
    program = {"program": PARALLEL, "arguments": arguments, "meanwhile": meanwhile}
    report = check(tmp_path, (), ranks=4, recovered=4, **program)
    assert {fault["rank"] for fault in report["faults"]} == {0, 1, 2, 3}


@pytest.mark.long
def test_ranks_that_do_different_things(tmp_path: Path) -> None:
    """A receive is posted before a cut and comes true behind it; only one rank has an optimizer."""
    faults = ("server-kill,rank=0,step=2,call=31", "server-kill,rank=0,step=0,call=9,server=2")
    program = {"program": PARALLEL, "arguments": ("--case", "ahead")}
    check(tmp_path, faults, ranks=2, deaths=[0, 0], **program)


def test_the_rank_where_the_others_meet_dies_before_they_come(tmp_path: Path) -> None:
    """It has given away the unique id, which names a port of the dead server."""
    arguments = (*STEPS, "--parallel", "ddp")
    check(tmp_path, ("server-kill,rank=0,step=0,call=98",), ranks=2, arguments=arguments)


def test_a_state_is_saved_while_servers_die(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        for step in (1, 3):
            wait_for(lambda step=step: f"step={step} " in job.output(), 120, f"it starts {step}")
            wait_for(lambda: live(job), 20, "it has a server")
            os.kill(live(job)[0]["server_pid"], signal.SIGKILL)

    program = {"program": HOST, "arguments": ("--case", "save", "--steps", "6")}
    check(tmp_path, (), recovered=2, meanwhile=meanwhile, **program)


def test_a_spare_that_comes_later(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_for(lambda: "waiting for `pyft spare" in job.errors(), 120, "no GPU is left")
        job.order("spare", "--gpu", "3")

    report = check(tmp_path, ("gpu-lost,rank=0,step=2",), meanwhile=meanwhile)
    assert report["faults"][0]["gpu_to"] == 3
