"""Programs that nvcc makes: with a CUDA runtime of their own inside, and at their end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import nvcc
import pytest
from job import Job

PROGRAMS = Path(__file__).with_name("programs")
SEPARATE = Path(__file__).parents[1] / "softgpu" / "exec" / "cuda"


@pytest.fixture(autouse=True)
def _compiler(need: Callable[[str, bool, str], None]) -> None:
    need("nvcc", nvcc.present(), "compiles the program")


def run(
    folder: Path, sources: list[Path], *flags: str, options: tuple[str, ...] = ()
) -> tuple[int, str, str]:
    """Compile and run a program; return its exit code, its output, and what was said."""
    program = folder / "program"
    command = nvcc.command(folder, *flags, "-o", str(program), *map(str, sources))
    subprocess.run(command, check=True)
    job = Job(folder, [str(program)], options=("--gpus", "soft:1", *options))
    try:
        return job.wait(60), job.output(), job.errors()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_a_static_runtime_is_named(tmp_path: Path, runtime: str) -> None:
    """Its calls cannot be seen: the program is told so, with the remedy."""
    code, _, said = run(tmp_path, [PROGRAMS / "one_kernel.cu"], "-cudart", runtime)
    named = f"[{tmp_path / 'program'}] has a CUDA runtime of its own inside" in said
    assert (code == 0, named) == (runtime == "shared", runtime == "static"), said
    assert named == ("-cudart shared" in said)


def test_calls_after_the_end_are_no_fault(tmp_path: Path) -> None:
    """The server leaves when the client says goodbye; destructors may come later."""
    report = tmp_path / "report.json"
    sources, options = [PROGRAMS / "late_destructor.cu"], ("--report", str(report))
    code, _, said = run(tmp_path, sources, "-cudart", "shared", options=options)
    assert (code, said) == (0, "")
    assert json.loads(report.read_text())["recovery"]["faults"] == []


def test_separately_compiled_units_are_linked(tmp_path: Path) -> None:
    """What nvlink made is the program's code, not the parts that it was made of."""
    sources = [SEPARATE / name for name in ("separate.cu", "separate_callee.cu")]
    code, said, errors = run(tmp_path, sources, "-rdc=true", "-cudart", "shared")
    assert (code, errors) == (0, "")
    assert said == "seven 31\n0 failures, no error\n"  # the store comes first, in program order
