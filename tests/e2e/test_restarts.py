"""torchrun begins again after a rank has failed: nothing of the attempt before is in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from job import Job
from recovery_run import TORCHRUN

RESTARTED = str(Path(__file__).parent / "programs" / "restarted.py")


def results(folder: Path, raise_at: int, *options: str) -> tuple[list[str], str]:
    """Return what the last attempt has printed, which must end well, and what was said."""
    folder.mkdir()
    launcher = [TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    job = Job(folder, [*launcher, RESTARTED, str(raise_at)], options=("--gpus", "soft:2", *options))
    try:
        assert job.wait(150) == 0, job.errors()
        job.assert_nothing_left()
    finally:
        job.kill_everything()
    attempt = "attempt 1 " if raise_at >= 0 else "attempt 0 "
    lines = [line for line in job.output().splitlines() if line.startswith(attempt)]
    return sorted(line.removeprefix(attempt) for line in lines), job.errors()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    got, _ = results(tmp_path_factory.mktemp("restarts") / "none", -1)
    assert len(got) == 2 * 4
    return got


def test_the_second_attempt_trains_to_the_end(undisturbed: list[str], tmp_path: Path) -> None:
    got, _ = results(tmp_path / "one", 1)
    assert got == undisturbed
