"""Device memory that processes share, when the server of one of them dies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from job import PYFT, Job, wait_for
from recovery_run import lines

PROGRAM = str(Path(__file__).parent / "programs" / "shared_tensor.py")
SHARES, WORKS = "0", "1"  # ranks: who comes first has the number of the device


def train(jobs: list[Job], folder: Path, *replaced: str) -> tuple[int, list[str], dict]:
    """Replace these ranks in the middle; return exit code, results and report."""
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    options = ("--gpus", "soft:1", "--report", str(report))
    job = Job(folder, [sys.executable, PROGRAM, str(folder / "go")], options=options)
    jobs.append(job)
    wait_for(lambda: "ready" in job.output(), 90, f"it works: {job.errors()}")
    for count, rank in enumerate(replaced, 1):
        line = [PYFT, "replace", "--rank", rank, "--job", str(job.log_dir)]
        subprocess.run(line, check=True, timeout=80)

        def decided(count: int = count) -> bool:
            return job.errors().count("goes on after") + job.errors().count("is not rep") == count

        wait_for(decided, 60, f"[{rank}] is decided: {job.errors()}")
    (folder / "go").touch()
    return job.wait(120), lines(job), json.loads(report.read_text())["recovery"]


def test_what_another_process_shares_is_opened_again(jobs: list[Job], tmp_path: Path) -> None:
    code, wanted, _ = train(jobs, tmp_path / "undisturbed")
    assert (code, len(wanted)) == (0, 7)
    code, got, report = train(jobs, tmp_path / "replaced", WORKS)
    assert code == 0, jobs[-1].errors()
    assert got == wanted, "it reads and writes the same memory"
    assert [(f["rank"], f["outcome"]) for f in report["faults"]] == [(1, "recovered")]
    assert report["verdict"] == "unknown", "nobody has compared what others write"


def test_what_cannot_be_opened_again_is_not_the_programs_error(
    jobs: list[Job], tmp_path: Path
) -> None:
    code, _, report = train(jobs, tmp_path, SHARES, WORKS)
    assert code != 0
    assert "rank [0] had shared memory with other processes" in jobs[-1].errors()
    given_up = report["faults"][-1]
    assert given_up["rank"] == 1
    assert "given up" in given_up["outcome"]
    assert "memory of another process cannot be opened again" in given_up["outcome"]
    assert "gets the error itself" not in jobs[-1].errors()
