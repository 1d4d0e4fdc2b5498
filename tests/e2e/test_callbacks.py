"""Host functions that a program puts into its streams run in the program's own process, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT, Job
from test_programs import PROGRAMS, run

DEVICE_ASSERT = 710


def test_host_functions_run_as_without_the_proxy() -> None:
    lines = run("callbacks.py", "proxied").splitlines()
    assert lines == run("callbacks.py", "direct").splitlines()
    assert lines == [
        "in order True 100.0 100.0",
        "feeds a copy 6000.0",
        "long one False ['fast', True] 16.0 24.0",
        "told 1 0 0 True",
        "captured [] [1.0, 3.0, 7.0, 15.0] 30.0 broken 900 4",
        "refused 1 1 6.0",
        "exits",
    ]


@pytest.mark.parametrize("how", ["assert", "kill"])
def test_callbacks_of_a_lost_device_are_told_once(how: str) -> None:
    command = [PYFT, "run", "--gpus", "soft:1", "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAMS / "callbacks_lost.py"), how],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ),
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "True [1, 1] []", done.stdout + done.stderr
    if how == "assert":
        assert lines[1] == f"[{DEVICE_ASSERT}] [{DEVICE_ASSERT}] {DEVICE_ASSERT}"


def test_each_thread_has_a_default_stream_of_its_own() -> None:
    lines = run("per_thread.py", "proxied").splitlines()
    assert lines == run("per_thread.py", "direct").splitlines()
    assert lines == [
        "streams 21",
        "independent (0, 0, 0, 0, 2) True 0 [1, 1, 2, 2]",
        "blocking True [3.0, 3.0, 3.0, 3.0]",
        "libraries True [True, True, True]",
        "looked up True True",
        "no end True True",
    ]


def test_a_captured_function_runs_once_per_launch_whatever_happens(tmp_path: Path) -> None:
    """A new server captures the graph again, and does not launch it for the steps before."""
    report = tmp_path / "report.json"
    fault = ("--inject", "server-kill,rank=0,step=5,call=2", "--report", str(report))
    program = [sys.executable, str(PROGRAMS / "graph_callbacks.py")]
    job = Job(tmp_path, program, options=("--gpus", "soft:1", *fault))
    try:
        assert job.wait(120) == 0, job.errors()
        assert job.output() == "True 24 [-13.0, -13.0, -13.0, -13.0]\n", job.errors()
        recovery = json.loads(report.read_text())["recovery"]
        assert (recovery["recovered"], recovery["verdict"]) == (1, "exact")
    finally:
        job.kill_everything()
