"""A job takes a folder: alone, and so that it is found among the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyft.agent.job import job_folder, kept_jobs, own_folder, supervisors
from pyft.api import jobs
from pyft.errors import UsageError
from pyft.report import history

JOB = "20260101-000000-1"
RUNS: dict[str, Any] = {"state": "running", "supervisor_pid": os.getpid()}


@pytest.fixture(autouse=True)
def _locks_go_with_the_test(tmp_path: Path) -> Iterator[None]:
    """A job's processes hold its lock as long as they live: these are all this one."""
    yield
    for fd in _locks(tmp_path):
        os.close(fd)


def test_two_jobs_never_have_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_folder, "WAIT_S", 0.2)
    own_folder.take(JOB, tmp_path / "log")
    with pytest.raises(UsageError, match=r"log\] is in use by a job that runs"):
        own_folder.take("20260101-000000-2", tmp_path / "log")
    own_folder.take("20260101-000000-2", tmp_path / "other")


def test_jobs_of_one_second_and_number_have_folders_of_their_own() -> None:
    """Containers number processes alike, and may begin in the same second."""
    for name in (JOB, f"{JOB}-place-3"):
        taken = [own_folder.take(name, None) for _ in range(3)]
        assert len({folder for _, folder in taken}) == 3
        assert [folder.name for _, folder in taken] == [job for job, _ in taken]
        assert taken[0][0] == name
    assert len(job_folder.jobs()) == 6


def test_a_job_begins_without_what_another_one_has_left(tmp_path: Path) -> None:
    for name in ("meta.json", "timeline.jsonl", "notes.txt"):
        (tmp_path / name).write_text("{}")
    own_folder.take(JOB, tmp_path)
    assert not (tmp_path / "meta.json").exists()
    assert not (tmp_path / "timeline.jsonl").exists()
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/log\] cannot be used \(Not a directory\)"):
        own_folder.take(JOB, tmp_path / "file" / "log")


# ---3
def begin(job: str, folder: Path, **more: Any) -> None:
    own_folder.take(job, folder)
    identity = supervisors.identity(os.getpid())
    meta = {"job": job, "recovery": {"faults": []}} | RUNS | identity | more
    job_folder.write_meta(folder, meta)


def test_a_place_is_found_as_other_jobs_are() -> None:
    name = job_folder.new_job_name(0)
    _, folder = own_folder.take(name, None)
    assert job_folder.jobs() == [folder]


def test_a_job_in_a_named_folder_is_found_as_others_are(tmp_path: Path) -> None:
    """Or an order that names none would go to the only one that is left."""
    begin(JOB, tmp_path / "log")
    ((folder, _),) = jobs.live_jobs(None)
    assert folder == tmp_path / "log"
    assert jobs.only(JOB)[0] == history.find(None) == history.find(JOB) == folder
    _, other = own_folder.take("20260101-000000-2", None)
    job_folder.write_meta(other, {"job": other.name} | RUNS | supervisors.identity(os.getpid()))
    with pytest.raises(jobs.TraceError, match="say which"):
        jobs.only(None)
    with pytest.raises(jobs.TraceError, match="is no running job"):
        jobs.only("log")  # many folders may have this name


def test_a_named_folder_may_lie_among_those_of_jobs() -> None:
    folder = job_folder.state_folder() / "mine"
    begin(JOB, folder)
    assert [one.name for one in job_folder.jobs()] == [JOB]
    assert jobs.live_jobs(JOB)[0][0] == folder


def test_a_named_folder_is_listed_once(tmp_path: Path) -> None:
    begin(JOB, tmp_path / "log", state="ended")
    _release(tmp_path / "log")
    begin("20260101-000000-2", tmp_path / "log")
    assert [one.name for one in job_folder.jobs()] == ["20260101-000000-2"]


def test_a_link_stays_as_long_as_its_job_runs(tmp_path: Path) -> None:
    """Elsewhere it may lead nowhere; what nothing renews for a day is removed, not the folder."""
    state = job_folder.state_folder()
    begin(JOB, tmp_path / "log")
    link = state / JOB
    old = state / "20260101-000000-3"
    old.symlink_to(tmp_path / "gone")
    new = state / "20260101-000000-4"
    new.symlink_to(tmp_path / "gone")
    for one in (link, old):
        os.utime(one, (1.0, 1.0), follow_symlinks=False)
    own_folder.stay_listed(JOB, tmp_path / "log")
    assert link.lstat().st_mtime > 1.0
    assert kept_jobs.superfluous_links(state, tmp_path, 0) == [old]
    link.unlink()
    own_folder.stay_listed(JOB, tmp_path / "log")
    assert link.is_symlink()


def test_of_jobs_in_named_folders_the_last_links_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_KEEP_JOBS", "1")
    for number in range(1, 4):
        begin(f"20260101-000000-{number}", tmp_path / str(number), state="ended")
    kept_jobs.remove_old(tmp_path / "3")
    assert [one.name[-1] for one in job_folder.jobs()] == ["2", "3"]
    assert all((tmp_path / str(number) / "meta.json").exists() for number in range(1, 4))


def _release(folder: Path) -> None:
    """Close the lock that this process has, as when a job has ended."""
    (held,) = _locks(folder)
    os.close(held)


def _locks(below: Path) -> list[int]:
    """Return the descriptors of all locks of this process in a folder, or in one below it."""
    links = ((fd, _link_of(fd)) for fd in map(int, os.listdir("/proc/self/fd")))
    return [fd for fd, link in links if link.name == "lock" and below in link.parents]


def _link_of(fd: int) -> Path:
    try:
        return Path(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:  # of the folder that was listed
        return Path()
