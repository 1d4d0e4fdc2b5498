"""The agent's side of its supervisor (supervisor.py): what it is given at its start, and what it asks for.

All but `start` only say something. What has been said counts even if the agent dies at once: the
supervisor hears it before it starts the next agent.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyft.agent.process import fault, messages
from pyft.agent.process.notes import make_note, read_note


def orders_name(clients_name: str) -> str:
    """Return the name of a job's socket for orders, without the zero byte in front.

    Like that of the socket for clients it cannot be guessed: nothing has it before the job.
    """
    return f"{clients_name}-orders"


@dataclass
class Process:
    """A child of the supervisor. `status`: of wait(), if it has ended."""

    name: str
    pid: int
    socket: socket.socket | None
    status: int | None


@dataclass
class Handover:
    """What the agents before this one have left; nothing for the first one."""

    launcher: socket.socket | None = None
    orders: socket.socket | None = None  # listens for operators
    relay: socket.socket | None = None  # hears the relay of a place
    clients_name: str = ""
    restarts: int = 0  # agents before this one
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    fds: dict[str, list[int]] = field(default_factory=dict)  # that came with the notes
    clients: dict[str, socket.socket] = field(default_factory=dict)  # not answered yet
    processes: dict[int, Process] = field(default_factory=dict)

    def at_work(self, name: str) -> int:
        """Return the process of this name that has not ended; 0 if there is none."""
        found = (p.pid for p in self.processes.values() if p.name == name and p.status is None)
        return next(found, 0)

    def failed(self, name: str) -> list[int]:
        """Return the processes of this name that have ended, and not well."""
        return [pid for pid in self.ended(name) if self.processes[pid].status]

    def ended(self, name: str) -> list[int]:
        """Return the processes of this name that have ended."""
        found = self.processes.values()
        return [p.pid for p in found if p.name == name and p.status is not None]


class SupervisorLink:
    """One end of the agent's socket to the supervisor."""

    def __init__(self, channel: socket.socket) -> None:
        self.socket = channel
        self._early: deque[tuple[dict[str, Any], list[int]]] = deque()

    def take_over(self) -> Handover:
        """Return what there is; the supervisor says it first."""
        handover = Handover()
        while True:
            message, fds = self._next()
            kind = message["kind"]
            if kind == "hello":
                sockets = [socket.socket(fileno=fd) for fd in fds]
                handover.launcher, handover.orders, handover.relay = (*sockets, None, None)[:3]
                handover.clients_name, handover.restarts = (
                    message["clients_name"],
                    message["restarts"],
                )
            elif kind == "kept":
                handover.notes[message["name"]] = read_note(fds[0])
                handover.fds[message["name"]] = fds[1:]
            elif kind == "client":
                handover.clients[message["name"]] = socket.socket(fileno=fds[0])
            elif kind == "child":
                end = socket.socket(fileno=fds[0]) if fds else None
                pid = message["pid"]
                handover.processes[pid] = Process(message["name"], pid, end, message["status"])
            elif kind == "ended":
                handover.processes[message["pid"]].status = message["status"]
            elif kind == "all":
                return handover

    def received(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message, None when there is none now."""
        if self._early:
            return self._early.popleft()
        ready, _, _ = select.select([self.socket], [], [], 0)
        return self._next() if ready else None

    def start(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[int, socket.socket | None]:
        """Start a process; return its pid and our end of its socket. Raise OSError."""
        what = {"arguments": list(arguments), "environment": dict(environment)}
        return self._start(name, what)

    def start_criu(
        self,
        name: str,
        arguments: Sequence[str],
        root: int,
        inherit: Sequence[tuple[str, int, str]] = (),
        standard: Sequence[tuple[int, str]] = (),
    ) -> int:
        """Start CRIU; return its pid. Raise OSError.

        `root`: the first process of what it dumps or restores. `inherit`: which kept descriptors it
        gives to what files of the image (name, number among them, CRIU's key); `standard`: the same
        for the supervisor's own.
        """
        what = {"arguments": list(arguments), "environment": dict(os.environ), "root": root}
        what |= {"inherit": list(inherit), "standard": list(standard)}
        return self._start(name, what)[0]

    def _start(self, name: str, what: dict[str, Any]) -> tuple[int, socket.socket | None]:
        self._say("start", [make_note(name, what)], name=name)
        while True:
            message, fds = self._next()
            if message["kind"] == "started":
                break
            self._early.append((message, fds))
        if error := message.get("error"):
            raise OSError(error, os.strerror(error))
        return message["pid"], socket.socket(fileno=fds[0]) if fds else None

    def keep(
        self, name: str, note: dict[str, Any], fds: Sequence[int] = (), answered: str = ""
    ) -> None:
        """Have a note kept for the next agent, and descriptors with it, instead of the last one.

        `answered`: the client's connection that the note stands for. It is dropped in the same
        moment, so the next agent finds one of the two, whenever this one dies.
        """
        self._say("keep", [make_note(name, note)], fds, name=name, answered=answered)

    def drop(self, name: str) -> None:
        """Have a note, or a client's connection, kept no longer."""
        self._say("drop", name=name)

    def kill(self, pid: int, number: int) -> None:
        """Signal a process that the supervisor has started, if it still runs."""
        self._say("kill", pid=pid, number=int(number))

    def forget(self, pid: int) -> None:
        """Say that no agent needs to know any more how a process ended."""
        self._say("forget", pid=pid)

    def took_over(self) -> None:
        """Say that this agent has adopted everything."""
        self._say("took over")

    def working(self) -> None:
        """Say that this agent is no failure."""
        self._say("working")

    def over(self) -> None:
        """Say that the job has ended: no agent is needed after this one."""
        self._say("over")

    def _next(self) -> tuple[dict[str, Any], list[int]]:
        got = messages.receive(self.socket, messages.MOST_DESCRIPTORS)  # what was kept has many
        if got is None:  # this process is about to get SIGKILL; the launcher ends the rest
            messages.flush_and_exit(1)
        return got

    def _say(
        self, kind: str, own: Sequence[int] = (), fds: Sequence[int] = (), **values: Any
    ) -> None:
        """Send a message, and close the descriptors that were made for it."""
        fault.point("agent.says")
        while True:  # the supervisor may be busy telling us something: make room for it
            readable, writable, _ = select.select([self.socket], [self.socket], [])
            if writable:
                break
            if readable:
                self._early.append(self._next())
        messages.send(self.socket, kind, (*own, *fds), **values)
        for fd in own:
            os.close(fd)
