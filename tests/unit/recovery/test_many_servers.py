"""Hundreds of servers, one after the other: what an agent has open then."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_many_clients import SIZES, Supervisor

from pyft import _native
from pyft.agent.agent import Agent
from pyft.agent.channel import page
from pyft.agent.job.options import JobOptions
from pyft.agent.members.server import NAME
from pyft.agent.process import messages
from pyft.agent.supervisor.link import Handover, Process
from pyft.recovery.rank import State
from pyft.wire import layout, packet
from pyft.wire import messages as wire
from pyft.wire.layout import ATTACH_REQUEST

FAULTS, FIRST = 200, 10


class Keeping(Supervisor):
    """Knows which descriptors came with a note."""

    def __init__(self) -> None:
        super().__init__()
        self.fds: dict[str, list[int]] = {}

    def keep(
        self, name: str, note: dict[str, Any], fds: Sequence[int] = (), answered: str = ""
    ) -> None:
        super().keep(name, note, fds, answered)
        self.fds[name] = list(fds)


class Job:
    """An agent, one client, and its servers, which are sockets only."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = Keeping()
        self.options = JobOptions(
            "j", folder, _native.native_dir(), 1, direct=False, command=("x",), protect="snapshot"
        )
        self.launcher, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.begin(Handover(launcher=self.theirs, clients_name="n"))
        self.client, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = b"".join(f"{name}={value}\0".encode() for name, value in SIZES.items())
        head = (layout.ATTACH_MAGIC, layout.ATTACH_VERSION, os.getpid(), 0, len(environment), 0)
        self.client.send(ATTACH_REQUEST.pack(*head) + environment)
        self.agent._clients.accept("call", ours)
        self.turn_until(lambda: self.servers.members)
        (self.member,) = self.servers.members.values()
        _, fds, _, _ = socket.recv_fds(self.client, 4096, 8)
        for fd in fds:
            os.close(fd)

    def begin(self, handover: Handover) -> None:
        """Let an agent begin, which has the handover as long as it lives."""
        self.handover = handover
        self.agent = Agent(self.options, self.supervisor)  # type: ignore[arg-type]
        self.agent._launcher = self.theirs
        self.agent._adopt(handover)
        self.servers = self.agent._servers
        self.servers.reserve.fill = lambda _: None  # type: ignore[method-assign] # none stands by

    def next_agent(self) -> None:
        """Let another agent take over. What the one before has open stays so."""
        notes = json.loads(json.dumps(self.supervisor.notes))
        fds = {name: [os.dup(fd) for fd in kept] for name, kept in self.supervisor.fds.items()}
        assert self.member.server
        ours = socket.socket(fileno=os.dup(self.member.server.socket.fileno()))
        process = Process(NAME, self.member.server_pid, ours, None)
        self.begin(
            Handover(
                launcher=self.theirs,
                clients_name="n",
                restarts=1,
                notes=notes,
                fds=fds,
                processes={process.pid: process},
            )
        )
        (self.member,) = self.servers.members.values()

    def turn_until(self, condition: Any) -> None:
        """Let the agent work."""
        while not condition():
            self.agent._turn()

    def fault(self, number: int) -> None:
        """Let the server die; the next one works at once."""
        pid, control = self.member.server_pid, self.member.channel.control_fd
        page.write(control, snapshot_cut=number + 1)  # it is at another place each time
        server = self.supervisor.servers.pop(pid)
        server.close()
        self.agent._process_ended(pid, signal.SIGKILL)
        self.turn_until(lambda: self.member.server_pid != pid)
        theirs = self.supervisor.servers[self.member.server_pid]
        _, fds, _, _ = socket.recv_fds(theirs, 65536, 8)
        for fd in fds:
            os.close(fd)
        theirs.send(packet.pack(wire.Live()))
        rank = self.servers.plan.ranks[self.member.id]
        self.turn_until(lambda: rank.state is State.RUNNING)

    def close(self) -> None:
        """Give up what the agent is not asked to."""
        for one in (*self.supervisor.servers.values(), self.client, self.launcher):
            one.close()
        self.member.channel.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(messages, "say", lambda _: None)
    made = Job(tmp_path)
    gc.disable()
    yield made
    gc.enable()
    made.close()


def open_files() -> Counter[str]:
    """Return how many descriptors this process has of each kind."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]] += 1
        except OSError:  # that of the folder itself
            continue
    return found


def test_no_server_leaves_a_descriptor(job: Job) -> None:
    """Nor until Python looks for what nothing refers to any more, which may take hours."""
    for number in range(FIRST):
        job.fault(number)
    before = open_files()
    for number in range(FIRST, FAULTS):
        job.fault(number)
    assert job.servers.incidents.summary()["recovered"] == FAULTS
    assert open_files() == before


def test_nor_does_one_that_was_taken_over(job: Job) -> None:
    job.fault(0)
    before_it = job.agent
    job.next_agent()
    before = open_files()
    for number in range(1, FIRST):
        job.fault(number)
    assert open_files() == before
    assert before_it is not job.agent
