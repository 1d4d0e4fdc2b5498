"""CUDA programs compiled here by nvcc give on the soft GPU what plain C++ gives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def compile_and_run(program: Path, *arguments: str) -> str:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    subprocess.run(
        [
            nvcc,
            "-std=c++17",
            "--extended-lambda",
            "-arch=sm_75",
            "-cudart",
            "shared",
            "-o",
            str(program),
            *arguments,
        ],
        check=True,
        capture_output=True,
    )
    run = subprocess.run(
        [str(program)],
        env={**os.environ, "LD_PRELOAD": os.environ["SOFTGPU_LIBRARY"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("kernels", "hello 42 text 1.500 123456789012 x%"),
        ("more", "0 failures"),
        ("language", "0 failures"),
    ],
)
def test_cuda_kernels(source: str, output: str, tmp_path: Path) -> None:
    assert output in compile_and_run(tmp_path / source, str(HERE / f"cuda/{source}.cu"))


def test_separate_compilation(tmp_path: Path) -> None:
    sources = [str(HERE / "cuda" / name) for name in ("separate.cu", "separate_callee.cu")]
    out = compile_and_run(tmp_path / "separate", "-rdc=true", *sources)
    assert "seven" in out
    assert "0 failures" in out


def test_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTGPU_WATCHDOG", "1000000")
    out = compile_and_run(tmp_path / "endless", str(HERE / "cuda/endless.cu"))
    assert out == "cudaErrorLaunchTimeout\n"
