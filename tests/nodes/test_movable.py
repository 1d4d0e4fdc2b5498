"""`pyft run --movable`: a process of the script is killed, and the job goes on with equal results."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from job import wait_for

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

from pyft.images import criu, packet_filter, reopened, tree  # noqa: E402

# The session's leader is outside of the PID namespace, as for what a container's host starts in it.
# Files are opened again, since those of the test are in a mount namespace that CRIU does not see.
REOPEN = """
exec </dev/null >>"$(readlink /proc/$$/fd/1)" 2>>"$(readlink /proc/$$/fd/2)" "$0" "$@"
"""
OTHER_SESSION = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", REOPEN)
STEPS = ("--steps", "60", "--pause", "0.03")
Need = Callable[[str, bool, str], None]


@pytest.fixture(autouse=True)
def _criu(need: Need) -> None:
    why = movable.lacks()
    need("nodes", not why, why)


@cache
def expected(ranks: int = 2) -> frozenset[str]:
    """Return the results without any fault."""
    with TemporaryDirectory() as folder:
        return frozenset(movable.undisturbed(Path(folder), "--steps", "60", ranks=ranks))


@pytest.mark.parametrize(
    ("ranks", "rank", "wrapper"),
    [(1, 0, OTHER_SESSION), pytest.param(2, 0, (), marks=pytest.mark.long), (2, 1, ())],
)
def test_a_client_is_killed(
    tmp_path: Path, ranks: int, rank: int, wrapper: tuple[str, ...]
) -> None:
    """Without --movable this is the end of the job."""
    job = movable.start(tmp_path, *STEPS, ranks=ranks, wrapper=wrapper)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 30, rank)
        os.kill(movable.client(job, rank), signal.SIGKILL)
        assert job.wait(120) == 0, job.errors()
        assert "all go back to the image of step" in job.errors()
        assert movable.results(job) == expected(ranks)
        movable.assert_printed_once(job)
        verdicts = {fault["verdict"] for fault in movable.faults(tmp_path)["faults"]}
        assert verdicts == {"exact"}
        job.assert_nothing_left()
        assert not (job.log_dir / "images").exists()
    finally:
        job.kill_everything()


@pytest.mark.long
def test_two_clients_are_killed_one_after_the_other(tmp_path: Path) -> None:
    """The second time a client is killed that was restored."""
    job = movable.start(tmp_path, *STEPS)
    try:
        for step, rank in ((20, 1), (40, 0)):
            movable.wait_for_image(job)
            movable.wait_for_step(job, step, rank)
            os.kill(movable.client(job, rank), signal.SIGKILL)
            said = 1 + (step > 20)
            wait_for(lambda n=said: job.errors().count("all go back") == n, 20, job.errors)
            wait_for(lambda n=said: job.errors().count("has taken over") == n, 60, job.errors)
        assert job.wait(120) == 0, job.errors()
        assert movable.results(job) == expected()
        movable.assert_printed_once(job)
        job.assert_nothing_left()
    finally:
        job.kill_everything()


def test_logs_that_are_appended_to_have_each_line_once(tmp_path: Path) -> None:
    """Some are kept open, some are opened for each line. One of these is older than the job."""
    logs = ("--log", str(tmp_path / "log.txt"), "--each", str(tmp_path / "each.txt"))
    (tmp_path / "each.txt.0").write_text("of a job before\n")
    job = movable.start(tmp_path, *STEPS, *logs)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 30)
        os.kill(movable.client(job, 1), signal.SIGKILL)
        assert job.wait(120) == 0, job.errors()
        assert "all go back to the image of step" in job.errors()
        for name, before in (
            ("log.txt.0", 0),
            ("log.txt.1", 0),
            ("each.txt.0", 1),
            ("each.txt.1", 0),
        ):
            lines = (tmp_path / name).read_text().splitlines()
            assert len(lines) == len(set(lines)) == 60 + before, name
        job.assert_nothing_left()
        assert not (job.log_dir / reopened.NAME).exists()
    finally:
        job.kill_everything()


@pytest.mark.long
def test_the_agent_is_killed_while_it_restores(tmp_path: Path) -> None:
    """The next one begins the restore again."""
    job = movable.start(tmp_path, *STEPS)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 30)
        agent = job.victim("agent")
        os.kill(movable.client(job, 1), signal.SIGKILL)
        wait_for(lambda: "all go back" in job.errors(), 20, "the restore begins")
        os.kill(agent, signal.SIGKILL)
        assert job.wait(120) == 0, job.errors()
        assert movable.results(job) == expected()
        job.assert_nothing_left()
    finally:
        job.kill_everything()


@pytest.mark.long
def test_client_and_agent_are_killed_at_once(tmp_path: Path) -> None:
    """The next agent finds a client that was killed before it came."""
    job = movable.start(tmp_path, *STEPS)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 30)
        with job.without_agent():
            os.kill(movable.client(job, 1), signal.SIGKILL)
        assert job.wait(120) == 0, job.errors()
        assert movable.results(job) == expected()
        job.assert_nothing_left()
    finally:
        job.kill_everything()


# CRIU of which each dump waits at its end, while the file `armed` is there and `go` is not. It holds
# all that it has cut by then. With `fails` it ends there, as it does when a process dies in which its
# own code runs: nothing is let go.
WAITING_CRIU = """#!/bin/sh
here=$(dirname "$0")
if [ "$CRTOOLS_SCRIPT_ACTION" ]; then
    [ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
    touch "$here/waits"
    while [ ! -e "$here/go" ]; do sleep 0.05; done
    [ ! -e "$here/fails" ] || kill -KILL $PPID
    exit 0
fi
[ "$1" = dump ] && [ -e "$here/armed" ] && exec {criu} "$@" --action-script "$0"
exec {criu} "$@"
"""


@pytest.mark.parametrize("then", ["goes on", "hangs", "fails"])
def test_a_client_is_killed_while_criu_dumps(tmp_path: Path, then: str) -> None:
    """What CRIU has cut by then would stay cut: the ranks' connection is restored, and used."""
    program = tmp_path / "bin" / "criu"
    program.parent.mkdir()
    program.write_text(WAITING_CRIU.format(criu=criu.find()))
    program.chmod(0o700)
    job = movable.start(tmp_path, *STEPS, by_file=False, PYFT_CRIU=str(program))
    try:
        movable.wait_for_image(job)
        (program.parent / "armed").touch()
        wait_for((program.parent / "waits").exists, 60, job.errors)
        (program.parent / "armed").unlink()
        ranks = [movable.client(job, 0), movable.client(job, 1)]
        cut = tree.filter_keys(tree.connections(ranks))
        assert packet_filter.cutting(cut)
        os.kill(movable.client(job, 1), signal.SIGKILL)
        wait_for(lambda: "all go back" in job.errors(), 60, job.errors)
        if then == "fails":
            (program.parent / "fails").touch()
        if then != "hangs":
            (program.parent / "go").touch()
        assert job.wait(120) == 0, job.errors()
        assert packet_filter.cutting(cut) == []
        assert movable.results(job) == expected()
        job.assert_nothing_left()
    finally:
        (program.parent / "go").touch()
        job.kill_everything()


def test_a_file_open_for_writing_is_named(tmp_path: Path) -> None:
    """There is no image then, and nothing else is lost."""
    written = str(tmp_path / "written.txt")
    job = movable.start(tmp_path, *STEPS, "--written", written, ranks=1)
    try:
        assert job.wait(120) == 0, job.errors()
        assert f"no image of this step: [{written}] is open for writing" in job.errors()
        assert movable.results(job) == expected(1)
    finally:
        job.kill_everything()


def test_ranks_whose_steps_have_parted_are_not_held_in_vain(tmp_path: Path) -> None:
    """One is held, and the other waits for it in a collective: that is seen, and all go on."""
    job = movable.start(tmp_path, *STEPS, "--parted", "1", PYFT_IMAGE_EVERY="5")
    try:
        assert job.wait(120) == 0, job.errors()
        assert "wait for others, and clients" in job.errors()
    finally:
        job.kill_everything()


def test_a_script_that_fails_is_not_restored(tmp_path: Path) -> None:
    """An exit that the program has chosen is its end; so is a SIGTERM."""
    job = movable.start(tmp_path, *STEPS)
    try:
        movable.wait_for_image(job)
        movable.wait_for_step(job, 30)
        os.kill(movable.client(job, 1), signal.SIGTERM)
        assert job.wait(60) == 1
        assert "all go back" not in job.errors()
    finally:
        job.kill_everything()


def test_without_criu_one_sentence_says_what_is_lost(tmp_path: Path) -> None:
    job = movable.start(tmp_path, *STEPS, ranks=1, PYFT_CRIU="/bin/false")
    try:
        assert job.wait(120) == 0, job.errors()
        assert job.errors().count("a process that is killed ends the job") == 1
        assert movable.results(job) == expected(1)
    finally:
        job.kill_everything()
