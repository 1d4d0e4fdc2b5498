"""NCCL over several ranks: every collective, and training with DistributedDataParallel."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from job import PYFT

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
PROGRAM = str(Path(__file__).with_name("programs") / "many_ranks.py")


@cache
def run(ranks: int, how: str, attempt: int = 0) -> list[str]:
    """Return the sorted output lines of all ranks; `attempt` tells repeated runs apart."""
    direct = ["--direct"] if how == "direct" else []
    launcher = [TORCHRUN, "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [PYFT, "run", "--gpus", f"soft:{ranks}", *direct, "--", *launcher, PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if line)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_train_and_agree(ranks: int) -> None:
    lines = run(ranks, "proxied")
    hashes = [line.split()[2] for line in lines if " hash " in line]
    assert len(hashes) == ranks
    assert len(set(hashes)) == 1
    assert sum(" loss " in line for line in lines) == 5 * ranks


def test_proxied_is_direct_and_runs_repeat() -> None:
    assert run(2, "direct") == run(2, "proxied") == run(2, "proxied", attempt=1)
