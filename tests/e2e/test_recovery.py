"""Faults in real trainings: the script does not notice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from example_run import Run
from job import PYFT, TRAIN, Job

ASSERT = """
import torch
x = torch.zeros(4, device="cuda")
torch.cuda.synchronize()
wrong = torch.tensor([9], device="cuda")
try:
    print(x[wrong].sum().item())
except torch.AcceleratorError as error:
    print("caught", str(error).splitlines()[0])
"""
# Each rank waits in a collective for the other one, which thinks, or is stopped as by Ctrl-Z.
PAUSES = """
import os, signal, subprocess, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1000, device="cuda")
for slow in (0, 1):
    if rank == slow == 0:
        time.sleep(6)
    elif rank == slow:
        subprocess.Popen(["sh", "-c", f"sleep 6; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(x)
    torch.cuda.synchronize()
assert x[0].item() == 4
dist.destroy_process_group()
"""
HANG_S = "7"  # longer than it takes until something is said
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    line = [PYFT, "run", "--gpus", "soft:1", "--log-dir", str(tmp_path_factory.mktemp("log"))]
    command = [*line, "--", sys.executable, TRAIN, "--steps", "3"]
    return Run(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run(
    jobs: list[Job], folder: Path, command: list[str], *options: str, gpus: int = 1
) -> list[dict]:
    """Run a job to its end; return the faults of its report."""
    report = folder / "report.json"
    line = ("--gpus", f"soft:{gpus}", "--protect", "snapshot", "--report", str(report), *options)
    jobs.append(Job(folder, command, options=line, environment={"PYFT_HANG_S": HANG_S}))
    assert jobs[-1].wait(120) == 0, jobs[-1].errors()
    jobs[-1].assert_nothing_left()
    return json.loads(report.read_text())["recovery"]["faults"]


def train(jobs: list[Job], folder: Path, faults: list[str], *options: str) -> tuple[Run, list]:
    """Train with faults."""
    words = [word for fault in faults for word in ("--inject", fault)]
    command = [sys.executable, TRAIN, "--steps", "3"]
    found = run(jobs, folder, command, *words, *options)
    return Run(jobs[-1].output()), found


def same(one: Run, other: Run) -> bool:
    """Compare losses and parameters, bit by bit."""
    return (one.losses, one.parameters) == (other.losses, other.parameters)


def test_killed_servers(jobs: list[Job], tmp_path: Path, undisturbed: Run) -> None:
    places = ["step=0,call=9", "step=0,call=70,server=2", "step=1,call=1,server=3"]
    places += ["step=1,call=15,server=4"]
    got, found = train(jobs, tmp_path, [f"server-kill,rank=0,{place}" for place in places])
    assert same(got, undisturbed)
    assert [(fault["outcome"], fault["verdict"]) for fault in found] == [("recovered", "exact")] * 4


def test_a_lost_gpu_a_failed_kernel_and_a_hang(
    jobs: list[Job], tmp_path: Path, undisturbed: Run
) -> None:
    faults = ["gpu-lost,rank=0,step=1,call=9", "sticky,rank=0,server=2", "hang,rank=0,server=3"]
    got, found = train(jobs, tmp_path, faults, "--spares", "1")
    assert same(got, undisturbed)
    assert [fault["fault"] for fault in found] == ["gpu-lost", "context-lost", "hang"]
    assert {(fault["gpu_to"], fault["outcome"]) for fault in found} == {(1, "recovered")}
    said = jobs[-1].errors()
    slow = re.findall(r"rank \[0\]: (.*) on GPU \[1\] has not ended for \[5 s\]; pyft (.*)", said)
    assert [end for _, end in slow] == [f"ends its server at [{HANG_S} s] (PYFT_HANG_S)"], said
    assert re.search(r"kernel \[\w{3,}|\[\w+\] \(entry", slow[0][0]), slow
    assert found[2]["total_ms"] > found[2]["phases_ms"]["detect"] >= 7000
    times = re.search(r"goes on after \[([\d.]+) s\] on GPU \[1\]: \[([\d.]+) s\] to notice", said)
    assert times is not None, said
    assert float(times[1]) >= float(times[2]) >= float(HANG_S)


def test_the_first_kernel_hangs(jobs: list[Job], tmp_path: Path, undisturbed: Run) -> None:
    got, found = train(jobs, tmp_path, ["hang,rank=0,step=0,call=1"])
    assert same(got, undisturbed)
    assert [(fault["fault"], fault["outcome"]) for fault in found] == [("hang", "recovered")]


@pytest.mark.long
def test_a_rank_that_thinks_is_no_fault(jobs: list[Job], tmp_path: Path) -> None:
    program = tmp_path / "pauses.py"
    program.write_text(PAUSES)
    command = [TORCHRUN, "--standalone", "--nproc-per-node", "2", str(program)]
    assert run(jobs, tmp_path, command, gpus=2) == []


def test_an_assert_of_the_program_is_its_own_error(jobs: list[Job], tmp_path: Path) -> None:
    found = run(jobs, tmp_path, [sys.executable, "-c", ASSERT], "--spares", "1")
    assert "caught CUDA error: device-side assert triggered" in jobs[-1].output()
    assert [fault["mode"] for fault in found] == ["normal", "serial", "deliver"]
    assert [fault["gpu_to"] for fault in found] == [0, 1, 1]
    assert found[-1]["outcome"] == "error delivered"
    # Four servers have met it; the user is told once, with the names of the source.
    said = [line for line in jobs[-1].errors().splitlines() if "assertion [" in line]
    assert len(said) == 1, said
    assert "index_elementwise_kernel<" in said[0]
