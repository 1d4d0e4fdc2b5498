"""Servers that stand by: started, their GPU library loaded, waiting for a channel.

On real GPUs each also has a context on the GPU it is for, which takes longest there, and loads the
modules of the members whose place it may take, from their object logs. What differs
from server to server (which device, faults to come) travels with the attach reply, so that any of
them can take over any rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyft.agent.channel.channel import Channel
from pyft.agent.members.server import Server
from pyft.agent.supervisor.link import SupervisorLink
from pyft.wire import messages as wire
from pyft.wire.layout import ATTACH_REPLY

# Variables by which the ranks of a job differ, and which mean nothing to a server.
RANK_VARIABLES = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE"),
        *("PYFT_SERVER_FD", "PYFT_SUPERVISOR_PID", "PYFT_DEVICE", "PYFT_STANDBY"),
    }
)
# Faults that a soft GPU reads when it is loaded: of a rank's first server only (environment.ONCE).
READ_AT_START = frozenset({"SOFTGPU_FAULT", "SOFTGPU_CONTROL"})
ANY, NOBODYS = -1, -2  # GPUs of servers that are for whichever, or killed


class Standby:
    """A pool of servers without a member, each for one GPU or, with ANY, for whichever."""

    def __init__(self, supervisor: SupervisorLink, program: Path) -> None:
        self._supervisor = supervisor
        self._program = program
        self._ended = False
        self._environment: dict[str, str] = {}
        self._pool: list[Server] = []

    @property
    def pids(self) -> set[int]:
        """The processes that stand by."""
        return {server.pid for server in self._pool}

    def fill(
        self,
        environment: Mapping[str, str],
        gpus: Sequence[int],
        variables: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """Have one stand by for each of the GPUs, with the environment of any rank's server.

        `variables`: what a server for a GPU gets besides. Those of other GPUs are ended.
        """
        self._environment = dict(environment)
        missing = [] if self._ended else list(gpus)
        for server in list(self._pool):
            if server.gpu in missing:
                missing.remove(server.gpu)
            else:
                self._end(server)
        for gpu in missing:
            try:
                env = self._environment | dict(variables(gpu))
                self._pool.append(Server.spawn(self._supervisor, self._program, env, 0, gpu))
            except OSError:
                return  # a replacement is started when it is needed, and says what is wrong

    def follow(self, channels: Mapping[int, Channel], gpus: Mapping[int, int]) -> None:
        """Have those that have a GPU of their own keep up with members' modules: on it, or all.

        They load them beforehand, since that takes most of what is left of a real GPU's takeover.
        On soft GPUs a module has to come back where it was, which is known only then.
        """
        for server in self._pool:
            if server.gpu < 0 or server.gave_up:
                continue
            wanted = {id for id in channels if gpus[id] == server.gpu} or channels.keys()
            for id in server.followed - wanted:
                if server.send(wire.Modules(id)):
                    server.followed.remove(id)
            for id in sorted(wanted - server.followed):
                server.follow(id, channels[id])

    def holders(self) -> list[Server]:
        """Return those that may have loaded modules."""
        return [server for server in self._pool if server.gpu >= 0 and server.holds]

    def take(self, environment: Mapping[str, str], epoch: int, gpu: int) -> Server | None:
        """Return a server that can have this environment, None if there is none."""
        if READ_AT_START & environment.keys():
            return None
        lines = difference(self._environment, environment)
        for server in sorted(self._pool, key=lambda one: one.gpu == ANY):
            if lines is None or server.gpu not in (gpu, ANY):
                continue
            self._pool.remove(server)
            server.epoch, server.gpu, server.settings = epoch, gpu, lines
            return server
        return None

    def reaped(self, pid: int) -> None:
        """Forget a process that has ended."""
        for server in self._pool:
            if server.pid == pid:
                server.socket.close()
                self._supervisor.forget(pid)
        self._pool = [server for server in self._pool if server.pid != pid]

    def end(self) -> None:
        """End all of them."""
        self._ended = True
        for server in list(self._pool):
            self._end(server)

    def _end(self, server: Server) -> None:
        """Kill a server; it is forgotten, and its connection closed, when it is reaped."""
        server.kill()
        server.gpu = NOBODYS


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
    too_long = len(text.encode(errors="surrogateescape")) >= ATTACH_REPLY["text"].size
    return None if broken or too_long else text
