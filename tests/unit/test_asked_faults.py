"""Faults that variables ask for: one that has not happened is an error at the job's end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import Job

from pyft.agent.job import asked_faults
from pyft.errors import NOT_INJECTED

Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[Job] = []

    def begin(program: str, **variables: str) -> Job:
        options = ("--gpus", "soft:1", "--report", str(tmp_path / "r"))
        command = (sys.executable, "-I", "-c", program)
        told = {"options": options, "environment": variables, "may_miss": True}
        jobs.append(Job(tmp_path, command, **told))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.kill_everything()


def test_what_an_environment_asks_for() -> None:
    environment = {
        "PYFT_FAULT": "cut.copying:3",
        "SOFTGPU_FAULT": "lost device=1; 2:700 # a; comment\n resume ;hang,in=1;",
        "FLEXCCL_FAULT": "kill:1,rank=0;drop:2",
        "PYFT_AUDIT_FAULT": "flip,in=3",
    }
    assert asked_faults.asked_for(environment) == [
        "PYFT_FAULT=cut.copying:3",
        "SOFTGPU_FAULT=lost device=1",
        "SOFTGPU_FAULT=2:700",
        "SOFTGPU_FAULT=hang,in=1",
        "FLEXCCL_FAULT=kill:1,rank=0",
        "FLEXCCL_FAULT=drop:2",
        "SOFTGPU_FAULT=flip,in=3",
    ]


def test_nobody_is_told_of_a_file_without_a_fault(tmp_path: Path) -> None:
    environment = {"PYFT_FAULT": ""}
    asked_faults.begin(tmp_path, "job", environment)
    assert environment == {"PYFT_FAULT": ""}
    assert os.listdir(tmp_path) == []
    assert asked_faults.missed(tmp_path, "job") == []


def test_the_next_agent_goes_on(tmp_path: Path) -> None:
    """It has no PYFT_FAULT, and what has happened is not forgotten."""
    environment = {"PYFT_FAULT": "agent.says:3", "FLEXCCL_FAULT": "kill:1"}
    asked_faults.begin(tmp_path, "job", environment)
    path = Path(environment["PYFT_FAULT_NOTES"])
    assert environment["FLEXCCL_FAULT_NOTES"] == environment["SOFTGPU_FAULT_NOTES"] == str(path)
    with path.open("a") as file:
        file.write("happened PYFT_FAULT=agent.says:3\nhappened FLEXCCL_FAULT=kill:11\n")
    again = {"FLEXCCL_FAULT": "kill:1"}
    asked_faults.begin(tmp_path, "job", again)
    assert again["PYFT_FAULT_NOTES"] == str(path)
    assert [one["fault"] for one in asked_faults.missed(tmp_path, "job")] == [
        "FLEXCCL_FAULT=kill:1"
    ]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("PYFT_FAULT", "cut.copying:3"),
        ("PYFT_FAULT", "agent.says:9999"),
        ("SOFTGPU_FAULT", "error:400,code=700"),
        ("FLEXCCL_FAULT", "kill:40,rank=1"),
    ],
)
def test_a_fault_that_never_comes_is_an_error(
    start: Start, tmp_path: Path, name: str, fault: str
) -> None:
    job = start("", **{name: fault})
    assert job.wait() == NOT_INJECTED
    assert job.not_happened() == [f"{name}={fault}"]
    assert f"pyft: the fault [{name}={fault}] did not happen: no process" in job.errors()
    (missed,) = json.loads((tmp_path / "r").read_text())["recovery"]["not_injected"]
    assert missed["fault"] == f"{name}={fault}"


def test_the_commands_own_error_comes_first(start: Start) -> None:
    job = start("raise SystemExit(3)", FLEXCCL_FAULT="kill:40")
    assert job.wait() == 3
    assert "the fault [FLEXCCL_FAULT=kill:40] did not happen" in job.errors()


def test_a_fault_that_has_come_is_none(start: Start) -> None:
    """Whatever process has it: here the agent itself."""
    job = start("", PYFT_FAULT="agent.says:2")
    assert job.wait() == 0, job.errors()
    assert job.not_happened() == []
    assert "did not happen" not in job.errors()


def test_a_test_whose_fault_never_comes_fails(tmp_path: Path) -> None:
    """The helper sees to it, also where the exit code is not looked at."""
    told = {"options": ("--gpus", "soft:1"), "environment": {"PYFT_FAULT": "cut.copying"}}
    job = Job(tmp_path, ("sh", "-c", "exit 5"), **told)
    with pytest.raises(AssertionError, match=r"exit code \[5\]"):
        job.wait()
