"""A job takes a folder: alone, and so that it is found among the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyft.agent.job import own_folder
from pyft.errors import UsageError

JOB = "20260101-000000-1"
RUNS: dict[str, Any] = {"state": "running", "supervisor_pid": os.getpid()}


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
