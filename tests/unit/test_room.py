"""Modules of servers that stand by: who is told of which logs, and who gives memory back."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.channel.channel import Channel
from pyft.agent.members.server import Server
from pyft.agent.standby.room import Room
from pyft.agent.standby.standby import ANY, Standby
from pyft.wire import messages as wire
from pyft.wire import packet

SPARES = {3: 5, 4: 5}  # members are on another GPU than those that stand by
GPUS = ("GPU-a", "GPU-a", "GPU-b")  # the first two are one device


class Loop:
    """Calls what it is told to when the test says so."""

    def __init__(self) -> None:
        self.actions: dict[int, Callable[[], Any]] = {}

    def watch(self, source: socket.socket, action: Callable[[], Any]) -> None:
        assert source.fileno() not in self.actions
        self.actions[source.fileno()] = action

    def forget(self, source: socket.socket) -> None:
        self.actions.pop(source.fileno(), None)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        for action in list(self.actions.values()):
            action()


class Process:
    """A server and the other end of its connection."""

    pids = 100

    def __init__(self, gpu: int) -> None:
        Process.pids += 1
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        supervisor: Any = SimpleNamespace(kill=lambda *_: None, forget=lambda *_: None)
        self.theirs.setblocking(False)
        self.server = Server(Process.pids, ours, 0, gpu, supervisor)

    def heard(self) -> list[tuple[wire.Message, int]]:
        """Return each message and the number of its descriptors."""
        found = []
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.theirs, 1024, 4)
            except BlockingIOError:
                return found
            found.append((packet.unpack(data), len(fds)))
            for fd in fds:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.write(fd, b"x")
                os.close(fd)

    def says(self, message: wire.Message) -> None:
        self.theirs.send(packet.pack(message))


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[int, Channel]]:
    made = {}
    for id in (3, 4):
        fd = os.memfd_create("pyft-test", os.MFD_CLOEXEC)
        made[id] = Channel(f"member{id}", id, os.getpid(), 0, 1, log_fd=fd)
    yield made
    for channel in made.values():
        channel.close()


def pool_of(tmp_path: Path, *processes: Process) -> Standby:
    supervisor: Any = processes[0].server.supervisor
    pool = Standby(supervisor, tmp_path)
    pool._pool = [process.server for process in processes]
    return pool


def test_logs_are_shown_to_those_that_have_a_gpu(
    tmp_path: Path, channels: dict[int, Channel]
) -> None:
    mine, anybodys = Process(0), Process(ANY)
    pool = pool_of(tmp_path, mine, anybodys)
    pool.follow({3: channels[3]}, SPARES)
    pool.follow(channels, SPARES)
    assert mine.heard() == [(wire.Modules(3), 1), (wire.Modules(4), 1)]
    pool.follow({4: channels[4]}, SPARES)
    assert mine.heard() == [(wire.Modules(3), 0)], "3 has ended"
    assert anybodys.heard() == []
    assert pool.holders() == [mine.server]


def test_who_stands_by_for_a_gpu_in_use_follows_those_on_it(
    tmp_path: Path, channels: dict[int, Channel]
) -> None:
    mine = Process(0)
    pool = pool_of(tmp_path, mine)
    pool.follow(channels, {3: 1, 4: 0})
    assert mine.heard() == [(wire.Modules(4), 1)]
    pool.follow(channels, {3: 0, 4: 1})
    assert mine.heard() == [(wire.Modules(4), 0), (wire.Modules(3), 1)]


def test_memory_is_given_back_before_a_program_is_told_that_there_is_none(
    tmp_path: Path, channels: dict[int, Channel]
) -> None:
    here, too, elsewhere = Process(0), Process(1), Process(2)
    pool = pool_of(tmp_path, here, too, elsewhere)
    pool.follow(channels, SPARES)
    for process in (here, too, elsewhere):
        process.heard()
    loop = Loop()
    room, asking = Room(pool, GPUS, loop), Process(1)
    room.wanted(asking.server, 7)
    assert here.heard() == too.heard() == [(wire.GiveUp(), 0)]
    assert elsewhere.heard() == []
    here.says(wire.GivenUp())
    loop.turn()
    assert asking.heard() == [], "the other one has not answered"
    room.wanted(asking.server, 8)
    too.says(wire.GivenUp())
    loop.turn()
    assert asking.heard() == [(wire.MemoryFreed(7, True), 0), (wire.MemoryFreed(8, True), 0)]
    room.wanted(asking.server, 9)
    assert asking.heard() == [(wire.MemoryFreed(9, False), 0)], "nobody holds anything"
    pool.follow(channels, SPARES)
    assert here.heard() == []
    assert [message for message, _ in too.heard()] == [wire.GiveUp()], "the second question"


def test_who_dies_or_is_taken_owes_nothing(tmp_path: Path, channels: dict[int, Channel]) -> None:
    dies, taken, ended = Process(0), Process(0), Process(0)
    pool = pool_of(tmp_path, taken, dies, ended)
    pool.follow(channels, SPARES)
    pool._end(ended.server)
    loop = Loop()
    room, asking = Room(pool, GPUS, loop), Process(1)
    room.wanted(asking.server, 1)
    assert len(loop.actions) == 2, "who has been killed holds nothing"
    room.gone(dies.server.pid)
    assert asking.heard() == []
    assert pool.take({}, 2, 0) is taken.server
    room.taken(taken.server)
    assert loop.actions == {}
    loop.watch(taken.server.socket, lambda: None)
    room.given_up(taken.server)  # as servers.read does with a message of one that works
    assert asking.heard() == [(wire.MemoryFreed(1, True), 0)]
    room.gone(taken.server.pid)
    assert len(loop.actions) == 1, "whose it is listens to it"
