"""The soft GPU's own programs find the same through the proxy as without it.

Those that train, compare devices or count memory are in tests/softgpu and the other files here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAMS = Path(__file__).parents[1] / "softgpu" / "programs"


def run(program: str, *direct: str) -> str:
    """Return what a program of tests/softgpu/programs prints on two soft GPUs."""
    command = [PYFT, "run", "--gpus", "soft:2", *direct, "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAMS / program)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "program",
    [
        "features.py",
        "graphs.py",
        "ipc_handles.py",
        "mini_fatbin.py",
        "operators.py",
        "solvers.py",
        "zoo.py",
    ],
)
def test_programs_that_compare_for_themselves(program: str) -> None:
    run(program)


def test_programs_that_print_bits() -> None:
    assert run("threads.py") == run("threads.py", "--direct")


def test_processes_share_tensors() -> None:
    assert run("share.py") == "ok\n"


def test_scripts_as_others_write_them() -> None:
    program = str(Path(__file__).with_name("programs") / "public.py")
    printed = run(program)
    assert printed == run(program, "--direct")
    assert printed.count("loss") == 10
