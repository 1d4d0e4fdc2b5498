"""A client that cannot be served is told why: it gets an answer, never only a closed connection."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import clients
from pyft.agent.channel.protocol import AttachRequest
from pyft.agent.members.member import Member
from pyft.errors import ConfigError
from pyft.wire.layout import ATTACH_REPLY, ATTACH_REQUEST


class Loop:
    """Calls at once what is to be called when something can be read."""

    def watch(self, what: Any, call: Callable[[], None]) -> None:
        call()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        pass

    def forget(self, what: Any) -> None:
        pass


def answered(monkeypatch: pytest.MonkeyPatch, error: Exception | None, message: bytes) -> bytes:
    """Return what a client gets of which no member can be made."""

    def make(*_: Any) -> Any:
        assert error
        raise error

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = SimpleNamespace(drop=lambda name: None)
    monkeypatch.setattr(clients.linux, "peer_of", lambda _: (os.getpid(), os.geteuid()))
    monkeypatch.setattr(clients.Clients, "_make_member", make)
    nothing: Any = None
    loop: Any = Loop()
    made = clients.Clients(nothing, loop, supervisor, nothing, nothing, nothing, nothing)  # type: ignore[arg-type]
    with theirs:
        if message:
            theirs.send(message)
        else:
            theirs.shutdown(socket.SHUT_WR)
        made.accept("call-1", ours)
        assert ours.fileno() == -1, "it is closed"
        return theirs.recv(4096)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), errno.EMFILE, b"Too many open files"),
        (OSError("no number"), errno.EINVAL, b"a client has no channel"),
        (ConfigError("PYFT_RING_MB is [x]"), errno.EINVAL, b"PYFT_RING_MB is [x]"),
    ],
)
def test_who_is_refused_is_told_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, words: bytes
) -> None:
    data = answered(monkeypatch, error, bytes(ATTACH_REQUEST.size))
    assert len(data) == ATTACH_REPLY.size
    at = ATTACH_REPLY["error"].offset
    assert int.from_bytes(data[at : at + 4], "little") == code
    assert words in data


def test_who_has_gone_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, None, b"") == b""


def test_a_time_that_is_none_is_refused_with_its_name() -> None:
    """Before it has a channel: the agent reads the setting much later, when nobody could be told."""
    environment = {"PYFT_HEARTBEAT_TIMEOUT_S": "soon", "PYFT_RING_MB": "1", "PYFT_ARENA_MB": "1"}
    options: Any = SimpleNamespace(devices=1, protect="none", native_dir=None)
    with socket.socket() as connection, pytest.raises(ConfigError, match=r"TIMEOUT_S is \[soon\]"):
        Member.create(1, AttachRequest(os.getpid(), 0, environment), connection, options, -1)
