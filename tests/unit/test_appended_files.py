"""Files that are only appended to: which host can cut them back, and what they are called."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyft.images import appended, disks
from pyft.images.appended import Log

NETWORK, DISK = os.makedev(0, 77), os.makedev(8, 1)
MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:60 / /shared rw shared:1 - nfs4 server:/shared rw
24 22 0:61 / /my\\040disk rw - tmpfs tmpfs rw
25 22 0:62 / /shared/inner rw - overlay overlay rw
26 22 0:63 / /san rw - gfs2 /dev/sdb rw
27 22 0:64 / /seen rw - tmpfs tmpfs rw
28 22 0:65 / /seen rw - nfs4 server:/seen rw
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with some lines."""
    file = tmp_path / "log"
    file.write_text("step 1\nstep 2\n")
    return file


def test_a_host_that_mounts_the_same_files_cuts_them_back(path: Path) -> None:
    """It has another number for the device of a network's file system."""
    log = replace(Log.of(str(path)), device=NETWORK, disk="")
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


@pytest.mark.parametrize(
    ("path", "device", "is_own"),
    [
        ("/log", DISK, True),
        ("/sharedx/log", DISK, True),
        ("/shared/log", NETWORK, False),
        ("/shared/inner/log", NETWORK, True),
        ("/my disk/log", NETWORK, True),
        ("/san/log", DISK, False),
        ("/seen/log", NETWORK, False),
    ],
)
def test_only_what_two_hosts_may_both_see_has_one_name(
    path: str, device: int, is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory's file system has no number of a disk, and is no network's."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(disks, "_MOUNTS", mounts)
    here = disks.disk_of(path, device)
    monkeypatch.setattr(disks.linux, "boot_id", lambda: "another host")
    assert (here != disks.disk_of(path, device)) == bool(here) == is_own


def test_the_name_is_of_path_and_disk(path: Path) -> None:
    log = replace(Log.of(str(path)), disk="boot-8")
    assert log.name == f"{log.inode}:boot-8:{path}"


@pytest.mark.parametrize(
    ("own", "here", "is_seen"),
    [("a", "a", True), ("a", "b", False), ("", "b", True), ("a", "", True)],
)
def test_a_file_of_the_same_number_on_another_disk_is_another(
    path: Path, monkeypatch: pytest.MonkeyPatch, own: str, here: str, is_seen: bool
) -> None:
    """Unless the host calls its disk otherwise since it has booted."""
    log = replace(Log.of(str(path)), disk=own)
    monkeypatch.setattr(appended, "disk_of", lambda *_: here)
    assert (log.lacks() == "") == is_seen
    assert log.lacks(may_have_booted=True) == ""


def test_the_lines_are_written_through(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a host that loses its power takes some along that its image has as written."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    log = Log.of(str(path))
    assert synced == [log.inode]


@pytest.mark.parametrize(
    "change",
    [
        {"path": 5},
        {"path": "/a\0b"},
        {"path": "log"},
        {"path": "/var/../etc/passwd"},
        {"path": "/var//log"},
        {"path": "//var/log"},
        {"path": "/var/log/"},
        {"path": ""},
        {"path": "/" + "x" * 5000},
        {"path": "/\ud800"},
        {"size": -1},
        {"size": 1 << 63},
        {"inode": "1"},
        {"tail": None},
        {"disk": None},
        {"mode": 0o100644},
        {"mode": True},
        {"uid": (1 << 32) - 1},
        {"gid": -1},
    ],
)
def test_what_another_host_says_is_checked(path: Path, change: dict[str, Any]) -> None:
    note = Log.of(str(path)).note()
    assert Log.from_note(note).note() == note
    with pytest.raises((ValueError, TypeError)):
        Log.from_note(note | change)
    with pytest.raises((ValueError, TypeError)):
        Log.from_note(note | {"more": 1})
