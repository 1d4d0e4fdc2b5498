"""Copies of images: whole ones arrive as they were, anything else leaves nothing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sent_images import (
    REST,
    SECRET,
    SIZE,
    WHOLE,
    announced,
    digest_of,
    outgoing,
    receiving,
    sent,
)

from pyft.hosts.place import mirror
from pyft.hosts.place.mirror import Receiver, Stored
from pyft.hosts.wire.link import Link
from pyft.images.appended import Log
from pyft.images.memory import PARTS


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[Receiver, tuple[str, int], list[Stored]]]:
    """Return one that listens, where, and what it has."""
    with receiving(tmp_path / "there") as made:
        yield made


def test_a_copy_is_equal(tmp_path: Path, receiver: Any) -> None:
    made, where, have = receiver
    image = outgoing(tmp_path / "here")
    wanted = [os.pread(fd, SIZE, 0) for fd in image.memory[4]]
    assert sent(where, image) == []
    assert made.images() == [(1, 3)]
    (stored,) = have
    assert (stored.record, stored.options) == (image.record, image.options)
    for name in ("pages-1.img", "core-1.img"):
        assert (stored.folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert [os.pread(fd, SIZE, 0) for fd in stored.memory[4]] == wanted
    assert [os.fstat(fd).st_blocks < 200 for fd in stored.memory[4]] == [True] * len(PARTS)
    assert os.readlink(f"/proc/self/fd/{stored.memory[4][0]}") == "/memfd:pyft-log-c (deleted)"


def test_a_file_that_both_hosts_see_stays_where_it_is(tmp_path: Path, receiver: Any) -> None:
    """Of a network's file system the other host has another number for the same device."""
    made, where, have = receiver
    path, image = tmp_path / "log", outgoing(tmp_path / "here")
    path.write_text("step 1\n")
    image.record["logs"] = [Log.of(str(path)).note() | {"device": 77}]
    assert sent(where, image) == []
    assert made.images() == [(1, 3)]
    assert len(list(have[0].folder.iterdir())) == 2


def test_older_ones_are_dropped(tmp_path: Path, receiver: Any) -> None:
    made, where, have = receiver
    assert sent(where, outgoing(tmp_path / "here")) == []
    made.keep(3)
    assert made.images() == [(1, 3)]
    made.keep(4)
    assert made.images() == []
    assert not have[0].folder.exists()


def test_one_that_was_given_up_is_dropped(tmp_path: Path, receiver: Any) -> None:
    made, where, have = receiver
    assert sent(where, outgoing(tmp_path / "here")) == []
    made.drop(2)
    assert made.images() == [(1, 3)]
    made.drop(3)
    assert made.images() == []
    assert not have[0].folder.exists()


def test_another_token_brings_nothing(tmp_path: Path, receiver: Any) -> None:
    made, where, _ = receiver
    failed: list[str] = []
    image = outgoing(tmp_path / "here")
    other = b"fedcba9876543210"
    told = [lambda name, _: failed.append(name), lambda: None]
    mirror.send([("s0", *where)], other, image, *told).join(20)
    assert failed == ["s0"]
    assert made.images() == []


