"""Programs that nvcc makes: with a CUDA runtime of their own inside, and at their end."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from job import Job

from pyft.agent.gpus import library_folders

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture
def nvcc(need: Callable[[str, bool, str], None]) -> str:
    found = shutil.which("nvcc")
    need("nvcc", found is not None, "compiles the program")
    assert found is not None
    return found


def run(folder: Path, nvcc: str, source: str, runtime: str, *options: str) -> tuple[int, str]:
    """Compile and run a program; return its exit code and what was said."""
    program = folder / "program"
    flags = ["-arch=sm_75", "-cudart", runtime, "-o", str(program)]
    subprocess.run([nvcc, *flags, str(PROGRAMS / source)], check=True)
    libraries = {"LD_LIBRARY_PATH": ":".join(library_folders())}
    job = Job(folder, [str(program)], options=("--gpus", "soft:1", *options), environment=libraries)
    try:
        return job.wait(60), job.errors()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_a_static_runtime_is_named(tmp_path: Path, nvcc: str, runtime: str) -> None:
    """Its calls cannot be seen: the program is told so, with the remedy."""
    code, said = run(tmp_path, nvcc, "one_kernel.cu", runtime)
    named = f"[{tmp_path / 'program'}] has a CUDA runtime of its own inside" in said
    assert (code == 0, named) == (runtime == "shared", runtime == "static"), said
    assert named == ("-cudart shared" in said)


def test_calls_after_the_end_are_no_fault(tmp_path: Path, nvcc: str) -> None:
    """The server leaves when the client says goodbye; destructors may come later."""
    report = tmp_path / "report.json"
    code, said = run(tmp_path, nvcc, "late_destructor.cu", "shared", "--report", str(report))
    assert (code, said) == (0, "")
    assert json.loads(report.read_text())["recovery"]["faults"] == []
