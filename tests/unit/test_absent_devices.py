"""A program that asks for a device that its job does not have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from job import PYFT

from pyft._native import native_dir

if not (native_dir() / "libpyft_shim.so").is_file():
    pytest.skip("[build]: libpyft_shim.so is missing", allow_module_level=True)

ASK = "import ctypes, sys; set_device = ctypes.CDLL(None).cudaSetDevice; "
INVALID_DEVICE = 101


@pytest.mark.parametrize(
    ("gpus", "variables", "said"),
    [
        ("soft:1", {}, "the job has [1] GPU, device [3] was asked for: --gpus soft:4"),
        ("soft:2", {}, "the job has [2] GPUs, device [3] was asked for: --gpus soft:4"),
        (
            "soft:2",
            {"CUDA_VISIBLE_DEVICES": "1"},
            "the job has [1] GPU that CUDA_VISIBLE_DEVICES leaves, device [3] was asked for",
        ),
    ],
)
def test_it_is_told_once_how_many_there_are(
    gpus: str, variables: dict[str, str], said: str
) -> None:
    program = ASK + "print(set_device(3), set_device(4), set_device(0))"
    given = [f"{name}={value}" for name, value in variables.items()]
    command = [PYFT, "run", "--gpus", gpus, "--", "env", *given, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.stdout == f"{INVALID_DEVICE} {INVALID_DEVICE} 0\n", done.stderr
    assert [line for line in done.stderr.splitlines() if "device" in line] == [f"pyft: {said}"]


def test_numbers_that_no_device_has_are_left_to_the_program() -> None:
    command = [PYFT, "run", "--gpus", "soft:1", "--", sys.executable, "-c"]
    done = subprocess.run(
        [*command, ASK + "print(set_device(-1))"], capture_output=True, text=True, env=os.environ
    )
    assert (done.stdout, done.stderr) == (f"{INVALID_DEVICE}\n", "")
