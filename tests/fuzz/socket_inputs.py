"""Connections to the agent's sockets: who comes, speaks, falls silent and goes, in any order."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

from agent_inputs import Target

from pyft.agent.process.door import Door, Listener, Refusals
from pyft.agent.process.loop import EventLoop

MOST = 4
CALLERS = 24  # at once
BACKLOG = 64
TURNS = 64  # many more than it takes to hear all of these


class Loop(EventLoop):
    """The agent's, of which timers never come due; it does what is ready when it is told to."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        pass

    def turn(self, longest: float = 0.0) -> int:
        return super().turn(longest)


class Sockets(Target):
    """A listener and its door: each byte of the input is one thing that a caller does."""

    name = "sockets"

    def __init__(self) -> None:
        self.name_of = f"\0pyft-fuzz-{os.getpid()}-{id(self)}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.name_of)
        self.listener.listen(BACKLOG)
        self.loop = Loop()
        mine = Listener(self.listener, Refusals("the socket"))
        self.door = Door(self.loop, mine, self._answer, most=MOST, seconds=60)
        self.heard = 0
        self.before = len(os.listdir("/proc/self/fd"))

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):  # it has gone
            self.heard += bool(connection.recv(4096, socket.MSG_DONTWAIT))

    def seeds(self) -> list[bytes]:
        return [b"\0\1\3\2", b"\0\0\0\0\0\0\3\1\3", b"\0\4\3\0\1\4\3\2", bytes(30) + b"\3"]

    def run(self, data: bytes) -> None:
        callers: deque[socket.socket] = deque()
        for byte in data[:256]:
            self._do(byte % 5, callers)
        while callers:
            callers.popleft().close()
        self._rest()
        # Whatever there was: who comes now is heard.
        before = self.heard
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(self.name_of)
            one.send(b"hello")
            self._rest()
        assert self.heard == before + 1
        assert len(os.listdir("/proc/self/fd")) == self.before, "a descriptor is left"

    def _rest(self) -> None:
        """Turn until nothing is ready: without timers nothing changes from then on."""
        for _ in range(TURNS):
            if not self.loop.turn():
                return
        raise AssertionError(f"something is still ready after [{TURNS}] turns")

    def _do(self, act: int, callers: deque[socket.socket]) -> None:
        if act == 0 and len(callers) < CALLERS:
            callers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            callers[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):  # the queue is full
                callers[-1].connect(self.name_of)
        elif act == 3:
            self.loop.turn()
            assert len(self.door._waiting) <= MOST
        elif callers:
            with contextlib.suppress(OSError):  # it was sent away, or is in the queue
                if act == 1:
                    callers[0].send(b"hello")
                elif act == 2:
                    callers.popleft().close()
                elif act == 4:
                    callers[0].shutdown(socket.SHUT_RDWR)
            callers.rotate(-1)

    def close(self) -> None:
        self.listener.close()
