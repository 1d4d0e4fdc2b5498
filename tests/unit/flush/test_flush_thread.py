"""The agent's thread: what it writes, what it says, and that nothing waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import flushes
from pyft.agent.flushes import Flushes
from pyft.flush import manifest, reader
from pyft.images import memory, travelling
from pyft.images.appended import Log

AWAY = 77_000  # from the begin of a memory object
CLIENT = {"channel": {"name": "rank0-pid7-dev0"}}


class Image:
    """Files and memory of an image, as the agent has them."""

    def __init__(self, root: Path, number: int) -> None:
        self.folder = root / "images" / str(number)
        self.folder.mkdir(parents=True)
        (self.folder / "pages-1.img").write_bytes(b"%d" % number * 100_000)
        (self.folder / "dump.log").write_text("not needed")
        self.fds = []
        for part in memory.PARTS:
            self.fds.append(memory.new(f"pyft-{part}", 1 << 20))
            os.pwrite(self.fds[-1], b"%d" % number * 5000, AWAY)
        self.record = {
            "number": number,
            "step": 10 * number,
            "folder": str(self.folder),
            "clients": {"0": CLIENT},
        }

    def drop(self) -> None:
        """Do as the agent does when the next image counts."""
        for fd in self.fds:
            os.close(fd)
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the agent says."""
    lines: list[str] = []
    monkeypatch.setattr(flushes.messages, "say", lines.append)
    return lines


def new(folder: Path, every: float = 0.0) -> Flushes:
    folder.mkdir(exist_ok=True, mode=0o700)
    options: Any = SimpleNamespace(flush=(str(folder),), parity=0, flush_every=every)
    return Flushes(options, {"options": {}, "clients_name": "pyft-x"})


def finish(flushed: Flushes) -> None:
    assert flushed._thread
    flushed._thread.join(20)
    flushed.look()


def test_an_image_may_be_dropped_while_it_is_written(tmp_path: Path, said: list[str]) -> None:
    """What is read afterwards is the image as it was offered."""
    before = len(os.listdir("/proc/self/fd"))
    image, flushed = Image(tmp_path, 1), new(tmp_path / "flush")
    flushed.offer(image.record, {0: image.fds})
    image.drop()
    finish(flushed)
    assert said == [f"--flush: step [10] is on disk in [{tmp_path / 'flush'}]"]
    assert not list((tmp_path / "images").iterdir())
    loaded = reader.newest([tmp_path / "flush"], tmp_path / "again")
    assert [path.name for path in loaded.folder.iterdir()] == ["pages-1.img"]
    assert (loaded.folder / "pages-1.img").read_bytes() == b"1" * 100_000
    for part, fd in zip(memory.PARTS, loaded.memory[0], strict=True):
        assert os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:pyft-{part}-rank0-pid7")
        assert os.fstat(fd).st_size == 1 << 20
        assert os.pread(fd, 1 << 20, 0).strip(b"\0") == b"1" * 5000
    loaded.drop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_image_that_comes_too_early_is_passed_over(tmp_path: Path, said: list[str]) -> None:
    flushed = new(tmp_path / "flush", every=3600.0)
    for number in (1, 2):
        image = Image(tmp_path, number)
        flushed.offer(image.record, {0: image.fds})
        if flushed._thread:
            finish(flushed)
        image.drop()
    assert manifest.lines_in([tmp_path / "flush"]) == [1]
    assert [done["step"] for done in flushed.figures] == [10]


