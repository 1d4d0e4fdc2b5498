"""Files to which a place appends come with the copy of its image, where the other host has them not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sent_images import SECRET, announced, digest_of, outgoing, receiving, sent

from pyft.hosts.place import mirror, mirrored_logs
from pyft.hosts.wire.link import Link, LinkError
from pyft.images import travelling
from pyft.images.appended import Log

TEXT = b"step 1\nstep 2\n"
ELSEWHERE = 1 << 60  # an inode that no file here has


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Any]:
    """Return one that listens, where, and what it has."""
    with receiving(tmp_path / "there") as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a log."""
    made = tmp_path / "disk" / "log.txt"
    made.parent.mkdir()
    made.write_bytes(TEXT)
    return made


def log_of(path: Path, *, is_seen: bool) -> dict[str, Any]:
    """Return what the lost host has noted of it. What is not seen is another file at its path."""
    log = Log.of(str(path))
    return (log if is_seen else replace(log, inode=ELSEWHERE)).note()


def test_only_what_is_not_seen_travels(tmp_path: Path, path: Path, receiver: Any) -> None:
    """Up to the line: what was appended since is not of the image."""
    made, where, have = receiver
    image, seen = outgoing(tmp_path / "here"), path.with_name("seen.txt")
    seen.write_bytes(TEXT)
    image.record["logs"] = [log_of(seen, is_seen=True), log_of(path, is_seen=False)]
    wanted = [os.pread(fd, 4096, 1 << 20) for fd in image.memory[4]]
    with path.open("ab") as file:
        file.write(b"step 3\n")
    assert sent(where, image) == []
    assert made.images() == [(1, 3)]
    (stored,) = have
    names = {one.name for one in stored.folder.iterdir()}
    assert names == {"pages-1.img", "core-1.img", "appended-1"}
    assert (stored.folder / "appended-1").read_bytes() == TEXT
    assert [os.pread(fd, 4096, 1 << 20) for fd in stored.memory[4]] == wanted


@pytest.mark.parametrize("how", ["shorter", "altered", "gone"])
def test_one_that_was_rewritten_since_is_not_taken(
    tmp_path: Path,
    path: Path,
    receiver: Any,
    how: str,
) -> None:
    """Nothing could be restored with it."""
    made, where, _ = receiver
    image = outgoing(tmp_path / "here")
    image.record["logs"] = [log_of(path, is_seen=False)]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(TEXT[:-1] if how == "shorter" else TEXT.replace(b"2", b"7"))
    (why,) = sent(where, image)
    if how == "altered":
        assert f"[{path}] was altered while it was sent" in why
    assert made.images() == []


def _large(log: dict[str, Any]) -> str:
    log["size"] = 300_000_000
    return "have [300] MB, of which [300] MB are in"


def _below_a_file(log: dict[str, Any]) -> str:
    log["path"] += "/log"
    return "is a symbolic link, or no folder"


@pytest.mark.parametrize("change", [_large, _below_a_file])
def test_what_cannot_be_made_there_is_refused_by_name(
    tmp_path: Path,
    path: Path,
    receiver: Any,
    change: Callable[[dict[str, Any]], str],
) -> None:
    made, where, _ = receiver
    image = outgoing(tmp_path / "here")
    log = log_of(path, is_seen=False)
    image.record["logs"] = [log]
    part = change(log)
    (why,) = sent(where, image)
    assert part in why
    assert log["path"] in why
    assert made.images() == []


def test_its_room_is_promised(path: Path, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, where, _ = receiver
    said = announced()
    said["record"]["logs"] = [log_of(path, is_seen=False)]
    link = Link.to(where, SECRET)
    link.send("image", **said)
    assert link.receive(10) == {"kind": "ready", "logs": [0]}
    assert [one.disk for one in made._promised] == [len(TEXT)]
    link.send_bytes(TEXT)
    link.send("end", digest=digest_of(TEXT))
    assert link.receive(10) == {"kind": "have"}
    link.close()


def test_a_file_of_the_image_with_the_name_of_a_copy_is_refused(path: Path, receiver: Any) -> None:
    """Else what is made at the path would be of another file."""
    made, where, _ = receiver
    said = announced(files=[["appended-0", 3]])
    said["record"]["logs"] = [log_of(path, is_seen=False)]
    link = Link.to(where, SECRET)
    link.send("image", **said)
    answer = link.receive(10)
    link.close()
    assert answer
    assert (answer["kind"], "twice" in answer["why"]) == ("refused", True)
    assert made.images() == []


@pytest.mark.parametrize("logs", [None, 5, ["0"], [-1], [1], [0] * 513])
def test_what_is_asked_for_is_checked(path: Path, logs: Any) -> None:
    record = {"logs": [log_of(path, is_seen=True)]}
    assert list(mirrored_logs.asked({"logs": [0]}, record)) == ["appended-0"]
    with pytest.raises(LinkError):
        mirrored_logs.asked({"logs": logs}, record)


def test_what_came_is_made_at_its_path(tmp_path: Path, path: Path, receiver: Any) -> None:
    _, where, have = receiver
    image = outgoing(tmp_path / "here")
    image.record["logs"] = [log_of(path, is_seen=False)]
    assert sent(where, image) == []
    path.write_bytes(b"of another job\n")
    stored: mirror.Stored = have[0]
    (note,), _ = travelling.make_all(stored.record["logs"], stored.folder)
    assert path.read_bytes() == TEXT
    assert Log(**note).lacks() == ""
