"""CUDA programs compiled here by nvcc give on the soft GPU what plain C++ gives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("source", "output"),
    [("kernels", "hello 42 text 1.500 123456789012 x%"), ("more", "0 failures")],
)
def test_cuda_kernels(source: str, output: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    program = tmp_path / source
    subprocess.run(
        [nvcc, "-std=c++17", "-arch=sm_75", "-cudart", "shared", "-o", str(program),
         str(HERE / f"cuda/{source}.cu")],
        check=True,
        capture_output=True,
    )  # fmt: skip
    run = subprocess.run(
        [str(program)],
        env={**os.environ, "LD_PRELOAD": os.environ["SOFTGPU_LIBRARY"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert output in run.stdout
