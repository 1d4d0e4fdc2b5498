"""cuDNN's own library behind a server: it chooses engines and makes plans without a GPU.

A program that asks it by way of pyft gets what one gets that asks it directly, also after the
server with all descriptors has died.
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

from pyft.agent.gpus import library_folders

PROGRAM = str(Path(__file__).with_name("programs") / "cudnn_plans.py")
LIBRARY = "libcudnn.so.9"
PLANS = 9  # of three graphs, and a fourth without


@pytest.fixture
def folders(need: Callable[[str, bool, str], None]) -> list[str]:
    found = library_folders()
    there = any((Path(folder) / LIBRARY).exists() for folder in found)
    need("cudnn", there, f"[{LIBRARY}] of PyTorch's packages")
    return found


def asked_directly(folder: Path, folders: list[str]) -> list[str]:
    """Return what cuDNN answers where it finds the libraries that a server finds."""
    path = ":".join([str(folder / "driver"), *folders])
    there = environment(folder / "driver") | {"LD_LIBRARY_PATH": path}
    command = [sys.executable, PROGRAM, LIBRARY]
    done = subprocess.run(command, env=os.environ | there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(" plan " in line for line in lines) == PLANS, lines
    return lines


def test_engines_and_plans_are_the_library_s(tmp_path: Path, folders: list[str]) -> None:
    job = Job(
        tmp_path,
        [sys.executable, PROGRAM, "-"],
        options=("--gpus", "0"),
        environment=environment(tmp_path / "driver"),
    )
    try:
        assert job.wait(60) == 0, job.errors()
        assert job.output().splitlines() == asked_directly(tmp_path, folders)
    finally:
        job.kill_everything()


def test_descriptors_are_made_again(tmp_path: Path, folders: list[str]) -> None:
    """The server dies when engines are known, and plans are made of them afterwards."""
    go_on, report = tmp_path / "go_on", tmp_path / "report.json"
    job = Job(
        tmp_path,
        [sys.executable, PROGRAM, "-", str(go_on)],
        options=("--gpus", "0", "--report", str(report)),
        environment=environment(tmp_path / "driver"),
    )
    try:
        wait_for(lambda: job.output().count("has engines") > 1, 60, f"engines: {job.errors()}")
        os.kill(job.victim("server"), signal.SIGKILL)
        go_on.touch()
        assert job.wait(60) == 0, job.errors()
        assert job.output().splitlines() == asked_directly(tmp_path, folders)
    finally:
        job.kill_everything()
    recovery = json.loads(report.read_text())["recovery"]
    assert (recovery["recovered"], recovery["verdict"]) == (1, "exact"), job.errors()
