"""Trainings under `pyft run --movable`, of which something is killed: for the tests and the sweep."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from job import Job, wait_for

from pyft.agent.process import process_tree
from pyft.images import criu

TRAIN = str(Path(__file__).with_name("programs") / "train.py")
CASE = str(Path(__file__).with_name("programs") / "train_case.py")  # of --case
RANKS = str(Path(__file__).resolve().parents[1] / "ranks.py")


def lacks() -> str:
    """Return why no image can be made here, nothing if one can."""
    return criu.lacks(criu.find())


def start(
    folder: Path,
    *arguments: str,
    ranks: int = 2,
    movable: bool = True,
    options: tuple[str, ...] = (),
    wrapper: tuple[str, ...] = (),
    program: str = TRAIN,
    by_file: bool = True,
    **environment: str,
) -> Job:
    """Start a training. `by_file`: ranks meet by a file; else by TCP, and stay connected."""
    shutil.rmtree(folder / "meet", ignore_errors=True)
    (folder / "meet").mkdir(parents=True)
    meet = ("--store", str(folder / "meet" / "store")) if ranks > 1 and by_file else ()
    launcher = [RANKS, str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, program, *meet, *arguments]
    flags = ("--movable",) if movable else ()
    report = ("--report", str(folder / "report.json"))
    every = {"PYFT_IMAGE_EVERY": "10", "PYFT_PRE_DUMPS": "1"} | environment
    return Job(
        folder,
        command,
        options=("--gpus", f"soft:{ranks}", *flags, *report, *options),
        environment=every,
        wrapper=wrapper,
    )


def results(job: Job) -> set[str]:
    """Return losses and hashes; lines that were repeated count once, if they are equal."""
    return set(job.output().splitlines())


def assert_printed_once(job: Job) -> None:
    """No line stands twice, although steps were repeated."""
    lines = job.output().splitlines()
    assert len(lines) == len(set(lines)), job.output()


def undisturbed(
    folder: Path, *arguments: str, ranks: int = 2, program: str = TRAIN, **environment: str
) -> set[str]:
    """Return the results of the same training without images and faults."""
    started = {"ranks": ranks, "movable": False, "program": program}
    job = start(folder, *arguments, **started, **environment)
    assert job.wait(120) == 0, job.errors()
    return results(job)


def wait_for_step(job: Job, step: int, rank: int = 1) -> None:
    """Wait until a rank has printed a step."""
    text = f"rank={rank} step={step} "
    wait_for(lambda: text in job.output(), 60, lambda: f"{text}: {job.errors()}")


def wait_for_image(job: Job) -> None:
    """Wait until an image of the job counts: it is there, and the processes that it is of go on.

    What lies in memory only the processes of the job can see: its link is looked at.
    """
    folder = job.log_dir / "images"
    stood: dict[Path, int] = {}

    def made() -> bool:
        for path in folder.glob("[0-9]*"):
            before = stood.setdefault(path, len(job.output()))
            if len(job.output()) > before and os.path.lexists(path):
                return True
        return False

    wait_for(made, 60, lambda: f"an image: {job.errors()}")


def client(job: Job, rank: int) -> int:
    """Return the process of a rank, also if the job is in a PID namespace of its own."""
    wanted = next(live["pid"] for live in job.meta()["live"] if live["rank"] == rank)
    below = process_tree.descendants(job.launcher)  # those of an image have the mark of another job
    return next(pid for pid in below if _innermost(pid) == wanted)


def _innermost(pid: int) -> int:
    """Return the number of a process in its own PID namespace; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def faults(folder: Path) -> dict:
    """Return what the report says of recoveries."""
    return json.loads((folder / "report.json").read_text())["recovery"]
