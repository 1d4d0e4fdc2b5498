"""Agents are killed in the middle of trainings: no script notices anything."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from job import TRAIN, Job, wait_for
from recovery_run import check, lines

DDP = ("--steps", "6", "--parallel", "ddp")


def live(job: Job, rank: int) -> dict:
    """Return what is known of a rank that lives."""
    (found,) = [entry for entry in job.meta()["live"] if entry["rank"] == rank]
    return found


def wait_step(job: Job, step: int) -> None:
    """Wait until a step is done."""
    wait_for(lambda: f"step={step} " in job.output(), 120, f"step {step}: {job.errors()}")


def test_the_agent_dies_in_a_quiet_step_and_a_server_after_it(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_step(job, 1)
        before = [live(job, rank)["server_pid"] for rank in (0, 1)]
        job.kill_agent()
        assert [live(job, rank)["server_pid"] for rank in (0, 1)] == before
        os.kill(before[1], signal.SIGKILL)

    report = check(tmp_path, (), ranks=2, arguments=DDP, recovered=1, meanwhile=meanwhile)
    assert report["agent_restarts"] == 1
    assert [fault["epoch_to"] for fault in report["faults"]] == [3]


def test_the_agent_dies_while_a_server_takes_over(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        job.wait_attached()
        wait_step(job, 1)
        wait_for(lambda: live(job, 1)["epoch"] == 3, 120, f"a new server: {job.errors()}")
        os.kill(live(job, 1)["server_pid"], signal.SIGSTOP)  # before it has joined
        job.kill_agent()

    fault = "server-kill,rank=1,step=2,call=90"
    report = check(tmp_path, (fault,), ranks=2, arguments=DDP, meanwhile=meanwhile)
    assert [fault["epoch_to"] for fault in report["faults"]] == [4], "one fault, begun again"


def test_servers_die_while_no_agent_lives(tmp_path: Path) -> None:
    def meanwhile(job: Job) -> None:
        wait_step(job, 1)
        with job.without_agent():
            for rank in (0, 1):
                os.kill(live(job, rank)["server_pid"], signal.SIGKILL)

    report = check(tmp_path, (), ranks=2, arguments=DDP, recovered=2, meanwhile=meanwhile)
    assert {fault["fault"] for fault in report["faults"]} == {"server-killed"}


@pytest.mark.long
def test_programs_and_operators_after_an_adoption(tmp_path: Path) -> None:
    train = f"{sys.executable} {TRAIN} --steps 60"
    options = ("--gpus", "soft:1", "--spares", "1")
    job = Job(tmp_path, ("sh", "-c", f"{train} && {train}"), options=options)
    try:
        wait_step(job, 1)
        job.kill_agent()
        assert " serving, heartbeat " in job.order("status")
        job.order("inject", "--rank", "0", "--fault", "sticky")
        wait_for(lambda: "(fault [context-lost]" in job.errors(), 60, "it is repaired")
        job.order("drain", "--gpu", "0")
        job.order("spare", "--gpu", "3")
        assert job.wait(180) == 0, job.errors()
        job.assert_nothing_left()
        found = lines(job)
        assert len(found) == 2 * 61
        assert found[::2] == found[1::2], "the second program, which came later, has the same"
        classes = [fault["fault"] for fault in job.meta()["recovery"]["faults"]]
        assert classes[0] == "context-lost"
        assert set(classes[1:]) <= {"ordered"}
    finally:
        job.kill_everything()