def test_a_failure_is_said_once_and_the_line_before_stays(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = new(tmp_path / "flush")

    def offer(number: int) -> None:
        image = Image(tmp_path, number)
        flushed.offer(image.record, {0: image.fds})
        finish(flushed)
        image.drop()

    offer(1)
    with monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(flushes.os, "fsync", refuse)
        offer(2)
        offer(3)
    offer(4)
    folder = tmp_path / "flush"
    assert said == [
        f"--flush: step [10] is on disk in [{folder}]",
        f"--flush: step [20] is not on disk in [{folder}]: No space left on device; line [1] is "
        "still there, and pyft tries again",
        f"--flush: step [40] is on disk in [{folder}]",
    ]
    assert sorted(os.listdir(folder)) == ["line-1", "line-4"]


def test_a_line_that_too_few_folders_have_counts_for_nothing(
    tmp_path: Path, said: list[str]
) -> None:
    """The agent died between two renames: the line before is still needed."""
    folders = [tmp_path / name for name in "abc"]
    options: Any = SimpleNamespace(flush=tuple(map(str, folders)), parity=1, flush_every=0.0)
    for folder in folders:
        folder.mkdir(mode=0o700)
    for numbers in ((4, 5), (6,)):
        flushed = Flushes(options, {"options": {}, "clients_name": "pyft-x"})  # of one agent
        for number in numbers:
            image = Image(tmp_path, number)
            flushed.offer(image.record, {0: image.fds})
            finish(flushed)
            image.drop()
        for folder in folders[1:] if number == 5 else ():
            (folder / "line-5").rename(folder / "line-5.partial")
    assert [sorted(os.listdir(folder)) for folder in folders] == [["line-4", "line-6"]] * 3


def test_files_on_a_disk_of_this_host_are_in_the_line(tmp_path: Path, said: list[str]) -> None:
    """As they were when the image was made. Another host sees the others itself."""
    image, flushed = Image(tmp_path, 1), new(tmp_path / "flush")
    own, shared = tmp_path / "own.txt", tmp_path / "shared.txt"
    for path in (own, shared):
        path.write_text("step 1\n")
    logs = [replace(Log.of(str(path)), disk=disk) for path, disk in ((shared, ""), (own, "x"))]
    with own.open("a") as file:
        file.write("step 2\n")
    flushed.offer(image.record | {"logs": [log.note() for log in logs]}, {0: image.fds})
    finish(flushed)
    image.drop()
    loaded = reader.newest([tmp_path / "flush"], tmp_path / "again")
    names = sorted(path.name for path in loaded.folder.iterdir())
    assert names == ["appended-1", "pages-1.img"]
    assert (loaded.folder / "appended-1").read_text() == "step 1\n"
    loaded.drop()


def test_files_that_are_too_large_are_said_once(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed, log = new(tmp_path / "flush"), tmp_path / "log.txt"
    log.write_text("step 1\n")
    note = replace(Log.of(str(log)), disk="x").note()
    for number, most in ((1, 6), (2, 6), (3, 7)):
        monkeypatch.setattr(travelling, "MOST_BYTES", most)
        image = Image(tmp_path, number)
        flushed.offer(image.record | {"logs": [note]}, {0: image.fds})
        finish(flushed)
        image.drop()
    assert len(said) == 2
    assert "only this host can resume it: files that are appended to have" in said[0]
    assert str(log) in said[0]
    assert said[1] == f"--flush: step [30] is on disk in [{tmp_path / 'flush'}]"


def test_the_job_ends_in_the_middle(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is half written is removed, and nothing is said."""
    began, go_on = threading.Event(), threading.Event()

    def slow(pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            began.set()
            assert go_on.wait(20)

    image, flushed = Image(tmp_path, 1), new(tmp_path / "flush")
    until_stopped = flushed._until_stopped
    monkeypatch.setattr(flushed, "_until_stopped", lambda pieces: until_stopped(slow(pieces)))
    flushed.offer(image.record, {0: image.fds})
    assert began.wait(20)
    assert os.listdir(tmp_path / "flush") == ["line-1.partial"]
    assert flushed._thread
    monkeypatch.setattr(flushed._thread, "join", _after(go_on, flushed._thread.join))
    flushed.end()
    assert os.listdir(tmp_path / "flush") == []
    assert said == []
    image.drop()


def _after(event: threading.Event, join: Any) -> Any:
    def joined(seconds: float) -> None:
        event.set()
        join(20)

    return joined
