"""Two ends of a way that loses, repeats and turns round what it carries; and both go back to a line."""

from __future__ import annotations

import copy
import random

import pytest

from pyft.hosts.relay import pair
from pyft.hosts.relay.pair import DATA, OVER, WINDOW, Datagram, Pair, packed, unpacked

KEY = b"k" * 32


class Way:
    """Carries datagrams of two ends, badly."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.ends = [Pair(0, 1), Pair(1, 0)]
        self.heard: list[list[bytes]] = [[], []]
        self.under_way: list[Datagram] = []
        self.stopped = [False, False]

    def turn(self) -> None:
        """Let a moment pass."""
        self.now += 0.05
        for end, stopped in zip(self.ends, self.stopped, strict=True):
            if not stopped:
                self.under_way += [one for one in end.due(self.now) if self.dice.random() > 0.3]
        self.dice.shuffle(self.under_way)
        count = self.dice.randrange(len(self.under_way) + 1)
        arrived, self.under_way = self.under_way[:count], self.under_way[count:]
        for one in arrived:
            self.arrive(one)
            if self.dice.random() < 0.2:
                self.under_way.append(one)

    def arrive(self, one: Datagram) -> None:
        if self.stopped[one.target]:
            return
        if got := self.ends[one.target].take(one):
            self.heard[one.target].append(got.data)


@pytest.mark.parametrize("seed", range(20))
def test_all_arrives_once_and_in_order(seed: int) -> None:
    way = Way(seed)
    said = [[bytes([end, n]) for n in range(60)] for end in range(2)]
    for n in range(60):
        for end in range(2):
            way.ends[end].put(DATA, 7, said[end][n])
        way.turn()
    for _ in range(4000):
        if all(end.is_idle for end in way.ends):
            break
        way.turn()
    assert way.heard == [said[1], said[0]]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("both", [True, False])
def test_the_end_is_confirmed_and_comes_after_all_that_was_sent(seed: int, both: bool) -> None:
    """No place waits for one that has ended. Where both end neither needs what is left."""
    way = Way(seed)
    for n in range(30):
        for end in range(2):
            way.ends[end].put(DATA, 7, bytes([n]))
    for end in range(2 if both else 1):
        way.ends[end].put(OVER, 0)
    for _ in range(4000):
        if all(end.is_idle for end in way.ends):
            break
        way.turn()
    assert all(end.is_idle for end in way.ends)
    if both:
        assert any(end.is_over for end in way.ends)
        return
    assert [end.is_over for end in way.ends] == [False, True]
    assert way.heard[1] == [bytes([n]) for n in range(30)] + [b""]
    way.ends[1].put(DATA, 7, b"more")
    assert way.ends[1].is_idle


@pytest.mark.parametrize("seed", range(20))
def test_both_ends_go_back_to_a_line(seed: int) -> None:
    """Each is stopped, then dumped; nobody goes on before both are. What then differs is not mixed in."""
    way = Way(seed)
    for n in range(30):
        for end in range(2):
            way.ends[end].put(DATA, 1, b"before %d" % n)
        way.turn()
    first = way.dice.randrange(2)
    image: dict[int, tuple[Pair, list[bytes]]] = {}
    for end in (first, 1 - first):
        way.stopped[end] = True
        image[end] = (copy.deepcopy(way.ends[end]), list(way.heard[end]))
        for _ in range(way.dice.randrange(5)):
            way.turn()
    way.stopped = [False, False]
    for end in range(2):  # this is lost with those who said it
        way.ends[end].put(DATA, 1, b"lost")
    for _ in range(30):
        way.turn()
    way.under_way = []  # of an earlier round: nothing of it is passed on
    for end in range(2):
        way.ends[end], way.heard[end] = image[end]
        for n in range(30, 40):
            way.ends[end].put(DATA, 1, b"again %d" % n)
    for _ in range(4000):
        if all(end.is_idle for end in way.ends):
            break
        way.turn()
    wanted = [b"before %d" % n for n in range(30)] + [b"again %d" % n for n in range(30, 40)]
    assert way.heard == [wanted, wanted]


def test_a_silent_other_side_is_not_flooded() -> None:
    end, now, sent = Pair(0, 1), 0.0, 0
    for n in range(100):
        end.put(DATA, 1, bytes([n]))
    while now < 10.0:
        sent += len(end.due(now))
        now += 0.01
    assert end.is_full
    assert WINDOW < sent <= 10 * WINDOW


def test_what_the_other_side_sends_is_checked() -> None:
    one = Datagram(0, 1, 1, 0, 5, DATA, b"abc")
    data = packed(KEY, one)
    assert unpacked(KEY, data) == one
    assert pair.target_of(data) == 1
    for at in range(len(data)):
        assert unpacked(KEY, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
        assert unpacked(KEY, data[:at]) is None
    assert unpacked(b"other" * 8, data) is None
    assert (
        unpacked(KEY, packed(KEY, Datagram(0, 1, 1, 0, 5, DATA, bytes(pair.MOST_DATA + 1)))) is None
    )
    end = Pair(1, 0)
    end.put(DATA, 1, b"kept")
    assert end.take(Datagram(0, 1, 0, 99, 0, pair.BARE)) is None
    assert not end.is_idle  # nobody can confirm what was never sent
    assert end.take(Datagram(0, 1, 1, 0, 0, 200, b"")) is None
