"""PYFT_LOG shows a recovery: what the agent decides, and what the new server does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT, TRAIN

pytestmark = pytest.mark.soft

# In this order. Lines of agent and servers go to the same file, each in one write.
STEPS = (
    r"pyft-server: \[debug server rank 0 pid \d+\] attached: device \[0\]",
    r"pyft-server: \[debug recovery rank 0 pid \d+\] goes live at position",
    r"pyft-server: \[debug snapshot rank 0 pid \d+\] cut \[2\] at entry",
    r"cut \[2\]: a snapshot begins",
    r"cut \[2\]: whole in the store",
    r"cut \[2\]: committed, \[\d+\] bytes",
    r"pyft: \[debug plan pid \d+\] event Exited\(id=0, epoch=1",
    r"action Start\(id=0, epoch=2",
    r"phase \[starting\]",
    r"phase \[communicators\]",
    r"phase \[objects\]",
    r"phase \[restore\]",
    r"phase \[replay\]",
    r"replays from position \[\d+\] to \[\d+\]",
    r"goes live at position",
    r"action Live\(id=0, epoch=2",
)


def test_a_recovery_in_lines(tmp_path: Path) -> None:
    line = [PYFT, "run", "--gpus", "soft:1", "--log-dir", str(tmp_path), "--inject"]
    line += ["server-kill,rank=0,step=3", "--", sys.executable, TRAIN, "--steps", "4"]
    environment = os.environ | {"PYFT_LOG": "debug", "PYFT_CUT_EVERY": "1"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    at = 0
    for step in STEPS:
        found = re.compile(step).search(done.stderr, at)
        assert found, f"[{step}] does not come after [{at}] in\n{done.stderr}"
        at = found.end()
    assert "trace server" not in done.stderr
    assert not re.search(r"^pyft-server: (?!\[)", done.stderr, re.MULTILINE)
