"""Calls at a relay's socket for questions: silent ones, those of another user, and too many."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from strangers import NOBODY, as_nobody

from pyft.hosts.relay.askers import ASK_S, MOST_ASKERS, Askers

Need = Callable[[str, bool, str], None]
QUESTION = (0).to_bytes(4, "little") + (4711).to_bytes(4, "little")
ANSWER = b"answered"


class World:
    """Askers, and what they were asked."""

    def __init__(self) -> None:
        self.name = f"pyft-test-{secrets.token_hex(6)}"
        self.selector = selectors.DefaultSelector()
        self.asked: list[bytes] = []
        self.askers = Askers(self.name, self.selector, self.answer)
        self.calls: list[socket.socket] = []

    def answer(self, asker: socket.socket, question: bytes) -> None:
        self.asked.append(question)
        with asker:
            asker.send(ANSWER)

    def call(self, *pieces: bytes) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.calls.append(made)
        made.settimeout(10.0)
        made.connect("\0" + self.name)
        for piece in pieces:
            made.sendall(piece)
            self.rest()
        return made

    def rest(self) -> int:
        """Do all that can be done without a wait; return in how many turns."""
        for turn in range(1000):
            if not (ready := self.selector.select(0)):
                return turn
            for key, mask in ready:
                if key.fd in self.selector.get_map():
                    key.data(mask)
        raise AssertionError("it turns in a circle")

    def waiting(self) -> int:
        return len(self.selector.get_map()) - 1


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for key in [*made.selector.get_map().values()]:
        key.fileobj.close()  # type: ignore[union-attr]
    for call in made.calls:
        call.close()


def test_a_silent_program_holds_up_no_other_one(world: World) -> None:
    silent = world.call()
    world.rest()
    assert world.call(QUESTION).recv(8) == ANSWER
    assert world.call(QUESTION[:3], QUESTION[3:]).recv(8) == ANSWER
    assert world.asked == [QUESTION, QUESTION]
    world.askers.look(time.monotonic())
    assert world.waiting() == 1
    world.askers.look(time.monotonic() + ASK_S)
    assert (world.waiting(), silent.recv(8)) == (0, b"")


def test_the_one_that_is_silent_for_longest_makes_room(world: World) -> None:
    silent = [world.call() for _ in range(MOST_ASKERS)]
    world.rest()
    silent[0].sendall(QUESTION)
    world.call()
    world.call()
    world.rest()
    assert world.waiting() == MOST_ASKERS
    assert silent[0].recv(8) == ANSWER, "it was not silent any more"
    assert silent[1].recv(8) == b""


def test_all_of_a_crowd_are_answered(world: World) -> None:
    crowd = [world.call() for _ in range(4 * MOST_ASKERS)]
    for one in crowd:
        one.sendall(QUESTION)
    world.rest()
    assert [one.recv(8) for one in crowd] == [ANSWER] * len(crowd)


def test_one_that_leaves_is_forgotten(world: World) -> None:
    world.call(QUESTION[:5]).close()
    world.rest()
    assert (world.waiting(), world.asked) == (0, [])


def test_without_a_descriptor_it_does_not_turn_in_a_circle(world: World) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    caller = world.call()
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        world.rest()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)
    assert caller.recv(8) == b""
    assert world.call(QUESTION).recv(8) == ANSWER


def test_another_user_is_not_answered(
    world: World, need: Need, capfd: pytest.CaptureFixture[str]
) -> None:
    need("root", os.geteuid() == 0, "only root can become another user")

    def ask() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.connect("\0" + world.name)
            made.sendall(QUESTION)
        return "done"

    assert as_nobody(ask) == "done"
    world.rest()
    assert (world.asked, world.waiting()) == ([], 0)
    said = capfd.readouterr().err
    assert f"refused a connection of another user [uid {NOBODY}] to the relay" in said
