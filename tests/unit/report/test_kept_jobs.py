"""Which finished jobs are kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sample
from typer.testing import CliRunner

from pyft.agent.job import job_folder, kept_jobs, supervisors
from pyft.agent.job.job_meta import JobMeta
from pyft.agent.job.kept_jobs import Kind
from pyft.api import jobs
from pyft.cli.main import app
from pyft.errors import TraceError
from pyft.report import history
from pyft.trace import targets

CLIENT = {"name": "rank0-pid5-dev0", "pid": 5}
PLAIN: dict[str, Any] = {"state": "ended", "channels": [CLIENT]}
FAULT = sample.as_fields(sample.fault())
FAULTY: dict[str, Any] = PLAIN | {"recovery": {"faults": [FAULT]}}
MISTYPED: dict[str, Any] = {"state": "not started", "channels": []}
MOST = 1 << 30


def job(number: int, meta: dict[str, Any]) -> Path:
    folder = job_folder.state_folder() / f"20260101-{number:06}-{number}"
    folder.mkdir(parents=True)
    job_folder.write_meta(folder, meta)
    return folder


def gone(folders: list[Path], keep: int, most: int = MOST, size: int = 1) -> list[Path]:
    return kept_jobs.superfluous(dict.fromkeys(folders, size), folders[-1], keep, most)


def test_the_kinds_of_jobs() -> None:
    kind = kept_jobs.kind_of
    assert kind(FAULTY) == kind(PLAIN | {"recovery": {"earlier": [{"count": 2}]}}) == Kind.FAULTY
    assert kind(PLAIN) == kind({"state": "the agent was killed", "live": [CLIENT]}) == Kind.PLAIN
    assert kind({"direct": True, "state": "ended"}) == Kind.PLAIN
    assert kind({"direct": True, "state": "not started"}) == Kind.UNUSED
    assert kind(MISTYPED) == kind({}) == Kind.UNUSED


def test_typing_errors_push_nothing_out() -> None:
    fault, plain = job(0, FAULTY), job(1, PLAIN)
    errors = [job(2 + number, MISTYPED) for number in range(5)]
    assert gone([fault, plain, *errors], keep=2) == errors[:3]


def test_a_job_with_faults_outlives_those_without() -> None:
    fault = job(0, FAULTY)
    later = [job(1 + number, PLAIN) for number in range(5)]
    assert gone([fault, *later], keep=3) == later[:2]


def test_large_jobs_go_before_they_are_many_and_the_own_one_stays() -> None:
    fault = job(0, FAULTY)
    later = [job(1 + number, PLAIN) for number in range(3)]
    error, own = job(4, MISTYPED), job(5, PLAIN)
    all_of_them = [fault, *later, error, own]
    assert gone(all_of_them, keep=9, most=60, size=10) == []
    assert gone(all_of_them, keep=9, most=45, size=10) == [error, later[0]]
    assert gone(all_of_them, keep=9, most=5, size=10) == [error, *later, fault]


@pytest.mark.parametrize("keep", [0, -1])
def test_none_is_kept_but_the_own_one(keep: int) -> None:
    jobs = [job(number, PLAIN) for number in range(3)]
    assert gone(jobs, keep) == jobs[:2]


def test_a_job_that_runs_or_begins_is_left_alone() -> None:
    begins = job_folder.state_folder() / "20260101-000000-7"
    begins.mkdir(parents=True)
    stale = job_folder.state_folder() / "20260101-000001-8"
    stale.mkdir()
    os.utime(stale, (1.0, 1.0))
    own, other = job(3, PLAIN), job(4, MISTYPED)
    found = kept_jobs.superfluous(dict.fromkeys([begins, stale, own, other], 10), own, 1, 1)
    assert found == [stale, other]


def running(number: int, **more: Any) -> Path:
    """Return the folder of a job whose supervisor is this process, unless `more` says otherwise."""
    here = {"supervisor_pid": os.getpid(), **supervisors.identity(os.getpid())}
    return job(number, PLAIN | {"state": "running", "written": time.time()} | here | more)


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"pid_namespace": 1}])
def test_a_job_of_another_host_or_container_is_left_alone(elsewhere: dict[str, Any]) -> None:
    """Its supervisor has the pid of one here, or of none: that says nothing of it."""
    other, here = running(0, **elsewhere, supervisor_pid=2**22 + 1), running(1)
    silent = running(2, **elsewhere, written=time.time() - 2 * supervisors.SILENT_S)
    ended, own = job(3, PLAIN), job(4, PLAIN)
    assert gone([other, here, silent, ended, own], keep=1, most=1) == [silent, ended]
    metas = [job_folder.read_meta(folder) for folder in (other, here, silent)]
    assert [job_folder.is_live(meta) for meta in metas] == [False, True, False]
    said = ["runs elsewhere, or died there", "running", "died with launcher and supervisor"]
    assert [history.state_of(meta) for meta in metas] == said
    for look in (jobs.live_jobs, targets.find):
        with pytest.raises(TraceError, match=r"on another host or in another container"):
            look(other.name)


def test_a_pid_that_another_process_of_pyft_has_now_is_no_job_that_runs() -> None:
    """As the supervisor's in the next container, which numbers processes anew."""
    meta = job_folder.read_meta(running(0))
    assert job_folder.is_live(meta)
    assert not job_folder.is_live(meta | {"supervisor_started": meta["supervisor_started"] - 2})
    assert not job_folder.is_live(meta | {"supervisor_pid": 2**22 + 1})


