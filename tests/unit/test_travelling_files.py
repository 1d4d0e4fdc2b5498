"""Files that are only appended to are made on another host, and nothing of that host is lost."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.images import travelling
from pyft.images.appended import Log
from pyft.images.travelling import LogError, make_all

TEXT = "step 1\nstep 2\n"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a file of a host that is lost, with its copy in the image, and nothing at its path."""
    path = tmp_path / "disk" / "run" / "log.txt"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    path.chmod(0o640)
    made = Log.of(str(path))
    image = tmp_path / "image"
    image.mkdir()
    path.rename(image / "appended-0")
    path.parent.rmdir()
    return made


def made(tmp_path: Path, *logs: Log) -> tuple[list[Log], list[str]]:
    """Make them; return them as they are here, and what was in the way."""
    notes, said = make_all([log.note() for log in logs], tmp_path / "image")
    return [Log(**note) for note in notes], said


def test_it_is_made_with_all_that_it_had(tmp_path: Path, log: Log) -> None:
    """And is cut back as any other one from then on."""
    if os.geteuid() == 0:
        log = replace(log, uid=1234, gid=4321)
    (here,), said = made(tmp_path, log)
    path = Path(log.path)
    about = path.stat()
    assert path.read_text() == TEXT
    assert (stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid) == (0o640, log.uid, log.gid)
    assert (here.inode, here.size, here.tail) == (about.st_ino, log.size, log.tail)
    folder = path.parent.stat()
    assert (stat.S_IMODE(folder.st_mode), folder.st_uid) == (0o700, log.uid)
    assert said == []
    assert not list((tmp_path / "image").iterdir()), "what is sent on is read from the file"
    with path.open("a") as file:
        file.write("step 3\n")
    assert here.lacks() == ""
    assert here.cut_back() == ""
    assert path.read_text() == TEXT


def test_a_file_that_is_seen_stays_as_it_is(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "disk" / "shared.txt"
    path.write_text(TEXT)
    shared = Log.of(str(path))
    path.write_text(TEXT + "step 3\n")
    (here,), said = made(tmp_path, shared)
    assert (here, said) == (shared, [])
    assert path.read_text() == TEXT + "step 3\n"
    assert list(tmp_path.glob("disk/*")) == [path]


def test_another_file_at_the_path_is_moved_aside(tmp_path: Path, log: Log) -> None:
    path = Path(log.path)
    path.parent.mkdir()
    path.write_text("of another job\n")
    path.with_name("log.txt.aside-1").write_text("older\n")
    _, (said,) = made(tmp_path, log)
    assert f"[{path}] was another file on this host: it is [log.txt.aside-2] now" in said
    texts = {one.name: one.read_text() for one in path.parent.iterdir()}
    assert texts == {
        "log.txt": TEXT,
        "log.txt.aside-1": "older\n",
        "log.txt.aside-2": "of another job\n",
    }


def test_one_that_was_made_before_is_taken(tmp_path: Path, log: Log) -> None:
    """By a resume that was killed then."""
    copy = tmp_path / "image" / "appended-0"
    content = copy.read_bytes()
    made(tmp_path, log)
    copy.write_bytes(content)
    (here,), said = made(tmp_path, log)
    assert (here.inode, said) == (Path(log.path).stat().st_ino, [])
    assert len(list(Path(log.path).parent.iterdir())) == 1


def test_all_are_made_or_none(tmp_path: Path, log: Log) -> None:
    path, other = Path(log.path), replace(log, path=str(tmp_path / "disk" / "other.txt"))
    path.parent.mkdir()
    path.write_text("of another job\n")
    with pytest.raises(LogError, match=r"other\.txt\] is appended to, and this host has it not"):
        made(tmp_path, log, other)
    assert [one.name for one in path.parent.iterdir()] == ["log.txt"]
    assert path.read_text() == "of another job\n"
    (tmp_path / "image" / "appended-1").write_text(TEXT)
    made(tmp_path, log, other)
    assert Path(other.path).read_text() == path.read_text() == TEXT


@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + "more", TEXT.replace("2", "7")])
def test_a_copy_that_is_not_what_it_was_is_not_taken(tmp_path: Path, log: Log, text: str) -> None:
    (tmp_path / "image" / "appended-0").write_text(text)
    with pytest.raises(LogError, match="has not come as it was"):
        made(tmp_path, log)
    assert not Path(log.path).exists()


