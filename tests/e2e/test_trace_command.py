"""`pyft trace` of a finished job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT, Job

PROGRAM = """
import torch
x = torch.ones(1000, device="cuda")
for _ in range(10):
    x = x * 2 + 1
print(x.sum().item())
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(tmp_path_factory.mktemp("finished"), [sys.executable, "-c", PROGRAM])
    assert job.wait(120) == 0, job.errors()
    assert job.output() == "2047000.0\n"
    return job


def trace(*arguments: str) -> str:
    done = subprocess.run([PYFT, "trace", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whole_job_ends_with_goodbye(finished: Job) -> None:
    text = trace(str(finished.log_dir))
    assert text.count("cuLaunchKernel") >= 20
    assert "goodbye" in text.splitlines()[-1].lower()
    finished.assert_nothing_left()


def test_tail_and_call_filters(finished: Job) -> None:
    whole = trace(str(finished.log_dir)).splitlines()
    assert trace(str(finished.log_dir), "--tail", "3").splitlines()[-3:] == whole[-3:]
    launches = trace(str(finished.log_dir), "--call", "LaunchKernel")
    assert all("LaunchKernel" in line for line in launches.splitlines())


def test_stats_name_the_calls(finished: Job) -> None:
    assert "LaunchKernel" in trace(str(finished.log_dir), "--stats")


def test_two_runs_are_equal_without_addresses_and_times(finished: Job, tmp_path: Path) -> None:
    again = Job(tmp_path, [sys.executable, "-c", PROGRAM])
    assert again.wait(120) == 0
    first, second = (trace(str(job.log_dir), "--deterministic") for job in (finished, again))
    assert first == second


def test_job_that_does_not_exist() -> None:
    done = subprocess.run([PYFT, "trace", "no-such-job"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "[no-such-job]" in done.stderr


def test_report_counts(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--gpus", "soft:1", "--report", str(report)]
    job = Job(tmp_path, [sys.executable, "-c", PROGRAM], options=options)
    assert job.wait(120) == 0
    (channel,) = json.loads(report.read_text())["channels"]
    assert channel["goodbye"] is True
    assert channel["entries_total"] > 20
    assert channel["appended"] > 20 * 48