def test_a_job_that_runs_says_so_every_hour(tmp_path: Path) -> None:
    due: list[tuple[float, Callable[[], None]]] = []
    loop = SimpleNamespace(after=lambda *timer: due.append(timer))
    named = {name: name for name in ("job", "devices", "gpus", "spares", "protect", "direct")}
    options = SimpleNamespace(log_dir=tmp_path, command=(), **named)
    ended = SimpleNamespace(text=str)
    JobMeta(options, loop, dict, ended).write_again()  # type: ignore[arg-type]
    (tmp_path / job_folder.META).unlink()
    ((seconds, again),) = due
    again()
    assert (tmp_path / job_folder.META).exists()
    assert 2 * seconds < supervisors.SILENT_S
    assert len(due) == 2


def test_a_damaged_job_is_kept_as_one_that_used_a_gpu() -> None:
    damaged, error = job(0, PLAIN), job(1, MISTYPED)
    (damaged / job_folder.META).write_text("{")
    errors = [job(2 + number, MISTYPED) for number in range(2)]
    assert gone([damaged, error, *errors], keep=2) == [error]


def test_old_folders_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFT_KEEP_JOBS", "2")
    folders = [job(number, PLAIN) for number in range(4)]
    kept_jobs.remove_old(folders[-1])
    assert job_folder.jobs() == folders[2:]
    kept_jobs.remove_old(Path("elsewhere"))


def test_old_folders_are_removed_behind_a_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where a home is a link to another disk: the folder of a job is named without it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "link"))
    monkeypatch.setenv("PYFT_KEEP_JOBS", "1")
    folders = [job(number, PLAIN) for number in range(2)]
    kept_jobs.remove_old(folders[-1].resolve())
    assert job_folder.jobs() == folders[1:]


def test_what_cannot_be_removed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    own = job(1, PLAIN)

    def refuse(_: Path) -> list[Path]:
        raise PermissionError

    monkeypatch.setattr(job_folder, "jobs", refuse)
    kept_jobs.remove_old(own)


def test_the_list_says_what_is_kept_and_has_spares() -> None:
    job(1, PLAIN | {"gpus": "soft:2", "spares": 1})
    said = CliRunner().invoke(app, ["report", "--list"]).output
    assert "soft:2 + 1" in said
    assert "the last 32 jobs are kept of each kind: with faults, without" in said
    assert "4 GB at most" in said
