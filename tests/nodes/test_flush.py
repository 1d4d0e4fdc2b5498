"""`pyft run --flush` and `--resume`: all of a job is killed at once, and it goes on elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from job import Job, wait_for

from pyft._native import linux

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

# Another host: no network but its own, and clocks that began 6 days earlier.
EARLIER_S = 500_000
ELSEWHERE = (
    *("unshare", "--net", "--time", "--fork"),
    *("--monotonic", str(EARLIER_S), "--boottime", str(EARLIER_S)),
    *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
)
STEPS = 60
Need = Callable[[str, bool, str], None]


@pytest.fixture(autouse=True)
def _criu(need: Need) -> None:
    why = movable.lacks()
    need("nodes", not why, why)


@contextlib.contextmanager
def killed(job: Job) -> Iterator[None]:
    """Let everything of a job end in the same moment; its processes' numbers are taken until left."""
    pids = job.processes()
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    try:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        job.wait()
        yield
        wait_for(lambda: are_gone(pids), 20, "their numbers are free")
    finally:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)


def are_gone(pids: Iterable[int]) -> bool:
    """Say whether none is left, also of those that become ours when their parents have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def damage(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 16]))


def clocks_of(pid: int) -> int:
    """Return by how many seconds a process's clock is before that of the machine."""
    name, seconds, _ = Path(f"/proc/{pid}/timens_offsets").read_text().splitlines()[0].split()
    assert name == "monotonic"
    return int(seconds)


def test_all_is_lost_with_a_folder_and_the_last_line(tmp_path: Path) -> None:
    """The job goes on from the line before, with parity, other clocks, and no process of before.

    Where one of before is left it does not, and nothing is lost.
    """
    want = movable.undisturbed(tmp_path / "undisturbed", "--steps", str(STEPS))
    folders = [tmp_path / f"flush{at}" for at in range(3)]
    flush = tuple(word for folder in folders for word in ("--flush", str(folder)))
    again = ["--resume" if word == "--flush" else word for word in flush]
    again += ["--flush-every", "0"]
    slow = tmp_path / "slow"
    slow.touch()
    first = movable.start(
        tmp_path / "a",
        *("--steps", str(STEPS), "--slow", str(slow)),
        options=(*flush, "--flush-every", "0"),
        wrapper=ELSEWHERE,
        PYFT_IMAGE_EVERY="3",
    )
    try:
        first.wait_attached()
        wait_for(lambda: len(lines(folders[2])) > 1, 60, first.errors)
        with killed(first):
            refused = Job(tmp_path / "refused", (), options=again)
            assert refused.wait() != 0
            assert "are taken" in refused.errors()
            assert "Traceback" not in refused.errors()
    finally:
        first.kill_everything()
    newest, older = lines(folders[2])[:2]
    shutil.rmtree(folders[0])
    damage(folders[1] / f"line-{newest}" / "data")
    second = Job(tmp_path / "b", (), options=again, environment={"PYFT_IMAGE_EVERY": "10"})
    try:
        wait_for(second.output, 60, second.errors)
        for pid in (second.victim("agent"), movable.client(second, 1)):
            assert abs(clocks_of(pid) - EARLIER_S) < 120, "its clocks go on from the image"
        slow.unlink()
        assert second.wait(120) == 0, second.errors()
        assert f"line [{newest}] is not taken: [2] of [3] cells of stripe" in second.errors()
        assert f"of line [{older}] cells were lost" in second.errors()
        assert movable.results(first) | movable.results(second) == want
        assert f"step={STEPS - 1} " in second.output()
        assert f"step={STEPS - 1} " not in first.output()
        second.assert_nothing_left()
        assert not first.processes()
        assert (folders[0] / "lock").exists(), "it flushes to the same folders, and a new one"
    finally:
        second.kill_everything()


def disk_at(folder: Path, saved: Path, job: Path) -> tuple[str, ...]:
    """Return what starts a job with a disk of its own, whose files are saved at its end.

    Its output is opened there: CRIU finds no mount of another namespace.
    """
    script = f"""
    mount -t tmpfs tmpfs {folder} || exit
    exec </dev/null >>{job}/stdout.txt 2>>{job}/stderr.txt
    "$@"
    code=$?
    cp {folder}/* {saved}
    exit $code
    """
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")


@pytest.mark.long
def test_all_is_lost_with_the_disk_that_has_the_log(tmp_path: Path) -> None:
    """What was in it at the line is there again, each line once."""
    disk, saved, flush = tmp_path / "disk", tmp_path / "saved", tmp_path / "flush"
    for folder in (disk, saved):
        folder.mkdir()
    slow = tmp_path / "slow"
    slow.touch()
    first = movable.start(
        tmp_path / "a",
        *("--steps", str(STEPS), "--slow", str(slow), "--log", str(disk / "log.txt")),
        options=("--flush", str(flush), "--flush-every", "0"),
        wrapper=(*disk_at(disk, saved, tmp_path / "a"), *ELSEWHERE),
        PYFT_IMAGE_EVERY="3",
    )
    try:
        first.wait_attached()
        wait_for(lambda: lines(flush), 60, first.errors)
        with killed(first):
            pass
    finally:
        first.kill_everything()
    slow.unlink()
    wrapper = disk_at(disk, saved, tmp_path / "b")
    second = Job(tmp_path / "b", (), options=("--resume", str(flush)), wrapper=wrapper)
    try:
        assert second.wait(120) == 0, second.errors()
        said = movable.results(first) | movable.results(second)
        for rank in (0, 1):
            written = (saved / f"log.txt.{rank}").read_text().splitlines()
            assert len(written) == len(set(written)) == STEPS
            assert set(written) <= said
        assert not list(disk.iterdir())
        second.assert_nothing_left()
    finally:
        second.kill_everything()


def lines(folder: Path) -> list[int]:
    """Return the numbers of the lines that are there, the newest first."""
    found = [path.name.partition("-")[2] for path in folder.glob("line-*")]
    return sorted((int(number) for number in found if number.isdigit()), reverse=True)
