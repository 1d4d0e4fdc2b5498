"""A program with a CUDA graph, faults in between: objects that were captured come back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAM = str(Path(__file__).with_name("programs") / "graph_steps.py")


def run(folder: Path, *options: str) -> tuple[str, list[dict]]:
    report = folder / "report.json"
    line = [PYFT, "run", "--gpus", "soft:1", "--protect", "snapshot", "--report", str(report)]
    command = [*line, *options, "--log-dir", str(folder / "log"), "--", sys.executable, PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text())["recovery"]["faults"]


@pytest.mark.soft
def test_a_captured_graph_survives_its_server(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    undisturbed, none = run(tmp_path / "undisturbed")
    assert none == []
    assert undisturbed.count("loss=") == 6
    # The graph is in the object log by then: what made it is no longer in the ring.
    disturbed, faults = run(tmp_path, "--inject", "server-kill,rank=0,step=3,call=7")
    assert disturbed == undisturbed
    assert [fault["verdict"] for fault in faults] == ["exact"]
