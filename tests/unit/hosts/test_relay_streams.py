"""The end of a carried connection: what was sent before it is given to a program that reads late."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable

import pytest

from pyft.hosts.relay.pair import (
    BARE,
    CHUNK,
    CREDIT,
    DATA,
    END,
    OPEN,
    REFUSED,
    RESET,
    Datagram,
    Pair,
)
from pyft.hosts.relay.streams import CREDIT_STEP, MOST_WAITING, Streams

STREAM, PATIENCE_S = 7, 20.0


class Place:
    """Streams of place 0, to which place 1 has opened a connection to a program that does not read."""

    def __init__(self) -> None:
        self.pair, self.selector = Pair(0, 1), selectors.DefaultSelector()
        self.streams = Streams(0, {1: self.pair}, self.selector)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.hear(OPEN, port.to_bytes(2, "big"))
            self.program, _ = listener.accept()
        self.program.settimeout(PATIENCE_S)

    def hear(self, kind: int, data: bytes = b"") -> None:
        self.streams.heard(self.pair, Datagram(1, 0, 0, 0, STREAM, kind, data))

    def credit(self) -> int:
        """Return for how many bytes more there is room, as the other relay is told."""
        said = self.pair.due(time.monotonic())
        if said:
            confirmed = max(one.number for one in said)
            self.pair.take(Datagram(1, 0, 0, confirmed, 0, BARE))
        return sum(int.from_bytes(one.data, "big") for one in said if one.kind == CREDIT)

    def fill(self) -> int:
        """Send until the program would have to read; return how many bytes those were."""
        count, credit = 0, MOST_WAITING
        while credit >= CHUNK:
            self.hear(DATA, bytes(CHUNK))
            count += CHUNK
            credit += self.credit() - CHUNK
        return count

    def turn(self) -> None:
        self.streams.look(time.monotonic())
        for key, mask in self.selector.select(0.01):
            key.data(mask)

    def read(self) -> int:
        """Have the program read to the end; return how many bytes came."""
        got = [0]

        def all() -> None:
            while data := self.program.recv(1 << 16):
                got[0] += len(data)

        reader = threading.Thread(target=all)
        reader.start()
        until = time.monotonic() + PATIENCE_S
        while reader.is_alive() and time.monotonic() < until:
            self.turn()
        reader.join(PATIENCE_S)
        return got[0]

    def close(self) -> None:
        self.program.close()
        self.selector.close()


ENDS: dict[str, Callable[[Place], None]] = {
    "its place has ended": lambda place: place.streams.drop(place.pair),
    "its connection was given up": lambda place: place.hear(RESET),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_sent_before_the_end_is_read_after_it(end: str) -> None:
    place = Place()
    sent = place.fill()
    place.hear(END)
    ENDS[end](place)
    assert place.read() == sent
    place.turn()
    assert place.streams.is_read
    assert not place.selector.get_map()
    place.close()


def test_a_connection_with_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs call a port again and again until another one listens there; it is to be free."""
    made: list[socket.socket] = []

    def connect(*_: object) -> socket.socket:
        """Do what the kernel does where it chooses the port that is called."""
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        made.append(sock)
        return sock

    monkeypatch.setattr(socket, "create_connection", connect)
    pair, selector = Pair(0, 1), selectors.DefaultSelector()
    streams = Streams(0, {1: pair}, selector)
    streams.heard(pair, Datagram(1, 0, 0, 0, STREAM, OPEN, (29500).to_bytes(2, "big")))
    assert [one.kind for one in pair.due(0.0)] == [REFUSED]
    assert made[0].fileno() < 0
    assert not selector.get_map()
    selector.close()


def test_what_comes_without_credit_ends_the_connection() -> None:
    place = Place()
    place.fill()
    for _ in range(CREDIT_STEP // CHUNK + 1):
        place.hear(DATA, bytes(CHUNK))
    assert RESET in [one.kind for one in place.pair.due(time.monotonic())]
    assert not place.selector.get_map()
    place.close()


def test_the_other_relay_is_told_what_the_program_has_read() -> None:
    """All of it but less than a step: so the credit does not run out while a program reads."""
    place = Place()
    sent = place.fill()
    place.program.settimeout(0.2)
    got = credit = 0
    while got < sent:
        place.turn()
        got += len(place.program.recv(1 << 16))
        credit += place.credit()
    place.turn()
    assert MOST_WAITING - CREDIT_STEP < credit + place.credit() <= MOST_WAITING
    place.close()


@pytest.mark.parametrize("end", ENDS)
def test_a_connection_that_breaks_ends_at_once(end: str) -> None:
    """It was not closed by what sent, so that nothing tells how much was to come."""
    place = Place()
    sent = place.fill()
    ENDS[end](place)
    assert not place.selector.get_map()
    assert place.read() < sent
    place.close()
