"""Servers that stand by: started, their GPU library loaded, waiting for a channel.

One per spare GPU. What differs from server to server (which GPU, faults to come) travels with the
attach reply, so that any of them can take over any rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pyft.agent import protocol
from pyft.agent.server import Server

# Variables by which the ranks of a job differ, and which mean nothing to a server.
RANK_VARIABLES = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE"),
        *("PYFT_SERVER_FD", "PYFT_DEVICE"),
    }
)


class Standby:
    """A pool of servers without a member."""

    def __init__(self, program: Path, wanted: int) -> None:
        self._program = program
        self._wanted = wanted
        self._environment: dict[str, str] = {}
        self._pool: list[Server] = []

    @property
    def pids(self) -> set[int]:
        """The processes that stand by."""
        return {server.pid for server in self._pool}

    def fill(self, environment: Mapping[str, str]) -> None:
        """Start what is missing, with the environment of any rank's server."""
        self._environment = dict(environment)
        while len(self._pool) < self._wanted:
            try:
                self._pool.append(Server.spawn(self._program, self._environment, 0, -1))
            except OSError:
                return  # a replacement is started when it is needed, and says what is wrong

    def take(self, environment: Mapping[str, str], epoch: int, gpu: int) -> Server | None:
        """Return a server that can have this environment, None if there is none."""
        if not self._pool:
            return None
        lines = difference(self._environment, environment)
        if lines is None:
            return None
        server = self._pool.pop(0)
        server.epoch, server.gpu, server.settings = epoch, gpu, lines
        return server

    def reaped(self, pid: int) -> None:
        """Forget a process that has ended."""
        for server in self._pool:
            if server.pid == pid:
                server.socket.close()
        self._pool = [server for server in self._pool if server.pid != pid]

    def end(self) -> None:
        """End all of them."""
        self._wanted = 0
        for server in self._pool:
            server.kill()
            with contextlib.suppress(OSError):
                server.socket.close()


def difference(has: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Return what the attach reply has to change, one NAME=VALUE a line; None if it cannot.

    A name without a value goes away.
    """
    lines = []
    for name in sorted({*has, *wanted} - RANK_VARIABLES):
        old, new = has.get(name), wanted.get(name)
        if old != new:
            lines.append(name if new is None else f"{name}={new}")
    text = "\n".join(lines)
    broken = any("\n" in line for line in lines)
    too_long = len(text.encode(errors="surrogateescape")) >= protocol.TEXT_BYTES
    return None if broken or too_long else text
