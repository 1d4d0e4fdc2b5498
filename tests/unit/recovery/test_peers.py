"""New servers are brought together with those of living replicas."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from pyft.agent.replicas.peers import Peers
from pyft.recovery.replicas import Replicas


class Server(SimpleNamespace):
    """Takes descriptors, as the one behind a socket would."""

    def send_peer(self, attempt: int, fd: int) -> None:
        self.got.append((attempt, os.dup(fd) if fd >= 0 else -1))

    def lend(self, fd: int) -> bool:
        if self.listens:
            self.lends.append(os.dup(fd))
        return self.listens


class Agent:
    """A job with members 0 to 3; the contents of 0 are those of 2, 1 and 3, in this order."""

    def __init__(self) -> None:
        self.members = {id: self.member(id) for id in range(4)}
        self.replicas = {0: [2, 1, 3]}
        self.working = {1, 2, 3}
        self.peers = Peers(
            self.members,  # type: ignore[arg-type]
            lambda id: self.replicas.get(id, []),
            lambda id: id in self.working,
        )

    @staticmethod
    def member(id: int) -> SimpleNamespace:
        server = Server(got=[], lends=[], alive=True, listens=True, epoch=4)
        return SimpleNamespace(id=id, server=server)

    def server(self, id: int) -> Server:
        return self.members[id].server

    def wants(self, attempt: int = 0) -> int:
        """Let member 0 ask; return the descriptor that it gets."""
        self.peers.wanted(0, self.server(0), attempt)  # type: ignore[arg-type]
        got, fd = self.server(0).got[-1]
        assert got == attempt
        return fd

    def lenders(self) -> list[int]:
        return [id for id in self.members if self.server(id).lends]

    def close(self) -> None:
        for server in (member.server for member in self.members.values() if member.server):
            for fd in [*server.lends, *(fd for _, fd in server.got if fd >= 0)]:
                os.close(fd)


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_both_get_an_end_of_one_connection(agent: Agent) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fd = agent.wants()
    assert agent.lenders() == [2]
    with socket.socket(fileno=fd) as mine, socket.socket(fileno=agent.server(2).lends[0]) as its:
        mine.send(b"question")
        assert its.recv(100) == b"question"
        with pytest.raises(BlockingIOError):
            mine.recv(100)
    assert len(os.listdir("/proc/self/fd")) == before


def test_each_replica_is_given_once(agent: Agent) -> None:
    assert all(agent.wants(attempt) >= 0 for attempt in range(3))
    assert agent.lenders() == [1, 2, 3]
    assert agent.wants(3) == -1
    agent.server(0).epoch = 5  # another new server
    assert agent.wants() >= 0
    assert len(agent.server(2).lends) == 2
    agent.close()


def test_who_is_gone_between_two_questions_takes_no_place(agent: Agent) -> None:
    assert agent.wants() >= 0
    agent.replicas[0] = [1, 3]
    assert agent.wants(1) >= 0
    assert agent.lenders() == [1, 2]
    agent.close()


@pytest.mark.parametrize("how", ["replaced", "dead", "deaf", "none", "gone"])
def test_who_cannot_lend_is_passed_over(agent: Agent, how: str) -> None:
    if how == "replaced":
        agent.working.discard(2)
    agent.server(2).alive = how != "dead"
    agent.server(2).listens = how != "deaf"
    if how == "none":
        agent.members[2].server = None
    if how == "gone":
        del agent.members[2]
    assert agent.wants() >= 0
    assert agent.server(1).lends
    agent.close()


def test_without_replicas_there_is_nobody(agent: Agent) -> None:
    agent.replicas = {0: [0]}
    assert agent.wants() == -1
    agent.peers.ended(0)
    assert agent.wants() == -1


def test_those_with_most_in_common_come_first() -> None:
    replicas = Replicas()
    small, large, own = (0, 1000), (4096, 2000), (8192, 5000)
    for cut in (1, 2):
        digest = bytes([cut])
        replicas.staged(0, cut, {small: digest, large: digest, own: b"a"})
        replicas.staged(1, cut, {small: digest, large: b"other", own: b"b"})
        replicas.staged(2, cut, {small: digest, large: digest, own: b"c"})
    assert replicas.partners(0) == [2, 1]
    replicas.own.add(small)
    assert replicas.partners(1) == []
    replicas.restarted(0)
    assert replicas.partners(0) == [2]
    replicas.gone(2)
    assert replicas.partners(0) == []
    assert replicas.partners(7) == []
