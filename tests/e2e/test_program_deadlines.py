"""Deadlines of the program itself: they end what is stuck as without pyft, and no recovery."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from job import Job, wait_for
from recovery_run import command

STUCK = str(Path(__file__).parent / "programs" / "stuck_rank.py")
LIMIT_S = "5"
# PyTorch gives a dump of its own four times this long before it ends the process: 60 s by default.
QUICK = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500"}
CAUGHT = "Watchdog caught collective operation timeout"
SUM = "sum=[2.0, 6.0, 10.0, 14.0]"


def stuck(jobs: list[Job], folder: Path, sleep: str, *options: str, **environment: str) -> Job:
    line = ("--gpus", "soft:2", *options)
    jobs.append(
        Job(folder, command(STUCK, 2, (LIMIT_S, sleep)), options=line, environment=environment)
    )
    return jobs[-1]


# torchrun's and PyTorch's own
@pytest.mark.parametrize("mode", ["1", pytest.param("3", marks=pytest.mark.long)])
def test_a_rank_that_sleeps_ends_the_job(jobs: list[Job], tmp_path: Path, mode: str) -> None:
    job = stuck(jobs, tmp_path, "600", **QUICK, TORCH_NCCL_ASYNC_ERROR_HANDLING=mode)
    assert job.wait(120) == 1, job.errors()
    assert CAUGHT in job.errors()
    assert "rank 1 sum" not in job.output()
    job.assert_nothing_left()


def test_a_deadline_counts_again_after_a_recovery(jobs: list[Job], tmp_path: Path) -> None:
    job = stuck(jobs, tmp_path, "600", "--inject", "server-kill,rank=0", **QUICK)
    assert job.wait(120) == 1, job.errors()
    assert "rank [0] goes on after" in job.errors()
    assert CAUGHT in job.errors()


@pytest.mark.long
def test_a_recovery_may_take_longer_than_the_deadline(jobs: list[Job], tmp_path: Path) -> None:
    """No spare is there for three times as long; the rank that works waits in a collective."""
    job = stuck(jobs, tmp_path, "2", **QUICK)
    wait_for(lambda: job.output().count("reduced once") == 2, 60, f"both work: {job.errors()}")
    job.order("inject", "--rank", "1", "--fault", "gpu-lost")
    wait_for(lambda: "waiting for `pyft spare" in job.errors(), 60, f"no GPU: {job.errors()}")
    time.sleep(3 * float(LIMIT_S))
    job.order("spare", "--gpu", "2")
    assert job.wait(120) == 0, job.errors()
    # Lines of two processes may come to lie in one.
    assert all(job.output().count(f"rank {rank} {SUM}") == 1 for rank in (0, 1)), job.output()
    assert CAUGHT not in job.errors()
    job.assert_nothing_left()
