"""A rank's program ends while another rank counts on it: an error in seconds, as without pyft."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from job import Job, wait_for
from recovery_run import RANKS

PROGRAM = str(Path(__file__).with_name("programs") / "ended.py")
# The call that waits raises. Otherwise PyTorch's watchdog ends the process, a minute later.
TORCH = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
PATIENCE_S = 60  # of a loaded machine; flexccl's own deadline is 10 minutes


def start(folder: Path, *arguments: str, options: tuple[str, ...] = (), **more: str) -> Job:
    command = [sys.executable, RANKS, "2", PROGRAM, *arguments]
    options = ("--gpus", "soft:2", *options)
    return Job(folder, command, options=options, environment=TORCH | more)


def check(job: Job, sentence: str = "rank [1] has ended") -> None:
    """The job ends with an error, and one sentence says who is missing."""
    try:
        assert job.wait(PATIENCE_S) != 0
        assert sentence in job.errors(), job.errors()
        job.assert_nothing_left()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("end", ["exit", "raise", "kill"])
def test_a_collective(tmp_path: Path, end: str) -> None:
    check(start(tmp_path, "collective", end, RANKS_PATIENT="1"))


@pytest.mark.parametrize("options", [("--protect", "jit"), ("--protect", "none")])
def test_a_collective_however_protected(tmp_path: Path, options: tuple[str, ...]) -> None:
    none = "none" in options
    sentence = "rank [1]: " if none else "rank [1] has ended"  # nobody is waited for at all
    check(start(tmp_path, "collective", "exit", options=options), sentence)


@pytest.mark.parametrize("options", [("--direct",), ()])
def test_no_value_of_a_failed_sum(
    jobs: list[Job], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The script waits until PyTorch's watchdog, as it is by default, ends it."""
    environment = {"RANKS_PATIENT": "1", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500"}
    command = [sys.executable, RANKS, "2", PROGRAM, "value", "exit"]
    gpus = ("--gpus", "soft:2")
    jobs.append(Job(tmp_path, command, options=(*gpus, *options), environment=environment))
    assert jobs[0].wait(PATIENCE_S) == 1, jobs[0].errors()
    assert "waits for its sum" in jobs[0].output()
    assert "got" not in jobs[0].output()
    assert "watchdog thread terminated with exception: NCCL error" in jobs[0].errors()
    jobs[0].assert_nothing_left()


def test_a_collective_where_all_replay(tmp_path: Path) -> None:
    check(start(tmp_path, "collective", "exit", PYFT_REPLAY="all"))


def test_a_message(tmp_path: Path) -> None:
    job = start(tmp_path, "receive", "exit")
    check(job)
    assert "the first message is there" in job.output()


def test_a_communicator_whose_maker_has_ended(tmp_path: Path) -> None:
    check(
        start(tmp_path, "meet", "exit", str(tmp_path)),
        "the program that made the unique id has ended",
    )


def test_an_additional_forward_of_one_rank(tmp_path: Path) -> None:
    job = start(tmp_path, "sharded", "exit")
    check(job)
    assert job.output().count("trained") == 2


def second(job: Job) -> int:
    """Return the process of the rank that ends when it is asked to."""
    wait_for(lambda: "pid " in job.output(), PATIENCE_S, "the second rank waits")
    return int(job.output().partition("pid ")[2].split()[0])


def test_the_next_agent_tells(tmp_path: Path) -> None:
    job = start(tmp_path, "collective", "asked", str(tmp_path))
    try:
        pid = second(job)
        with job.without_agent():
            (tmp_path / "go").touch()
            wait_for(lambda: pid not in job.processes(), PATIENCE_S, "it has ended")
        check(job)
    finally:
        job.kill_everything()


def test_a_rank_that_waits_for_a_gpu(tmp_path: Path) -> None:
    """Its server is gone when its program ends."""
    job = start(tmp_path, "collective", "asked", str(tmp_path), RANKS_PATIENT="1")
    try:
        pid = second(job)
        job.order("inject", "--rank", "1", "--fault", "gpu-lost")
        wait_for(lambda: "waiting for" in job.errors(), PATIENCE_S, "no spare is left")
        os.kill(pid, signal.SIGKILL)
        check(job)
    finally:
        job.kill_everything()
