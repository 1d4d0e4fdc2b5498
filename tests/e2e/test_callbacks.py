"""Host functions that a program puts into its streams run in the program's own process, once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from job import PYFT
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
