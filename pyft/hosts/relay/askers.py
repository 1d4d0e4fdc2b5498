"""Programs that ask a relay for a port. Any process of the machine may call: none holds up the relay."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyft.agent.process.door import AT_ONCE, Listener, Refusals
from pyft.hosts.relay.streams import QUESTION_BYTES

ASK_S = 1.0
MOST_ASKERS = 16  # that have not asked yet
BACKLOG = 256


@dataclass
class Asker:
    """A connection whose question is not whole yet."""

    socket: socket.socket
    until: float
    said: bytes = b""


class Askers:
    """The socket for questions, and those who called there."""

    def __init__(
        self,
        name: str,
        selector: selectors.BaseSelector,
        ask: Callable[[socket.socket, bytes], None],
    ) -> None:
        """`ask` takes a whole question, and the connection on which it is answered."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("\0" + name)
        listener.listen(BACKLOG)
        self.refusals = Refusals("the relay")
        self._listener = Listener(listener, self.refusals)
        self._selector, self._ask = selector, ask
        self._waiting: dict[int, Asker] = {}  # by descriptor, the oldest ones first
        selector.register(listener, selectors.EVENT_READ, lambda _: self._accept())

    def look(self, now: float) -> None:
        """Give up those that have been silent for too long."""
        for asker in [one for one in self._waiting.values() if one.until <= now]:
            self._end(asker)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            connection = self._listener.accept()
            if connection is None:
                return
            if len(self._waiting) >= MOST_ASKERS:
                self._make_room()
            connection.setblocking(False)
            asker = Asker(connection, time.monotonic() + ASK_S)
            self._waiting[connection.fileno()] = asker
            self._selector.register(
                connection, selectors.EVENT_READ, lambda _, asker=asker: self._read(asker)
            )
            self._read(asker)  # most have asked by now

    def _make_room(self) -> None:
        """End the one that has been silent for longest; what it said meanwhile is still heard."""
        oldest = next(iter(self._waiting.values()))
        self._read(oldest)
        if self._waiting.get(oldest.socket.fileno()) is oldest:
            self._end(oldest)

    def _read(self, asker: Asker) -> None:
        try:
            piece = asker.socket.recv(QUESTION_BYTES - len(asker.said))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        asker.said += piece
        if len(asker.said) == QUESTION_BYTES:
            self._forget(asker)
            self._ask(asker.socket, asker.said)
        elif not piece:
            self._end(asker)

    def _end(self, asker: Asker) -> None:
        self._forget(asker)
        asker.socket.close()

    def _forget(self, asker: Asker) -> None:
        del self._waiting[asker.socket.fileno()]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(asker.socket)
