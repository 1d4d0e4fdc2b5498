"""Copies of images: whole ones arrive as they were, anything else leaves nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.hosts.place import mirror
from pyft.hosts.place.mirror import Outgoing, Receiver, Stored
from pyft.hosts.wire.link import Link
from pyft.images import memory, tree
from pyft.images.memory import PARTS

SECRET = b"0123456789abcdef"
SIZE = 64 << 20
CLOCKS = {"monotonic": 10**15, "boottime": 10**15}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[Receiver, tuple[str, int], list[Stored]]]:
    """Return one that listens, where, and what it has."""
    listener = socket.create_server(("127.0.0.1", 0))
    have: list[Stored] = []
    made = Receiver(listener, SECRET, tmp_path / "there", have.append)
    yield made, listener.getsockname(), have
    made.end()


def outgoing(folder: Path) -> Outgoing:
    """Return an image of one client."""
    folder.mkdir()
    (folder / "pages-1.img").write_bytes(os.urandom(3 << 20))
    (folder / "core-1.img").write_bytes(b"core")
    fds = []
    for part in PARTS:
        fd = memory.new(f"pyft-{part}-c", SIZE)
        os.pwrite(fd, part.encode(), 1 << 20)
        os.pwrite(fd, os.urandom(5000), SIZE - 5000)
        fds.append(fd)
    clients = {"4": {"id": 4, "environment": {}, "channel": {"name": "c"}}}
    record = {"number": 3, "step": 9, "folder": str(folder), "clients": clients, "clocks": CLOCKS}
    return Outgoing(1, record, {4: fds}, {"job": "j"}, "pyft-j-1")


def sent(where: tuple[str, int], image: Outgoing) -> list[str]:
    """Send an image; return why that has failed."""
    failed: list[tuple[str, str]] = []
    told = [lambda *why: failed.append(why), lambda: None]
    mirror.send([("s0", *where)], SECRET, image, *told).join(20)
    return [why for _, why in failed]


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


@pytest.mark.parametrize("is_here", [True, False])
def test_a_host_without_a_file_that_is_appended_to_takes_no_copy(
    tmp_path: Path, receiver: Any, is_here: bool
) -> None:
    """Nothing could be restored there. Its number for the same device is another one."""
    made, where, _ = receiver
    path, image = tmp_path / "log", outgoing(tmp_path / "here")
    path.write_text("step 1\n")
    image.record["logs"] = [tree.Log.of(str(path)).note() | {"device": 77}]
    if not is_here:
        path.unlink()
    failed = sent(where, image)
    assert made.images() == ([(1, 3)] if is_here else [])
    assert [str(path) in why for why in failed] == ([] if is_here else [True])


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


WHOLE = [[4, part, 8, []] for part in range(len(PARTS))]
REST = WHOLE[1:]


def announced(**more: Any) -> dict[str, Any]:
    """Return what is said before a small image."""
    record = {"number": 3, "clients": {"4": {"channel": {"name": "c"}}}, "clocks": CLOCKS}
    header = {"place": 1, "record": record, "options": {}, "clients_name": "n"}
    return header | {"files": [], "memory": WHOLE} | more


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


def digest_of(data: bytes) -> str:
    """Return the right digest."""
    hashed = mirror.digest_for(SECRET)
    hashed.update(data)
    return hashed.hexdigest()


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
    assert first.receive(10) == {"kind": "ready"}
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
    assert third.receive(10) == {"kind": "ready"}
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
