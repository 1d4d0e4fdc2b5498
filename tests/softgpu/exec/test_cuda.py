"""CUDA programs compiled here by nvcc give on the soft GPU what plain C++ gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import nvcc  # noqa: E402


def compile_and_run(program: Path, *arguments: str, run_with: Sequence[str] = ()) -> str:
    if not nvcc.present():
        pytest.skip("[nvcc]: it is not installed")
    flags = ["-std=c++17", "--extended-lambda", "-cudart", "shared", "-o", str(program)]
    subprocess.run(
        [*nvcc.command(program.parent, *flags), *arguments], check=True, capture_output=True
    )
    return run_program(program, *run_with)


def run_program(program: Path, *arguments: str) -> str:
    run = subprocess.run(
        [str(program), *arguments],
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


def test_long_text(tmp_path: Path) -> None:
    out = compile_and_run(tmp_path / "long_text", str(HERE / "cuda/long_text.cu"))
    assert out == "x" * 1000 + f"|{7:700d}\n"


def test_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTGPU_WATCHDOG", "1000000")
    out = compile_and_run(tmp_path / "endless", str(HERE / "cuda/endless.cu"))
    assert out == "cudaErrorLaunchTimeout\n"


def test_blocks_that_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTGPU_THREADS", "1")
    out = compile_and_run(tmp_path / "meet", str(HERE / "cuda/meet.cu"))
    assert out.startswith("cudaSuccess ")
    for threads in ("2", "3"):
        monkeypatch.setenv("SOFTGPU_THREADS", threads)
        assert run_program(tmp_path / "meet") == out
    monkeypatch.setenv("SOFTGPU_BLOCK_SEED", "3")
    shuffled = run_program(tmp_path / "meet")
    assert shuffled.startswith("cudaSuccess ")
    monkeypatch.setenv("SOFTGPU_THREADS", "1")
    assert run_program(tmp_path / "meet") == shuffled
