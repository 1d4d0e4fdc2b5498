"""Programs with a CUDA runtime of their own inside cannot be seen: they are told, with the remedy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from job import Job

from pyft.agent.gpus import library_folders

SOURCE = Path(__file__).with_name("programs") / "one_kernel.cu"


@pytest.mark.parametrize("runtime", ["static", "shared"])
def test_a_static_runtime_is_named(
    tmp_path: Path, need: Callable[[str, bool, str], None], runtime: str
) -> None:
    nvcc = shutil.which("nvcc")
    need("nvcc", nvcc is not None, "compiles the program")
    assert nvcc is not None
    program = tmp_path / "program"
    options = ["-arch=sm_75", "-cudart", runtime, "-o", str(program), str(SOURCE)]
    subprocess.run([nvcc, *options], check=True)
    libraries = ":".join(library_folders())
    job = Job(tmp_path, [str(program)], environment={"LD_LIBRARY_PATH": libraries})
    try:
        code = job.wait(60)
        said = f"[{program}] has a CUDA runtime of its own inside" in job.errors()
        assert (code == 0, said) == (runtime == "shared", runtime == "static"), job.errors()
        assert said == ("-cudart shared" in job.errors())
    finally:
        job.kill_everything()
