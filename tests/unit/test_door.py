"""Sockets to which anybody can connect: bounds, deadlines, want of descriptors, other users."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyft.agent.operators import metrics
from pyft.agent.process import door
from pyft.agent.process.door import Door, Listener, Refusals
from pyft.agent.process.loop import EventLoop

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
import socket_inputs  # noqa: E402


class Loop(socket_inputs.Loop):
    """An event loop as the agent's, with timers."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((time.monotonic() + seconds, action))

    def turn(self, longest: float = 0.0) -> int:
        """Do what is due as well."""
        due = [timer for timer in self.timers if timer[0] <= time.monotonic()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, action in due:
            action()
        return super().turn(longest)

    def rest(self, turns: int = 200) -> None:
        """Turn until nothing is ready: a loop that spins never comes to that."""
        for _ in range(turns):
            if not self.turn():
                return
        raise AssertionError(f"something is still ready after [{turns}] turns")


@pytest.fixture
def name() -> str:
    return f"\0pyft-test-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def listener(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(name)
        made.listen(1024)
        yield made


def callers(name: str, count: int) -> list[socket.socket]:
    made = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    for one in made:
        one.connect(name)
    return made


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_silent_ones_make_room(listener: socket.socket, name: str) -> None:
    loop, heard = Loop(), []
    Door(loop, Listener(listener), lambda c: heard.append(c.recv(9)), most=4, seconds=60)
    silent = callers(name, 300)
    before = descriptors()
    loop.rest()
    assert descriptors() <= before + 4
    (speaks,) = callers(name, 1)
    speaks.send(b"hello")
    loop.rest()
    assert heard == [b"hello"]
    for one in [*silent, speaks]:
        one.close()
    loop.rest()
    assert descriptors() == before - 300


def test_what_one_said_that_was_ended_is_not_heard_at_another(
    listener: socket.socket, name: str
) -> None:
    """In one turn it is ended, the next connection gets its descriptor, and its word is due."""
    loop, heard = EventLoop(), []
    Door(loop, Listener(listener), lambda c: heard.append(c.recv(9)), most=1, seconds=60)
    (first,) = callers(name, 1)
    loop.turn()
    others = callers(name, 2)
    first.send(b"late")
    loop.turn()
    assert heard == []
    others[1].send(b"hello")
    loop.turn()
    assert heard == [b"hello"]
    for one in (first, *others):
        one.close()


def test_a_silent_one_is_ended_in_time(listener: socket.socket, name: str) -> None:
    loop = Loop()
    Door(loop, Listener(listener), lambda _: None, most=4, seconds=0.1)
    (silent,) = callers(name, 1)
    silent.setblocking(False)
    deadline = time.monotonic() + 20
    while True:
        loop.turn()
        try:
            assert silent.recv(1) == b""
            break
        except BlockingIOError:
            assert time.monotonic() < deadline
    assert not loop.timers, "nothing is looked for where nobody waits"
    silent.close()


def asked(pieces: list[bytes], ends: bool = False) -> bytes:
    """Return what `/metrics` answers to a request in pieces, each read before the next one."""
    loop = Loop()
    listener = metrics.serve(0, loop, lambda: "a 1\n")
    with listener, socket.create_connection(listener.getsockname()) as reader:
        for piece in pieces:
            reader.sendall(piece)
            loop.rest()
        if ends:
            reader.shutdown(socket.SHUT_WR)
            loop.rest()
        reader.setblocking(False)
        try:
            return reader.recv(1 << 16)
        except BlockingIOError:
            return b"waits"


def test_many_requests_are_answered_with_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def text() -> str:
        made.append(len(made))
        return f"a {made[-1]}\n"

    def ask() -> bytes:
        with socket.create_connection(listener.getsockname()) as reader:
            reader.sendall(REQUEST)
            loop.rest()
            return reader.recv(1 << 16)

    loop = Loop()
    with metrics.serve(0, loop, text) as listener:
        monkeypatch.setattr(metrics, "KEEP_S", 3600.0)
        answers = {ask() for _ in range(100)}
        assert (len(answers), made) == (1, [0])
        monkeypatch.setattr(metrics, "KEEP_S", 0.0)
        assert ask().endswith(b"a 1\n")


def test_metrics_larger_than_the_room_of_a_socket_come_whole() -> None:
    """Those of hundreds of ranks are."""
    text = "a 1\n" * (4 << 20)
    loop, got = Loop(), bytearray()
    listener = metrics.serve(0, loop, lambda: text)
    with listener, socket.create_connection(listener.getsockname()) as reader:
        reader.sendall(REQUEST)
        loop.rest()
        reader.settimeout(20)
        while piece := reader.recv(1 << 20):
            got += piece
            loop.rest()
    assert got.partition(b"\r\n\r\n")[2] == text.encode()


REQUEST = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 5, 13, 23, len(REQUEST) - 2, len(REQUEST) - 1])
def test_a_request_for_metrics_may_come_in_pieces(cut: int) -> None:
    assert asked([REQUEST[:cut]]) == b"waits"
    assert asked([REQUEST[:cut], REQUEST[cut:]]).endswith(b"\r\n\r\na 1\n")
    assert asked([bytes([byte]) for byte in REQUEST]).startswith(b"HTTP/1.1 200 OK")


