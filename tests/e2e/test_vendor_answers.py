"""What the vendor's own libraries answer without a GPU is what a program gets by way of pyft.

cuDNN behind a server chooses engines and makes plans, also after the server with all descriptors
has died; cuBLASLt's descriptors are the client's, and like its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job import Job, wait_for
from vendor import environment

from pyft.agent.job.gpus import library_folders

PROGRAMS = Path(__file__).with_name("programs")
PLANS_PROGRAM = str(PROGRAMS / "cudnn_plans.py")
DESCRIPTORS_PROGRAM = str(PROGRAMS / "cublaslt_descriptors.py")
PLANS = 9  # of three graphs, and a fourth without


@pytest.fixture
def folders(need: Callable[[str, bool, str], None]) -> list[str]:
    found = library_folders(13)
    there = any((Path(folder) / "libcudnn.so.9").exists() for folder in found)
    need("cudnn", there, "[libcudnn.so.9] of PyTorch's packages")
    return found


def asked_directly(program: str, library: str, folders: list[str], **variables: str) -> list[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(folders)} | variables
    command = [sys.executable, program, library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def plans_of_cudnn(folder: Path, folders: list[str]) -> list[str]:
    """Return what cuDNN answers where it finds the libraries that a server finds."""
    driver = environment(folder / "driver")
    path = ":".join([driver.pop("LD_LIBRARY_PATH"), *folders])
    lines = asked_directly(PLANS_PROGRAM, "libcudnn.so.9", folders, **driver, LD_LIBRARY_PATH=path)
    assert sum(" plan " in line for line in lines) == PLANS, lines
    return lines


def test_engines_and_plans_are_the_library_s(tmp_path: Path, folders: list[str]) -> None:
    job = Job(
        tmp_path,
        [sys.executable, PLANS_PROGRAM, "-"],
        options=("--gpus", "0"),
        environment=environment(tmp_path / "driver"),
    )
    try:
        assert job.wait(60) == 0, job.errors()
        assert job.output().splitlines() == plans_of_cudnn(tmp_path, folders)
    finally:
        job.kill_everything()


def test_descriptors_are_made_again(tmp_path: Path, folders: list[str]) -> None:
    """The server dies when engines are known, and plans are made of them afterwards."""
    go_on, report = tmp_path / "go_on", tmp_path / "report.json"
    job = Job(
        tmp_path,
        [sys.executable, PLANS_PROGRAM, "-", str(go_on)],
        options=("--gpus", "0", "--report", str(report)),
        environment=environment(tmp_path / "driver"),
    )
    try:
        wait_for(lambda: job.output().count("has engines") > 1, 60, f"engines: {job.errors()}")
        os.kill(job.victim("server"), signal.SIGKILL)
        go_on.touch()
        assert job.wait(60) == 0, job.errors()
        assert job.output().splitlines() == plans_of_cudnn(tmp_path, folders)
    finally:
        job.kill_everything()
    recovery = json.loads(report.read_text())["recovery"]
    assert (recovery["recovered"], recovery["verdict"]) == (1, "exact"), job.errors()


def test_descriptors_of_cublaslt_are_the_library_s(tmp_path: Path, folders: list[str]) -> None:
    wanted = asked_directly(DESCRIPTORS_PROGRAM, "libcublasLt.so.13", folders)
    assert sum(line.startswith("MatmulDesc") for line in wanted) > 100
    job = Job(tmp_path, [sys.executable, DESCRIPTORS_PROGRAM, "-"])
    try:
        assert job.wait(60) == 0, job.errors()
        assert job.output().splitlines() == wanted
    finally:
        job.kill_everything()
