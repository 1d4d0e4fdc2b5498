"""`pytest --pyft-gpus`: tests see GPUs, and lose them, on a machine that has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import time
import torch

def test_two_gpus():
    assert torch.cuda.device_count() == 2

def test_a_gpu_is_lost(pyft_job):
    x = torch.ones(1000, device="cuda")
    pyft_job.inject("gpu-lost")
    until = time.monotonic() + 300
    while not [one for one in pyft_job.faults() if one.outcome == "recovered"]:
        assert time.monotonic() < until
        x = x + 1
        torch.cuda.synchronize()
        time.sleep(0.02)
    assert x.min().item() == x.max().item() > 1
    (fault,) = pyft_job.faults()
    assert (fault.kind, fault.gpu_from, fault.gpu_to) == ("gpu-lost", 0, 2)
    assert [one.rank for one in pyft_job.status().ranks] == [0]

def test_that_fails():
    assert torch.ones(2, device="cuda").sum().item() == 3
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_gpu.py").write_text(TESTS)
    pytest = Path(sys.executable).with_name("pytest")
    words = [pytest, *options, "-p", "no:cacheprovider", "test_gpu.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)


def test_tests_run_on_soft_gpus(tmp_path: Path) -> None:
    done = run(tmp_path, "--pyft-gpus", "soft:2", "--pyft-spares", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pyft: GPUs soft:2, job " in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "assert 2.0 == 3" in done.stdout
    assert "1 of 1 recovered" in done.stderr


def test_without_gpus_the_fixture_skips(tmp_path: Path) -> None:
    done = run(tmp_path, "-rs", "-k", "lost")
    assert "pytest --pyft-gpus soft:1" in done.stdout
    assert "1 skipped" in done.stdout
