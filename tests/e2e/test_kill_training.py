"""SIGKILL in the middle of a real training: who survives says so, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job import PYFT, TRAIN, Job, wait_for

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Job]:
    """A job under torchrun that has made two steps and would make many more."""
    command = [TORCHRUN, "--nproc-per-node", "1", TRAIN, "--steps", "10000"]
    job = Job(tmp_path, command, options=("--gpus", "soft:1", "--protect", "none"))
    try:
        job.wait_attached(120)
        wait_for(lambda: "step=2 " in job.output(), 120, f"two steps: {job.errors()}")
        yield job
    finally:
        job.kill_everything()


@pytest.mark.parametrize(
    ("victim", "sentence"),
    [
        ("launcher", "the launcher was killed: ended the command and its servers"),
        ("supervisor", "was killed by signal [9 SIGKILL]: ended the command and its servers"),
        ("client", "ended without a goodbye; its server [pid"),
        ("server", "was killed by signal [9 SIGKILL] while it worked on entry ["),
    ],
)
def test_kill(training: Job, victim: str, sentence: str) -> None:
    os.kill(training.victim(victim), signal.SIGKILL)
    # torchrun needs a moment to notice a dead worker; pyft itself answers at once.
    assert training.wait(30 if victim in ("client", "server") else 5) != 0
    training.assert_nothing_left(5)
    assert sentence in training.errors()
    (saved,) = training.log_dir.glob("*.ring")
    done = subprocess.run([PYFT, "trace", str(saved)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cuLaunchKernel" in done.stdout


def test_killed_server_is_an_error_in_the_script(training: Job) -> None:
    server = training.victim("server")
    os.kill(server, signal.SIGKILL)
    training.wait(30)
    assert f"[pid {server}]" in training.errors()
    assert "CUDA error" in training.errors()


def test_live_job_can_be_traced(training: Job) -> None:
    done = subprocess.run(
        [PYFT, "trace", str(training.log_dir), "--tail", "50"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 50
    training.send(signal.SIGTERM)
    assert training.wait(30) != 0
    training.assert_nothing_left()
