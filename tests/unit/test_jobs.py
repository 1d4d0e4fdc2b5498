"""Folders of jobs, and which rings a target of `pyft trace` means."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

import pyft
from pyft.agent.channel import channel, untrusted
from pyft.agent.job import job_folder, kept_jobs
from pyft.api import jobs
from pyft.cli import env
from pyft.errors import PyftError, TraceError
from pyft.report import history
from pyft.trace import targets
from pyft.wire.layout import LOG_HEADER


def test_places_that_share_a_folder_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts begin in the same second, and containers number processes alike."""
    monkeypatch.setattr(job_folder.time, "strftime", lambda _: "20260101-000000")
    names = {job_folder.new_job_name(place) for place in (None, 0, 1)}
    assert len(names) == 3


@pytest.mark.parametrize("reason", ["unreadable", "no home"])
def test_jobs_that_cannot_be_listed_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    """As where HOME is /root and the user another one, or where there is neither HOME nor user."""
    mine = tmp_path / "mine"
    mine.mkdir()
    job_folder.write_meta(mine, {"job": "mine", "state": "running", "recovery": {"faults": []}})
    home = "/" + "x" * 300 if reason == "unreadable" else "~/.local/state"
    monkeypatch.setenv("XDG_STATE_HOME", home)
    said = "cannot be read: File name too long" if reason == "unreadable" else "set HOME"
    looks = (pyft.status, pyft.faults, lambda: history.find(None), lambda: targets.find(None))
    for look in looks:
        with pytest.raises(PyftError, match=said):
            look()
    monkeypatch.setattr(job_folder, "is_live", lambda meta: meta.get("job") == "mine")
    assert pyft.faults(mine) == []
    assert jobs.only(str(mine))[0] == mine  # as an order in a job with --log-dir
    assert any(said in line for line in env._last_job())
    kept_jobs.remove_old(mine)


@pytest.fixture
def state() -> Path:
    folder = job_folder.state_folder()
    for number in range(3):
        path = folder / f"20260101-00000{number}-{number}"
        path.mkdir(parents=True)
        entry = {"name": "rank0-pid5-dev0", "pid": 5, "server_pid": 6, "file": "a.ring"}
        job_folder.write_meta(path, {"job": path.name, "state": "ended", "channels": [entry]})
        (path / "a.ring").touch()
    return folder


def test_latest_job_is_the_default(state: Path) -> None:
    direct = state / "20260101-000009-9"
    direct.mkdir()
    job_folder.write_meta(direct, {"direct": True, "channels": []})
    (ring,) = targets.find(None)
    assert ring.path == state / "20260101-000002-2" / "a.ring"


def test_targets(state: Path) -> None:
    job = state / "20260101-000001-1"
    for target in (job.name, str(job), str(job / "a.ring")):
        (ring,) = targets.find(target)
        assert ring.path == job / "a.ring"


def test_no_target(state: Path) -> None:
    with pytest.raises(TraceError, match=r"\[nothing\]"):
        targets.find("nothing")
    with pytest.raises(TraceError, match=r"process \[4\] belongs to no job"):
        targets.find("4")


def test_names_in_meta_cannot_leave_the_folder(state: Path) -> None:
    job = state / "20260101-000002-2"
    job_folder.write_meta(job, {"channels": [{"file": "../../etc/passwd"}]})
    (ring,) = targets.find(job.name)
    assert ring.path == job / "passwd"


def log_object(tmp_path: Path, **fields: int) -> int:
    """Return a file of 1 MiB that looks like a log object."""
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    for name, value in fields.items():
        LOG_HEADER[name].put(fd, value)
    return fd


AREAS = untrusted.Areas(4096, 65536, 69632, 4096, 500000, 9999)


def test_saved_log_is_a_sparse_copy(tmp_path: Path) -> None:
    fd = log_object(tmp_path, **asdict(AREAS), appended=200, arena_head=10**15)
    os.pwrite(fd, b"ring", AREAS.ring_offset)
    os.pwrite(fd, b"beyond", AREAS.ring_offset + 60000)
    os.pwrite(fd, b"arena", AREAS.arena_offset)
    channel.save_log(fd, tmp_path / "copy", AREAS)
    copy = (tmp_path / "copy").read_bytes()
    assert len(copy) == 1 << 20
    assert copy[AREAS.ring_offset :].startswith(b"ring")
    assert copy[AREAS.arena_offset :].startswith(b"arena")
    assert b"beyond" not in copy
    assert untrusted.log_header(fd)["appended"] == 200
    os.close(fd)


def test_a_damaged_header_hides_nothing_of_a_saved_log(tmp_path: Path) -> None:
    fd = log_object(tmp_path, ring_offset=2**63, ring_bytes=2**62, appended=2**60)
    os.pwrite(fd, b"ring", AREAS.ring_offset)
    channel.save_log(fd, tmp_path / "copy", AREAS)
    copy = (tmp_path / "copy").read_bytes()
    assert len(copy) == 1 << 20
    assert copy[AREAS.ring_offset :].startswith(b"ring")
    assert LOG_HEADER.read(copy, *asdict(AREAS)) == asdict(AREAS)
    os.close(fd)
