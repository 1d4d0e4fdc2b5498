"""Faults in real trainings: the script does not notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_run import Run
from job import PYFT, TRAIN, Job

ASSERT = """
import torch
x = torch.zeros(4, device="cuda")
torch.cuda.synchronize()
wrong = torch.tensor([9], device="cuda")
try:
    print(x[wrong].sum().item())
except torch.AcceleratorError as error:
    print("caught", str(error).splitlines()[0])
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    line = [PYFT, "run", "--gpus", "soft:1", "--log-dir", str(tmp_path_factory.mktemp("log"))]
    command = [*line, "--", sys.executable, TRAIN, "--steps", "3"]
    return Run(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.kill_everything()


def run(jobs: list[Job], folder: Path, command: list[str], *options: str) -> list[dict]:
    """Run a job to its end; return the faults of its report."""
    report = folder / "report.json"
    line = ("--gpus", "soft:1", "--protect", "capture", "--report", str(report), *options)
    jobs.append(Job(folder, command, options=line))
    assert jobs[-1].wait(120) == 0, jobs[-1].errors()
    jobs[-1].assert_nothing_left()
    return json.loads(report.read_text())["recovery"]["faults"]


def train(jobs: list[Job], folder: Path, faults: list[str], *options: str) -> tuple[Run, list]:
    """Train with faults."""
    words = [word for fault in faults for word in ("--inject", fault)]
    command = [sys.executable, TRAIN, "--steps", "3"]
    found = run(jobs, folder, command, *words, *options)
    return Run(jobs[-1].output()), found


def same(one: Run, other: Run) -> bool:
    """Compare losses and parameters, bit by bit."""
    return (one.losses, one.parameters) == (other.losses, other.parameters)


def test_killed_servers(jobs: list[Job], tmp_path: Path, undisturbed: Run) -> None:
    places = ["step=0,call=9", "step=0,call=70,server=2", "step=1,call=1,server=3"]
    places += ["step=1,call=15,server=4"]
    got, found = train(jobs, tmp_path, [f"server-kill,rank=0,{place}" for place in places])
    assert same(got, undisturbed)
    assert [(fault["outcome"], fault["verdict"]) for fault in found] == [("recovered", "exact")] * 4


def test_an_assert_of_the_program_is_its_own_error(jobs: list[Job], tmp_path: Path) -> None:
    found = run(jobs, tmp_path, [sys.executable, "-c", ASSERT], "--spares", "1")
    assert "caught CUDA error: device-side assert triggered" in jobs[-1].output()
    assert [fault["mode"] for fault in found] == ["normal", "serial", "deliver"]
    assert [fault["gpu_to"] for fault in found] == [0, 1, 1]
    assert found[-1]["outcome"] == "error delivered"