def _link(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/etc/passwd")


def _folder_link(path: Path) -> None:
    path.parent.symlink_to(path.parent.parent)


def _pipe(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir(parents=True)


def _file(path: Path) -> None:
    path.parent.write_text("")


@pytest.mark.parametrize("lay", [_link, _folder_link, _pipe, _folder, _file])
def test_nothing_is_made_through_what_another_has_laid_there(
    tmp_path: Path, log: Log, lay: Any
) -> None:
    """It is refused before an image is taken, and when it goes on."""
    lay(Path(log.path))
    before = sorted(tmp_path.rglob("*"))
    why = travelling.why_not_here(log)
    assert why.startswith(f"[{log.path}] is appended to, and cannot be made on this host: ")
    assert ("no file" in why) != ("is a symbolic link, or no folder" in why)
    with pytest.raises(LogError, match="cannot be made on this host"):
        made(tmp_path, log)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_can_be_made_is_not_refused(tmp_path: Path, log: Log) -> None:
    assert travelling.why_not_here(log) == ""
    Path(log.path).parent.mkdir()
    Path(log.path).write_text("of another job\n")
    assert travelling.why_not_here(log) == ""


def test_a_file_system_that_cannot_be_written_is_named(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last folder that is there."""
    room = SimpleNamespace(f_flag=os.ST_RDONLY, f_bavail=1, f_frsize=log.size)
    monkeypatch.setattr(travelling.os, "fstatvfs", lambda _: room)
    disk = tmp_path / "disk"
    assert travelling.why_not_here(log).endswith(f"the file system of [{disk}] is read-only")
    room.f_flag = 0
    assert travelling.why_not_here(log) == ""
    room.f_bavail = 0
    assert travelling.why_not_here(log).endswith(f"the file system of [{disk}] is full")
    room.f_bavail = 1
    monkeypatch.setattr(travelling.os, "access", lambda *_, **__: False)
    assert travelling.why_not_here(log).endswith(f"[{disk}] cannot be written")


def test_another_users_file_is_not_made_without_the_right(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travelling.os, "geteuid", lambda: 1000)
    assert travelling.why_not_here(replace(log, uid=0)).endswith(
        f"it is of user [0] and group [{log.gid}]"
    )
    assert travelling.why_not_here(replace(log, uid=1000, gid=os.getegid())) == ""


def test_a_disk_that_is_full_leaves_nothing(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = Path(log.path)
    path.parent.mkdir()
    path.write_text("of another job\n")
    monkeypatch.setattr(travelling.shutil, "copyfileobj", full)
    with pytest.raises(LogError, match="No space left on device"):
        made(tmp_path, log)
    assert [one.name for one in path.parent.iterdir()] == ["log.txt"]
    assert path.read_text() == "of another job\n"


def test_too_much_is_named_with_its_numbers(log: Log) -> None:
    large = replace(log, path="/disk/large", size=200_000_000)
    assert travelling.too_large([log, large]) == ""
    why = travelling.too_large([replace(log, size=100_000_000), large])
    assert "have [300] MB, of which [200] MB are in [/disk/large]; [256] MB travel" in why


@pytest.mark.parametrize("notes", [None, 5, [5], [{"path": "/etc/passwd"}], [{}] * 513])
def test_notes_that_are_none_make_nothing(tmp_path: Path, notes: Any) -> None:
    with pytest.raises(LogError):
        make_all(notes, tmp_path)


def test_no_descriptor_stays_open(tmp_path: Path, log: Log) -> None:
    before = len(os.listdir("/proc/self/fd"))
    travelling.why_not_here(log)
    made(tmp_path, log)
    travelling.why_not_here(log)
    assert len(os.listdir("/proc/self/fd")) == before