def test_a_request_for_metrics_has_an_end() -> None:
    line = b"GET /metrics HTTP/1.1\r\nX: "
    long = [line, b"y" * (8191 - len(line)), b"y"]
    assert asked(long[:2]) == b"waits"
    assert asked(long).startswith(b"HTTP/1.1 200 OK")
    assert asked([b"GET /metrics HTTP/1.0\r\n"], ends=True).startswith(b"HTTP/1.1 200 OK")


@pytest.fixture
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Take away all descriptors that are free, also those between others."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    holes: list[int] = []

    def take() -> None:
        most = max(map(int, os.listdir("/proc/self/fd"))) + 1
        while not holes or holes[-1] < most:
            holes.append(os.open("/dev/null", os.O_RDONLY))
        os.close(holes.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))

    yield take
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in holes:
        os.close(fd)


@pytest.mark.parametrize("reserve", [True, False])
def test_no_descriptor_is_no_end(
    listener: socket.socket,
    name: str,
    no_descriptors: Callable[[], None],
    reserve: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "PAUSE_S", 0.001)
    loop, heard = Loop(), []
    mine = Listener(listener)
    Door(loop, mine, lambda c: heard.append(c.recv(9)), most=4, seconds=60)
    many = callers(name, 50)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_descriptors()
    if reserve:
        loop.rest()  # all are turned away: the loop does not spin
        assert all(one.recv(1) == b"" for one in many)
    else:  # it was needed elsewhere
        os.close(mine._reserve)
        taken = os.open("/dev/null", os.O_RDONLY)
        mine._reserve = -1
        for _ in range(20):
            loop.turn()  # each takes PAUSE_S
        os.close(taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        loop.rest()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    (one,) = callers(name, 1)
    one.send(b"hello")
    loop.rest()
    assert heard == [b"hello"]
    for caller in [*many, one]:
        caller.close()


def test_refusals_are_named_once(capfd: pytest.CaptureFixture[str]) -> None:
    refusals = Refusals("the socket")
    for uid in range(100, 200):
        for _ in range(50):
            refusals.refuse(uid)
    refusals.sum_up()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == door.MOST_USERS + 1
    assert lines[0] == "pyft: refused a connection of another user [uid 100] to the socket"
    assert f"refused [{100 * 50 - door.MOST_USERS}] more connections" in lines[-1]


def test_nothing_is_summed_up_that_is_known(capfd: pytest.CaptureFixture[str]) -> None:
    refusals = Refusals("the socket")
    refusals.refuse(7)
    refusals.sum_up()
    assert len(capfd.readouterr().err.splitlines()) == 1
