"""The kernels of the installed PyTorch wheel give on the soft GPU what the CPU gives."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_torch_kernels() -> None:
    library = os.environ["SOFTGPU_LIBRARY"]
    if importlib.util.find_spec("torch") is None:
        pytest.skip("[torch]: it is not installed")
    run = subprocess.run(
        [sys.executable, str(HERE / "torch_kernels.py")],
        env={**os.environ, "LD_PRELOAD": library},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = run.stdout.splitlines()
    assert not [line for line in lines if line.startswith("BAD")], run.stdout
    assert lines[-1:] == ["done"], run.stdout + run.stderr
