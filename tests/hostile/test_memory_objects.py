"""What is handed out: sealed, of one user, and of a listener that only this machine reaches."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.channel.channel import Channel
from pyft.agent.channel.protocol import AttachRequest
from pyft.agent.members.server import Server
from pyft.agent.operators import metrics

KNOBS = {f"PYFT_{part}_MB": "1" for part in ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")}
READ_S = 20


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel.create(AttachRequest(os.getpid(), 0, KNOBS), 1, KNOBS)
    made.add_store(KNOBS)
    yield made
    made.close()


def test_nobody_changes_the_size_of_memory(channel: Channel) -> None:
    """A shorter object would be a SIGBUS in whoever else maps it."""
    assert len(channel.fds()) == 5
    for fd in channel.fds():
        size = os.fstat(fd).st_size
        for wrong in (0, max(size - 4096, 0), size + 4096):
            if wrong != size:
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, wrong)
        with pytest.raises(PermissionError):  # nor lets nobody write any more
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        assert os.fstat(fd).st_size == size


def test_memory_belongs_to_one_user(channel: Channel) -> None:
    assert {os.fstat(fd).st_mode & 0o777 for fd in channel.fds()} == {0o600}
    assert {os.fstat(fd).st_uid for fd in channel.fds()} == {os.geteuid()}


def test_a_client_gets_no_store_and_a_server_no_writable_log(channel: Channel) -> None:
    assert channel.store_fd not in channel.client_fds()
    with channel.server_fds() as fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(fds[0], b"x", 0)
        flags = [fcntl.fcntl(fd, fcntl.F_GETFD) for fd in fds]
        assert all(flag & fcntl.FD_CLOEXEC for flag in flags), "no child inherits them"


def test_a_server_that_gets_no_memory_is_ended_at_once(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It would be silent for PYFT_HEARTBEAT_TIMEOUT_S otherwise, and nobody knew why."""
    killed: list[int] = []
    link: Any = SimpleNamespace(kill=lambda pid, _: killed.append(pid))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        server = Server(7, ours, 1, 0, link)
        server.introduce(channel)
        assert (len(theirs.recv(1 << 16)) > 0, killed) == (True, [])
        monkeypatch.setattr(channel, "log_fd", -1)  # it cannot be opened again
        server.introduce(channel)
    assert killed == [7]
    assert "the server [pid 7] does not get its memory" in capfd.readouterr().err


class Loop:
    """Keeps what it is to watch."""

    def __init__(self) -> None:
        self.watched: dict[socket.socket, Callable[[], object]] = {}
        self.later: list[Callable[[], None]] = []

    def watch(self, source: socket.socket, action: Callable[[], object]) -> None:
        self.watched[source] = action

    watch_room = watch

    def forget(self, source: socket.socket) -> None:
        self.watched.pop(source, None)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.later.append(action)


@pytest.fixture
def served() -> Iterator[SimpleNamespace]:
    loop = Loop()
    listener = metrics.serve(0, loop, lambda: "x" * (64 << 20))
    yield SimpleNamespace(loop=loop, listener=listener, port=listener.getsockname()[1])
    listener.close()


def test_metrics_are_for_this_machine_only(served: SimpleNamespace) -> None:
    assert served.listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("request_", [b"GET /metrics HTTP/1.1\r\n\r\n", b"\0" * 100, b"G"])
def test_who_reads_slowly_holds_nobody_up(served: SimpleNamespace, request_: bytes) -> None:
    """The agent sends what there is room for, and closes when the time is over."""
    with socket.create_connection(("127.0.0.1", served.port)) as slow:
        slow.sendall(request_)
        deadline = time.monotonic() + READ_S
        while len(served.loop.watched) < 2 and time.monotonic() < deadline:
            served.loop.watched[served.listener]()
        (connection,) = [one for one in served.loop.watched if one is not served.listener]
        served.loop.watched[connection]()
        if not request_.endswith(b"\r\n\r\n"):
            assert connection.fileno() != -1, "the rest of the request may come"
            slow.shutdown(socket.SHUT_WR)
            while connection in served.loop.watched and time.monotonic() < deadline:
                served.loop.watched[connection]()
        while served.loop.later and time.monotonic() < deadline:
            served.loop.later.pop()()
        assert connection.fileno() == -1, "closed, although nothing was read"
        slow.settimeout(READ_S)
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(16).startswith(b"HTTP/1.1 ")
