"""Sockets to which any user of this machine can connect: which may, how many at once, for how long.

Whatever comes in, the process that listens goes on: it keeps a descriptor in reserve for the moment
when it has no other left, and neither dies of a connection nor turns in a circle because of it.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import time
from collections.abc import Callable
from typing import Protocol

from pyft._native import linux
from pyft.agent.process import messages

AT_ONCE = 16  # connections taken in one turn: the process has other things to do
SWEEP_S = 0.25
PAUSE_S = 0.05
MOST_USERS = 8  # named; of others there is only a number


class Loop(Protocol):
    """What a door needs of an event loop."""

    def watch(self, source: socket.socket, action: Callable[[], object]) -> None:
        """Call `action` whenever `source` can be read."""

    def watch_room(self, source: socket.socket, action: Callable[[], object]) -> None:
        """Call `action` whenever `source` takes more."""

    def forget(self, source: socket.socket) -> None:
        """Stop either; unknown sources are no error."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, later."""


class Refusals:
    """Connections of other users: each user is named once, then only counted."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._users: dict[int, int] = {}
        self._unnamed = 0

    def refuse(self, uid: int) -> None:
        """Count one, and say so if it is the first one of this user."""
        if uid not in self._users and len(self._users) == MOST_USERS:
            self._unnamed += 1
            return
        self._users[uid] = self._users.get(uid, 0) + 1
        if self._users[uid] == 1:
            messages.say(f"refused a connection of another user [uid {uid}] to {self._what}")

    def sum_up(self) -> None:
        """Say how many there were, if that is not known yet."""
        more = sum(self._users.values()) - len(self._users) + self._unnamed
        if more:
            messages.say(
                f"refused [{more}] more connections of users {sorted(self._users)} to {self._what}"
            )


class Listener:
    """A listening socket that survives a want of descriptors."""

    def __init__(self, listener: socket.socket, refusals: Refusals | None = None) -> None:
        """With `refusals` it is a Unix socket, to which only this user may connect."""
        listener.setblocking(False)
        self.socket = listener
        self._refusals = refusals
        self._reserve = _reserve()

    def accept(self) -> socket.socket | None:
        """Return a connection of a process that may have one, None if there is none now."""
        for _ in range(AT_ONCE):
            try:
                connection, _ = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return None
            except OSError:  # no descriptor, or no memory for one
                self._shed()
                return None
            uid = linux.peer_of(connection)[1] if self._refusals else os.geteuid()
            if uid == os.geteuid():
                connection.setblocking(True)
                return connection
            connection.close()
            if self._refusals:
                self._refusals.refuse(uid)
        return None

    def _shed(self) -> None:
        """Turn one away with the descriptor in reserve; else the socket would stay ready."""
        if self._reserve < 0:
            time.sleep(PAUSE_S)
            self._reserve = _reserve()
            return
        os.close(self._reserve)
        with contextlib.suppress(OSError):
            self.socket.accept()[0].close()
        self._reserve = _reserve()


class More(enum.Enum):
    """What has to come before a connection is closed."""

    TEXT = enum.auto()  # of the other side
    ROOM = enum.auto()  # for the rest of the answer


class Door:
    """A listener of which each connection says one thing within a time, in one piece or more.

    One more than `most` ends the one that has been silent for longest.
    """

    def __init__(
        self,
        loop: Loop,
        listener: Listener,
        answer: Callable[[socket.socket], More | None],
        *,
        most: int,
        seconds: float,
    ) -> None:
        """`answer` is called when a connection can be read; then it is closed.

        Should it return one of More, that has to come first, within the same time.
        """
        self._loop, self._listener, self._answer = loop, listener, answer
        self._most, self._seconds = most, seconds
        self._waiting: dict[socket.socket, float] = {}  # until when, the oldest ones first
        self._sweeps = False
        loop.watch(listener.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            connection = self._listener.accept()
            if connection is None:
                break
            if len(self._waiting) >= self._most:
                self._end(next(iter(self._waiting)))
            self._waiting[connection] = time.monotonic() + self._seconds
            self._watch(connection)
        if self._waiting and not self._sweeps:
            self._sweeps = True
            self._loop.after(SWEEP_S, self._sweep)

    def _take(self, connection: socket.socket) -> None:
        self._loop.forget(connection)
        more = None
        try:
            more = self._answer(connection)
        finally:
            if more:
                self._watch(connection, more)
            else:
                self._end(connection)

    def _watch(self, connection: socket.socket, more: More = More.TEXT) -> None:
        watch = self._loop.watch_room if more is More.ROOM else self._loop.watch
        watch(connection, lambda: self._take(connection))

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in [c for c, until in self._waiting.items() if until <= now]:
            self._end(connection)
        self._sweeps = bool(self._waiting)
        if self._sweeps:
            self._loop.after(SWEEP_S, self._sweep)

    def _end(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        self._waiting.pop(connection, None)
        self._loop.forget(connection)


def _reserve() -> int:
    try:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
