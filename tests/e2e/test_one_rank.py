"""NCCL with one rank, as `torchrun --nproc-per-node 1` uses it, and what NCCL refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from job import PYFT

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
PROGRAMS = Path(__file__).with_name("programs")
DEADLINE_MS = "700"  # of the rank that is left alone


@cache
def run(
    how: str, program: str, *arguments: str, deadline_ms: str = ""
) -> subprocess.CompletedProcess[str]:
    """`how` is made of the words: proxied, direct, torchrun."""
    direct = ["--direct"] if "direct" in how else []
    environment = {"FLEXCCL_TIMEOUT_MS": deadline_ms} if deadline_ms else {}
    # --standalone: a free port, so that jobs beside this one do not matter
    launcher = [TORCHRUN, "--standalone", "--nproc-per-node", "1"]
    command = launcher if "torchrun" in how else [sys.executable]
    done = subprocess.run(
        [PYFT, "run", "--gpus", "soft:1", *direct, "--", *command, str(PROGRAMS / program)]
        + list(arguments),
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("how", ["proxied torchrun", "direct torchrun"])
@pytest.mark.parametrize("what", ["ddp", "left"])
def test_data_parallel_on_one_rank_changes_no_bit(how: str, what: str) -> None:
    lines = run(how, "one_rank.py", what).stdout.splitlines()
    assert lines == run("proxied", "one_rank.py", "plain").stdout.splitlines()
    assert len(lines) == 6


@pytest.mark.parametrize("how", ["proxied", "direct"])
def test_refusals(how: str) -> None:
    done = run(how, "nccl_refuses.py", deadline_ms=DEADLINE_MS)
    assert done.stdout.splitlines() == [
        "two ranks 4 None",
        "alone 6 None",
        "one rank 0 True",
        "destroy 0 4",
        "none 0 0 0",
    ]
    if how == "proxied":
        assert "was not made by ncclGetUniqueId" in done.stderr
        assert "[ncclCommDestroy] got no live communicator" in done.stderr