def _set(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda said: said.__setitem__(name, value)


def _record(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda said: said["record"].__setitem__(name, value)


def answered(where: tuple[str, int], said: dict[str, Any], data: bytes, digest: str) -> str:
    """Send an image; return what is answered, or that the connection has ended."""
    link = Link.to(where, SECRET)
    with contextlib.suppress(ConnectionError):
        link.send("image", **said)
        if (answer := link.receive(10) or {"kind": "nothing"})["kind"] != "ready":
            return answer["kind"]
        link.send_bytes(data)
        link.send("end", digest=digest)
        return (link.receive(10) or {"kind": "nothing"})["kind"]
    link.close()
    return "ended"


@pytest.mark.parametrize(
    ("said", "data"),
    [
        (announced(), b""),
        (announced(files=[["a", 3], ["b", 0]]), b"abc"),
        (announced(memory=[[4, 0, 8, [[2, 4]]], *REST]), b"xy"),
    ],
)
def test_what_can_be_is_taken(receiver: Any, said: dict[str, Any], data: bytes) -> None:
    made, where, have = receiver
    assert answered(where, said, data, digest_of(b"other")) == "refused"
    assert (made.images(), have) == ([], [])
    assert answered(where, said, data, digest_of(data)) == "have"
    assert made.images() == [(1, 3)]


@pytest.mark.parametrize(
    "change",
    [
        _set("files", [["../passwd", 0]]),
        _set("files", [["/tmp/pyft-no-such-file", 0]]),
        _set("files", [[".hidden", 0]]),
        _set("files", [["a", 0], ["a", 0]]),
        _set("files", [["a", 1 << 60]]),
        _set("files", [["a", -1]]),
        _set("files", [["a"]]),
        _set("files", {}),
        _set("memory", [[4, 0, 8, [[12, 12]]], *REST]),
        _set("memory", [[4, 0, 8, [[4, 2]]], *REST]),
        _set("memory", [[4, 0, 8, [[4, 4], [2, 2]]], *REST]),
        _set("memory", [[4, 0, (1 << 40) + 1, []], *REST]),
        _set("memory", [[4, 1, 8, []], *REST]),
        _set("memory", [*WHOLE, [5, 0, 8, []]]),
        _set("memory", [[4, 0, 1 << 39, [[0, 1 << 39]]], *REST]),
        _set("memory", [[4, 0, 8, [[0, 0, 0]]], *REST]),
        _set("memory", []),
        _set("place", "one"),
        _set("record", None),
        _set("clients_name", "a/b"),
        _record("clients", {"4": {"channel": {"name": "../x"}}}),
        _record("clients", []),
        _record("clients", {"4": {"channel": 5}}),
        _record("clients", {"4": None}),
        _set("memory", [5]),
        _set("files", [5]),
        _record("number", -1),
        _record("logs", None),
        _record("logs", [5]),
        _record("logs", [{"path": "/etc/passwd"}]),
        _record("clocks", None),
        _record("clocks", {"monotonic": 1}),
        _record("clocks", {"monotonic": 1, "boottime": "1"}),
    ],
)
def test_what_cannot_be_is_refused(receiver: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Though its digest is right, so that nothing else refuses it."""
    made, where, have = receiver
    said = announced()
    change(said)
    assert answered(where, said, b"", digest_of(b"")) in ("refused", "ended")
    assert (made.images(), have) == ([], [])


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_room_is_promised_once(receiver: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Two places send at once: each alone has room, both have not."""
    made, where, _ = receiver
    size = 4 << 20
    if what == "memory":
        room = mirror.LEAST_FREE + size * 3 // 2
        monkeypatch.setattr(mirror.memory, "available", lambda: room)
        said = announced(memory=[[4, 0, size, [[0, size]]], *REST])
    else:
        usage = SimpleNamespace(free=size * 5 // 2)
        monkeypatch.setattr(mirror.shutil, "disk_usage", lambda _: usage)
        said = announced(files=[["a", size]])
    first, second = Link.to(where, SECRET), Link.to(where, SECRET)
    first.send("image", **said)
    assert first.receive(10) == {"kind": "ready", "logs": []}
    second.send("image", **said)
    answer = second.receive(10)
    assert answer
    assert answer["kind"] == "refused"
    free = 2 if what == "memory" else 3
    assert f"it needs [4] MB of {what}, and there are [{free}] MB" in answer["why"]
    first.send_bytes(b"x" * (1 << 20))  # this is seen as taken already
    wait_until(lambda: getattr(made._promised[0], what) == size - (1 << 20))
    first.close()
    wait_until(lambda: not made._promised)
    third = Link.to(where, SECRET)
    third.send("image", **said)
    assert third.receive(10) == {"kind": "ready", "logs": []}
    for link in (second, third):
        link.close()


def test_a_copy_that_breaks_leaves_nothing(tmp_path: Path, receiver: Any) -> None:
    made, where, _ = receiver
    link = Link.to(where, SECRET)
    link.send("image", **announced(files=[["a", 1000]]))
    link.send_bytes(b"x" * 500)
    there = tmp_path / "there"
    wait_until(lambda: there.exists() and list(there.glob("*/a")))
    link.close()
    wait_until(lambda: not list(there.iterdir()))
    assert made.images() == []


def wait_until(true: Callable[[], object]) -> None:
    """Wait; fail when it does not become true."""
    pause = threading.Event()
    for _ in range(500):
        if true():
            return
        pause.wait(0.02)
    raise AssertionError("it does not happen")
