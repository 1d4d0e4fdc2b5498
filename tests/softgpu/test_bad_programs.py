"""Kernels that do what they must not end in CUDA's error, with a line that says where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import nvcc  # noqa: E402
from test_torch_direct import native_dir  # noqa: E402

SOURCE = Path(__file__).parent / "programs" / "bad.cu"
WHERE = ["kernel [bad]", "block [0,0,0]", "thread [3,0,0]", "pc ["]

# case, argument, the sticky error, what stderr says beside the place
CASES = {
    "global": (0, 1 << 20, "cudaErrorIllegalAddress", "illegal global access of [4] bytes"),
    "global before": (0, -200, "cudaErrorIllegalAddress", "illegal global access"),
    "misaligned": (1, 2, "cudaErrorMisalignedAddress", "misaligned access of [4] bytes"),
    "shared": (2, 1 << 16, "cudaErrorIllegalAddress", "illegal shared access"),
    "local": (3, 1 << 20, "cudaErrorIllegalAddress", "illegal local access"),
    "trap": (4, 0, "cudaErrorLaunchFailure", "trap"),
    "breakpoint": (5, 0, "cudaErrorLaunchFailure", "trap"),
    "null function": (6, 0, "cudaErrorIllegalInstruction", "jump to [0]"),
    "jump into the void": (7, 0x123456780, "cudaErrorIllegalInstruction", "jump to ["),
    "stack overflow": (8, 100000, "cudaErrorIllegalAddress", "illegal local access"),
    "atomic": (9, 1 << 20, "cudaErrorIllegalAddress", "illegal global access"),
    "misaligned shared": (10, 1, "cudaErrorMisalignedAddress", "misaligned access"),
    "endless": (11, 0, "cudaErrorLaunchTimeout", "warp instructions"),
    "null pointer": (12, 0, "cudaErrorIllegalAddress", "address [0x0]"),
    "end of shared": (13, 1 << 16, "cudaErrorIllegalAddress", "illegal shared access"),
    "read-only": (100, 0, "cudaErrorIllegalAddress", "write to read-only memory of [4] bytes"),
    "atomic, read-only": (109, 0, "cudaErrorIllegalAddress", "to read-only memory"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not nvcc.present():
        pytest.skip("[nvcc]: it is not installed")
    out = tmp_path_factory.mktemp("bad") / "bad"
    flags = ["-std=c++17", "-cudart", "shared", "-o", str(out)]
    subprocess.run([*nvcc.command(out.parent, *flags), SOURCE], check=True, capture_output=True)
    return out


@pytest.mark.parametrize("name", CASES)
def test_bad_kernel(program: Path, name: str) -> None:
    case, argument, error, sentence = CASES[name]
    run = subprocess.run(
        [str(program), str(case), str(argument)],
        env={
            **os.environ,
            "LD_PRELOAD": str(native_dir() / "libsoftgpu.so"),
            "SOFTGPU_WATCHDOG": "3000000",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # Whether the kernel has ended at the first look is its own affair; then every call says it.
    first, *rest = run.stdout.split()
    assert first in ("cudaSuccess", error)
    assert rest == [error, error, error], run.stderr
    for part in [*WHERE, sentence]:
        assert part in run.stderr
