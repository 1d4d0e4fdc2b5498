"""Images with pre-dumps, where the kernel tracks writes: `make test-guest` runs this on such a one."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from job import Job, wait_for

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

from pyft.images import criu  # noqa: E402

STEPS = ("--steps", "40", "--ballast", "200")
LACKS = (
    "the kernel does not track writes (CONFIG_MEM_SOFT_DIRTY): make test-guest has one that does"
)

# Says when it pre-dumps, and waits then: the agent is to be killed.
WAITS = """#!/bin/sh
if [ "$1" = pre-dump ] && [ ! -e {folder}/go ]; then
    touch {folder}/pre-dumps
    while [ ! -e {folder}/go ]; do sleep 0.1; done
fi
exec {criu} "$@"
"""


@pytest.fixture(autouse=True)
def _tracks(need: Callable[[str, bool, str], None]) -> None:
    program, why = criu.find(), movable.lacks()
    need("nodes", not why, why)
    need("softdirty", program is not None and criu.tracks_writes(program), LACKS)


@cache
def expected() -> frozenset[str]:
    """Return the results without images and faults."""
    with TemporaryDirectory() as folder:
        return frozenset(movable.undisturbed(Path(folder), "--steps", "40", ranks=1))


def images(job: Job) -> list[dict[str, float]]:
    """Return what the images of the last agent have cost."""
    return json.loads((job.log_dir / "meta.json").read_text())["images"]


def test_a_client_comes_back_from_an_image_with_a_pre_dump(tmp_path: Path) -> None:
    job = movable.start(tmp_path, *STEPS, "--pause", "0.03", ranks=1)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 15, 0)
        folder = next((job.log_dir / "images").glob("[0-9]*"))
        assert "used" in job.ask("status").stdout
        os.kill(movable.client(job, 0), signal.SIGKILL)
        assert job.wait(120) == 0, job.errors()
        assert "all go back to the image of step" in job.errors()
        assert "pre-dump" not in job.errors(), "none has failed"
        assert movable.results(job) == expected()
        movable.assert_printed_once(job)
        made = images(job)
        assert made
        assert all(image["pre_dump_s"] > 0 for image in made)
        job.assert_nothing_left()
        assert not folder.parent.exists()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("who", ["agent", "client"])
def test_agent_or_client_is_killed_in_a_pre_dump(tmp_path: Path, who: str) -> None:
    """The first image has none that counts before it: a client's death ends the job."""
    program = tmp_path / "criu"
    program.write_text(WAITS.format(folder=tmp_path, criu=criu.find()))
    program.chmod(0o755)
    job = movable.start(tmp_path, *STEPS, "--pause", "0.1", ranks=1, PYFT_CRIU=str(program))
    try:
        wait_for((tmp_path / "pre-dumps").exists, 120, job.errors)
        if who == "agent":
            os.kill(job.victim("agent"), signal.SIGKILL)
            wait_for(lambda: "has taken over" in job.errors(), 60, job.errors)
        else:
            os.kill(movable.client(job, 0), signal.SIGKILL)
        (tmp_path / "go").touch()
        code = job.wait(120)
        if who == "agent":
            assert code == 0, job.errors()
            assert movable.results(job) == expected()
            assert images(job)
        else:
            assert code
            assert "there is no image yet" in job.errors()
        job.assert_nothing_left()
        assert not (job.log_dir / "images").exists()
    finally:
        job.kill_everything()
