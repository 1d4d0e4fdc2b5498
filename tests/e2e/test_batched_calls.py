"""Batches of copies, libraries of kernels in files, clusters: with the proxy as without, and again
in a replay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nvcc
from job import PYFT, Job

PROGRAMS = Path(__file__).with_name("programs")
REFUSED = [
    "null stream (1, -1)",
    "no order (1, -1)",
    "attributes (1, -1)",
    "beyond (1, -1)",
    "library 1 8 301 301",
    "clusters 0 True (801, -1)",
    "largest (0, 1)",
]


def test_a_replay_repeats_each_copy_of_a_batch(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("nvcc", nvcc.present(), "compiles the library of kernels")
    library = tmp_path / "library.fatbin"
    source = str(PROGRAMS / "module_counter.cu")
    subprocess.run(nvcc.command(tmp_path, "-fatbin", "-o", str(library), source), check=True)
    program = [sys.executable, str(PROGRAMS / "batched.py"), str(library), "6"]
    direct = [PYFT, "run", "--gpus", "soft:1", "--direct", "--", *program]
    wanted = subprocess.run(direct, capture_output=True, text=True, timeout=300, check=True).stdout
    assert wanted.splitlines()[: len(REFUSED)] == REFUSED
    assert "step=6" in wanted.splitlines()[-1]
    assert "counter=13" in wanted.splitlines()[-1]
    report = tmp_path / "report.json"
    fault = ("--inject", "server-kill,rank=0,step=4,call=5", "--report", str(report))
    job = Job(tmp_path, program, options=("--gpus", "soft:1", *fault))
    try:
        assert job.wait(300) == 0, job.output() + job.errors()
        assert job.output().splitlines() == wanted.splitlines()
        recovery = json.loads(report.read_text())["recovery"]
        assert (recovery["recovered"], recovery["verdict"]) == (1, "exact"), job.errors()
    finally:
        job.kill_everything()
