"""The agent hears who makes a communicator before what others have said later, by real sockets."""

from __future__ import annotations

import random
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.lifecycle.router import Router
from pyft.agent.members.server import Server
from pyft.agent.process.loop import EventLoop
from pyft.recovery import events
from pyft.wire import messages as wire
from pyft.wire import packet

KEY = 7
MAKING = wire.Making(KEY, 0)
WANTED = wire.WantExport(KEY, 1)
OTHER = wire.Minted(KEY + 1)


class Agent:
    """Servers of a job, with an event loop and a router. `heard`: what the plan is told."""

    def __init__(self, servers: int) -> None:
        self.loop = EventLoop()
        self.heard: list[tuple[int, wire.Message]] = []
        self.plan = SimpleNamespace(rollback=None)
        self.elsewhere = None  # it has no head
        self.members: dict[int, Any] = {}
        self.theirs: list[socket.socket] = []
        self.router = Router(self)  # type: ignore[arg-type]
        for id in range(servers):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            link: Any = None
            server = Server(0, ours, 1, id, link)
            member: Any = SimpleNamespace(id=id, server=server, who=f"client {id}")
            self.members[id] = member
            self.theirs.append(theirs)
            self.loop.watch(ours, lambda m=member, s=server: self.router.read(m, s))

    def event(self, event: events.Received) -> None:
        """Take what the router has for the plan."""
        self.heard.append((event.id, event.message))

    def says(self, id: int, message: wire.Message) -> None:
        """Let a server speak."""
        self.theirs[id].send(packet.pack(message))

    def turn(self) -> None:
        """Let the agent's loop turn once, without a wait."""
        self.loop.after(0, lambda: None)
        self.loop.turn()

    def close(self) -> None:
        """Close all sockets."""
        for member, theirs in zip(self.members.values(), self.theirs, strict=True):
            self.loop.forget(member.server.socket)
            member.server.socket.close()
            theirs.close()


def orders(seed: int) -> Agent:
    """Let 0 say MAKING, and 1 speak afterwards, among others and after anything else."""
    dice = random.Random(seed)
    agent = Agent(5)
    for _ in range(dice.randrange(8)):
        agent.says(dice.randrange(5), OTHER)
        if dice.random() < 0.5:
            agent.turn()
    agent.says(0, MAKING)
    for _ in range(dice.randrange(4)):
        agent.says(dice.randrange(1, 5), OTHER)
    agent.says(1, WANTED)
    for _ in range(16):
        agent.turn()
    agent.close()
    return agent


def is_right(agent: Agent) -> bool:
    """Say whether MAKING was heard before what was said later."""
    return agent.heard.index((0, MAKING)) < agent.heard.index((1, WANTED))


def test_making_is_heard_first() -> None:
    for seed in range(500):
        agent = orders(seed)
        assert is_right(agent), seed
        asked = [one for one in agent.heard if one[1] != MAKING]
        assert len(asked) == len(agent.heard) - agent.heard.count((0, MAKING))
        assert asked.count((1, WANTED)) == 1, "only MAKING is heard twice"


def test_sockets_alone_do_not_promise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Router, "_hear_making_before", lambda *_: None)
    assert not all(is_right(orders(seed)) for seed in range(500))


def test_what_is_looked_at_ahead_stays_there() -> None:
    agent = Agent(2)
    for message in (OTHER, MAKING, WANTED):
        agent.says(0, message)
    agent.theirs[0].send(b"damaged")
    agent.says(0, OTHER)
    server = agent.members[0].server
    for _ in range(2):
        assert [e.message for e in server.ahead(0)] == [OTHER, MAKING, WANTED, OTHER]
    for message in (OTHER, MAKING, WANTED):
        event = server.receive(0)
        assert event is not None
        assert event.message == message
        server.taken()
    agent.theirs[0].close()
    assert [e.message for e in server.ahead(0)] == [OTHER], "and what is said before the end"
