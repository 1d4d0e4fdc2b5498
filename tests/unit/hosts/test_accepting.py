"""Connections are taken as long as the listener is open, whatever is missing for a while."""

from __future__ import annotations

import socket
import threading

import pytest

from pyft.hosts.wire import accepting
from pyft.hosts.wire.accepting import accept_all


class Poor(socket.socket):
    """A listener that finds no free descriptor at first."""

    failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        """Fail as with EMFILE."""
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
        return super().accept()


def listening(kind: type[socket.socket]) -> socket.socket:
    """Return a listener."""
    made = kind()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


def test_no_free_descriptor_is_no_end() -> None:
    """A stranger that opens many connections would else keep all hosts out for ever."""
    served = threading.Event()
    with listening(Poor) as listener:
        accept_all(listener, 4, lambda *_: served.set())
        with socket.create_connection(listener.getsockname()):
            assert served.wait(10)


def test_no_room_for_a_thread_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    served = threading.Event()
    plain, refused = threading.Thread, []

    def start(**how: object) -> threading.Thread:
        if "args" in how and not refused:
            refused.append(1)
            raise RuntimeError("can't start new thread")
        return plain(**how)  # type: ignore[arg-type]

    monkeypatch.setattr(accepting.threading, "Thread", start)
    with listening(socket.socket) as listener:
        accept_all(listener, 1, lambda *_: served.set())
        with socket.create_connection(listener.getsockname()) as first:
            first.settimeout(10)
            assert first.recv(1) == b""
        with socket.create_connection(listener.getsockname()):
            assert served.wait(10)
