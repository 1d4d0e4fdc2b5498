"""Small programs that print what they found, through the proxy and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAMS = Path(__file__).with_name("programs")


def run(program: str, how: str, **settings: str) -> str:
    """Return what a program of programs/ prints on a soft GPU."""
    direct = ["--direct"] if how == "direct" else []
    command = [PYFT, "run", "--gpus", "soft:1", *direct, "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAMS / program)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["proxied", "direct"])
def test_an_event_waited_for_is_complete(how: str) -> None:
    assert run("events.py", how) == "wrong []\n"


@pytest.mark.parametrize("how", ["proxied", "direct"])
def test_runtime(how: str) -> None:
    answers = dict(line.split() for line in run("runtime.py", how).splitlines())
    assert answers == dict.fromkeys(answers, "True")
    assert len(answers) == 8


def test_graphs_replay_the_same_bits() -> None:
    lines = run("graphs.py", "proxied").splitlines()
    assert lines == run("graphs.py", "direct").splitlines()
    assert [
        line for line in lines if line.startswith(("branches", "told", "refused", "after"))
    ] == [
        "branches 6.0",
        "branches 9.0",
        "branches 12.0",
        "told early True 1 1.0",
        "refused True",
        "after 8.0",
    ]
    assert sum(line.startswith("loss") for line in lines) == 4


def test_registered_host_memory() -> None:
    lines = run("registered.py", "proxied").splitlines()
    assert lines == run("registered.py", "direct").splitlines()
    assert lines == [
        "before False",
        "register 0 0 True",
        "inside True False",
        "copied True",
        "again 712 712",
        "middle 713",
        "unregister 0 False",
        "unregister 0 False",
        "twice 713",
        "afterwards 0 0",
    ]


@pytest.mark.long
def test_expandable_segments_change_no_bits() -> None:
    expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    lines = run("expandable.py", "proxied", **expandable).splitlines()
    assert lines == run("expandable.py", "direct", **expandable).splitlines()
    assert len(lines) == 8
    assert lines[-1] == "expandable {True}"
    without = run("expandable.py", "proxied").splitlines()
    assert without[-1] == "expandable {False}"
    assert lines[:-1] == without[:-1]
