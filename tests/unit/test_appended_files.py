"""Files that are only appended to: which host can cut them back, and what they are called."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyft._native import linux
from pyft.images.tree import Log

NETWORK, DISK = os.makedev(0, 77), os.makedev(8, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with some lines."""
    file = tmp_path / "log"
    file.write_text("step 1\nstep 2\n")
    return file


def test_a_host_that_mounts_the_same_files_cuts_them_back(path: Path) -> None:
    """It has another number for the device of a network's file system."""
    log = replace(Log.of(str(path)), device=NETWORK)
    before = path.read_text()
    with path.open("a") as file:
        file.write("step 3\n")
    assert log.lacks() == ""
    assert log.cut_back() == ""
    assert path.read_text() == before


@pytest.mark.parametrize("how", ["shorter", "altered", "other", "none", "pipe"])
def test_what_is_not_the_file_is_not_cut(path: Path, how: str) -> None:
    log, text = Log.of(str(path)), path.read_text()
    if how == "shorter":
        path.write_text(text[:-1])
    elif how == "altered":
        path.write_text(text.replace("2", "7") + "more")
    elif how == "other":
        path.rename(path.with_name("old"))
        path.write_text(text)
    else:
        path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    before = path.read_text() if path.is_file() else ""
    assert str(path) in log.cut_back()
    assert str(path) in log.lacks()
    assert (path.read_text() if path.is_file() else "") == before


@pytest.mark.parametrize("device", [DISK, NETWORK])
def test_only_what_two_hosts_may_both_see_has_one_name(
    device: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(Log.of(str(path)), device=device).name
    monkeypatch.setattr(linux, "boot_id", lambda: "another host")
    there = replace(Log.of(str(path)), device=device).name
    assert (here == there) == (device == NETWORK)
    assert here.endswith(f":{path}")


def test_the_lines_are_written_through(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a host that loses its power takes some along that its image has as written."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    log = Log.of(str(path))
    assert synced == [log.inode]


@pytest.mark.parametrize(
    "change", [{"path": 5}, {"path": "a\0b"}, {"size": -1}, {"inode": "1"}, {"tail": None}]
)
def test_what_another_host_says_is_checked(path: Path, change: dict[str, object]) -> None:
    note = Log.of(str(path)).note()
    assert Log.from_note(note).note() == note
    with pytest.raises((ValueError, TypeError)):
        Log.from_note(note | change)
    with pytest.raises((ValueError, TypeError)):
        Log.from_note(note | {"more": 1})
