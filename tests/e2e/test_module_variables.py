"""Variables of modules are state of the device: a replaced server has them as they were."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nvcc
import pytest
from job import Job
from recovery_run import lines
from vendor import environment

PROGRAMS = Path(__file__).with_name("programs")
STEPS = "6"


@pytest.fixture
def fatbin(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Path:
    need("nvcc", nvcc.present(), "compiles the module")
    made = tmp_path / "module.fatbin"
    source = str(PROGRAMS / "module_counter.cu")
    subprocess.run(nvcc.command(tmp_path, "-fatbin", "-o", str(made), source), check=True)
    return made


def run(
    folder: Path,
    fatbin: Path,
    gpus: str,
    *options: str,
    program: str = "module_counter.py",
    arguments: tuple[str, ...] = (STEPS,),
    code: int = 0,
    **variables: str,
) -> tuple[list[str], dict, str]:
    folder.mkdir()
    report = folder / "report.json"
    job = Job(
        folder,
        [sys.executable, str(PROGRAMS / program), str(fatbin), *arguments],
        options=("--gpus", gpus, *options, "--report", str(report)),
        environment=environment(folder / "driver") | variables,
    )
    try:
        assert job.wait(120) == code, job.output() + job.errors()
        return lines(job), json.loads(report.read_text())["recovery"], job.errors()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("gpus", ["soft:1", "0"])
def test_variables_come_back(tmp_path: Path, fatbin: Path, gpus: str) -> None:
    wanted, _, _ = run(tmp_path / "undisturbed", fatbin, gpus, "--protect", "none")
    assert "counter=58" in wanted[-1]
    fault = ("--inject", "server-kill,rank=0,step=4,call=5")
    got, report, said = run(tmp_path / "disturbed", fatbin, gpus, *fault)
    assert got == wanted
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said


FAULT = ("--inject", "server-kill,rank=0,step=4,call=5")


def test_variables_that_lie_elsewhere_come_back(tmp_path: Path, fatbin: Path) -> None:
    """No driver promises to put a module where it was: kernels do not care."""
    narrow = {"arguments": (STEPS, "1")}
    wanted, _, _ = run(tmp_path / "undisturbed", fatbin, "0", "--protect", "none", **narrow)
    assert "counter=13" in wanted[-1]
    anywhere = {"SOFTGPU_MODULES": "anywhere"}
    got, report, said = run(tmp_path / "disturbed", fatbin, "0", *FAULT, **narrow, **anywhere)
    assert got == wanted
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said
    assert "lie elsewhere than before" in said


def test_an_address_that_the_program_knows_must_not_change(tmp_path: Path, fatbin: Path) -> None:
    _, report, said = run(tmp_path / "job", fatbin, "0", *FAULT, code=1, SOFTGPU_MODULES="anywhere")
    assert report["given_up"] == 1, said
    assert "which the program knows, are at [" in said


@pytest.mark.parametrize("where", ["pinned", "device"])
def test_kernels_that_use_page_locked_memory_are_named(
    tmp_path: Path, fatbin: Path, where: str
) -> None:
    job = tmp_path / "job"
    _, _, said = run(job, fatbin, "soft:1", program="zero_copy.py", arguments=(where,))
    assert ("gives page-locked memory to a kernel" in said) == (where == "pinned")
