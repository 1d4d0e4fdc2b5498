"""Servers that stand by load the program's modules beforehand, with the soft GPU under the vendor's names."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for
from recovery_run import command, lines
from vendor import environment

PROGRAM = str(Path(__file__).with_name("programs") / "steady.py")
QUIET_S = 1.2  # twice as long as one that stands by rests at most


def run(
    folder: Path,
    *extras: str,
    kill: int | None = 0,
    gpus: str = "0",
    options: tuple[str, ...] = ("--standby", "all"),
    before: Callable[[Job], None] = lambda job: None,
    **variables: str,
) -> tuple[list[str], list[dict], Job]:
    """Return results and faults; rank `kill`'s server is killed when nobody has anything to do.

    `before`: what happens before that, when the ranks stand still.
    """
    folder.mkdir()
    report = folder / "report.json"
    ranks = gpus.count(",") + 1
    job = Job(
        folder,
        command(PROGRAM, ranks, (str(folder), *extras)),
        options=("--gpus", gpus, *options, "--report", str(report)),
        environment=environment(folder / "driver", 2) | variables,
    )
    try:
        if "fill" in extras:
            wait_for(lambda: (folder / "filling").exists(), 120, "it is about to fill the memory")
            wait_for(lambda: standing_by(job), 30, "a server stands by")
            wait_until_quiet(job)
            (folder / "fill").touch()
        if kill is not None:
            standing = [folder / f"standing-{rank}" for rank in range(ranks)]
            wait_for(lambda: all(path.exists() for path in standing), 120, "it stands still")
            before(job)
            wait_for(lambda: standing_by(job), 30, "a server stands by")
            wait_until_quiet(job)
            end_server(job, kill, spare=ranks if "--spares" in options else None)
        (folder / "go").touch()
        assert job.wait(120) == 0, job.errors()
        job.assert_nothing_left()
        return lines(job), json.loads(report.read_text())["recovery"]["faults"], job
    finally:
        job.kill_everything()


def server_of(job: Job, rank: int) -> int:
    return next(one["server_pid"] for one in job.meta()["live"] if one["rank"] == rank)


def end_server(job: Job, rank: int, spare: int | None) -> None:
    """Kill the server of a rank, or move it to a GPU that nobody uses."""
    if spare is None:
        os.kill(server_of(job, rank), signal.SIGKILL)
        return
    line = [PYFT, "replace", "--rank", str(rank), "--gpu", str(spare), "--job", str(job.log_dir)]
    subprocess.run(line, check=True, timeout=80)


def standing_by(job: Job) -> list[int]:
    serving = {one["server_pid"] for one in job.meta()["live"]}
    found = []
    for pid in job.processes():
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        if pid not in serving and b"\0PYFT_STANDBY=" in b"\0" + environ:
            found.append(pid)
    return found


def wait_until_quiet(job: Job) -> None:
    """Wait until servers that stand by have used next to no processor time for a while."""

    def used() -> int:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in standing_by(job)]
        return sum(int(stat.rpartition(")")[2].split()[11]) for stat in stats)

    before, since, deadline = used(), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < QUIET_S:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        if (now := used()) > before:
            before, since = now, time.monotonic()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    got, _, _ = run(folder / "job", kill=None, options=("--protect", "none"))
    assert len(got) == 9
    return got


@pytest.fixture(scope="module")
def two_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("two_undisturbed")
    return run(folder / "job", "sort", kill=None, gpus="0,0")[0]


def test_a_server_that_stood_by_has_the_modules(tmp_path: Path, undisturbed: list[str]) -> None:
    got, (fault,), job = run(tmp_path / "job")
    assert got == undisturbed
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact"), job.errors()
    assert fault["ready_modules"] > 5, job.errors()


def test_it_can_be_left_out(tmp_path: Path, undisturbed: list[str]) -> None:
    got, (fault,), job = run(tmp_path / "job", PYFT_STANDBY_MODULES="0")
    assert got == undisturbed
    assert (fault["outcome"], fault["ready_modules"]) == ("recovered", 0), job.errors()


def test_modules_that_would_lie_elsewhere_anyway_are_used(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    """Each process has its own places, and they are the ones that modules loaded now would have."""
    got, (fault,), job = run(tmp_path / "job", SOFTGPU_MODULES="anywhere")
    assert got == undisturbed
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact"), job.errors()
    assert fault["ready_modules"] > 5, job.errors()
    assert "lie elsewhere than before" in job.errors()


def test_the_agent_dies_meanwhile(tmp_path: Path, undisturbed: list[str]) -> None:
    """The next one has servers of its own stand by, and tells them where the modules are."""

    def before(job: Job) -> None:
        wait_for(lambda: standing_by(job), 30, "a server stands by")
        job.kill_agent()
        wait_for(lambda: not standing_by(job), 30, "it ends with its agent")

    got, (fault,), job = run(tmp_path / "job", before=before)
    assert got == undisturbed
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact"), job.errors()
    assert fault["ready_modules"] > 5, job.errors()


def test_a_spare_has_the_modules(tmp_path: Path, undisturbed: list[str]) -> None:
    got, (fault,), job = run(tmp_path / "job", options=("--spares", "1"))
    assert got == undisturbed
    assert (fault["gpu_from"], fault["gpu_to"]) == (0, 1)
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact"), job.errors()
    assert fault["ready_modules"] > 5, job.errors()


def test_a_spare_for_several_ranks(tmp_path: Path, two_undisturbed: list[str]) -> None:
    """It has loaded them in another order than rank 1 has: a soft GPU has them in other places."""
    options = ("--spares", "1")
    got, (fault,), job = run(tmp_path / "job", "sort", kill=1, gpus="0,0", options=options)
    assert got == two_undisturbed
    assert (fault["rank"], fault["outcome"], fault["verdict"]) == (1, "recovered", "exact")
    assert fault["gpu_to"] == 2, job.errors()


@pytest.mark.parametrize("rank", [1])
def test_ranks_have_other_modules(tmp_path: Path, two_undisturbed: list[str], rank: int) -> None:
    got, (fault,), job = run(tmp_path / "job", "sort", kill=rank, gpus="0,0")
    assert got == two_undisturbed
    assert (fault["rank"], fault["outcome"], fault["verdict"]) == (rank, "recovered", "exact")
    assert fault["ready_modules"] > 5, job.errors()


def test_a_program_that_needs_all_memory_gets_it(tmp_path: Path, undisturbed: list[str]) -> None:
    """What stands by gives its modules back before the program is told that there is no memory."""
    got, (fault,), job = run(tmp_path / "job", "fill", SOFTGPU_MEMORY=str(1 << 30))
    assert got == undisturbed
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact"), job.errors()
    found = re.search(r"full after=(\d+) seconds=([\d.]+)", job.output())
    assert found is not None, job.output()
    assert int(found[1]) > 20
    assert float(found[2]) < 4, "it was answered"
    assert fault["ready_modules"] == 0, "they were given back, for good"
