"""Copies of images in several failure domains: who keeps which, and which losses they survive."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_coordinator import LEASE, PLACES, Walk, World

from pyft.errors import UsageError
from pyft.hosts.head import holders
from pyft.hosts.head.decisions import Phase, Tell
from pyft.hosts.head.holders import Topology, choose, survives, taker


def racks(*names: str) -> Topology:
    """Return a topology of racks, each with hosts h<n> and s<n> of that number."""
    return Topology({f"{kind}{n}": rack for n, rack in enumerate(names) for kind in "hs"})


# ---- who keeps which ------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("split", ["aaaa", "aabb", "abab", "abcc", "abcd", "aabc"])
def test_copies_are_in_other_domains(split: str, copies: int) -> None:
    topology, places = racks(*split), {0: "h0", 1: "h1", 2: "h2"}
    chosen = choose(places, ["s0", "s1", "s2", "s3"], topology, copies)
    for place, names in chosen.items():
        domains = [topology.of(name) for name in names]
        others = set(split) - {topology.of(places[place])}
        assert len(set(domains)) == len(domains) == (min(copies, len(others)) or 1)
        assert set(domains) <= (others or set(split))


def test_the_work_is_spread() -> None:
    """Or a rack with two places could be lost only where one spare host took both."""
    chosen = choose({0: "h0", 1: "h1"}, ["s2", "s3"], racks("a", "a", "b", "b"), 1)
    assert chosen == {0: ["s2"], 1: ["s3"]}


@pytest.mark.parametrize("spares", [1, 2, 3, 4])
@pytest.mark.parametrize("places", [1, 2, 3])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_what_survives_is_what_can_be_taken(places: int, spares: int, copies: int) -> None:
    """Beside all ways to give lost places to hosts that are left, tried one by one."""
    hosts = {place: f"h{place}" for place in range(places)}
    names = [f"s{n}" for n in range(spares)]
    for split in itertools.product("abc", repeat=max(places, spares)):
        topology = racks(*split)
        chosen = choose(hosts, names, topology, copies)
        count, but = survives(hosts, chosen, topology, copies)
        used = {topology.of(h) for h in [*hosts.values(), *itertools.chain(*chosen.values())]}
        for lost in itertools.combinations(sorted(used), count):
            assert can_be_taken(hosts, chosen, topology, lost)
        if but:
            assert len(but) == count + 1
            assert not can_be_taken(hosts, chosen, topology, but)


def can_be_taken(
    hosts: dict[int, str], chosen: dict[int, list[str]], topology: Topology, lost: Any
) -> bool:
    """Try each way."""
    gone = [place for place, host in hosts.items() if topology.of(host) in lost]
    ways = [[n for n in chosen[place] if topology.of(n) not in lost] for place in gone]
    return any(len(set(way)) == len(way) for way in itertools.product(*ways))


@pytest.mark.parametrize(
    "left",
    [
        {0: ["a", "b"], 1: ["a"]},
        {0: ["a", "b", "c"], 1: ["a", "b"], 2: ["a", "b"]},
        {0: ["a", "b"], 1: ["b", "c"], 2: ["c", "a"], 3: []},
    ],
)
def test_who_takes_a_place_leaves_others_theirs(left: dict[int, list[str]]) -> None:
    """In any order in which the places are lost."""
    most = holders.matched(left)
    for order in itertools.permutations(left):
        free, taken = {place: list(names) for place, names in left.items()}, 0
        for place in order:
            if name := taker(place, free):
                taken += 1
            free = {p: [n for n in ns if n != name] for p, ns in free.items() if p != place}
        assert taken == most


@pytest.mark.parametrize(
    ("text", "why"),
    [("h0 r0\nh1\n", "line .2."), ("h0 r0 r1", "line .1."), ("h0 r0\nh0 r1", "two domains")],
)
def test_a_topology_that_is_none(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "topology"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        Topology.read(path)


def test_a_topology(tmp_path: Path) -> None:
    path = tmp_path / "topology"
    path.write_text("# rack of each host\nh0 r0\n\nh1 r0  # the same\n")
    read = Topology.read(path)
    assert [read.of(host) for host in ("h0", "h1", "h2")] == ["r0", "r0", "h2"]
    with pytest.raises(UsageError, match="cannot be read"):
        Topology.read(tmp_path / "none")


# ---- what the head does about it --------------------------------------------------------------


def told(world: World) -> list[str]:
    """Take what is decided; return the sentences."""
    actions = world.head.taken()
    world.head._actions = actions
    world.take()
    return [action.sentence for action in actions if isinstance(action, Tell)]


def test_a_line_counts_when_all_its_copies_are_there() -> None:
    world = World(spares=2, copies=2)
    number = world.image(mirrored=False)
    for name, place in (("s0", 0), ("s0", 1), ("s1", 0)):
        world.head.have(name, place, number)
        assert world.head.facts.line == 0
    world.head.have("s1", 1, number)
    assert world.head.facts.line == number
    assert world.head.facts.holders == {0: ["s0", "s1"], 1: ["s0", "s1"]}


@pytest.mark.parametrize("how", ["refused", "lost", "silent"])
def test_a_copy_that_does_not_arrive_is_said_and_left_out(how: str) -> None:
    world = World(spares=2, copies=2)
    number = world.image(mirrored=False)
    for name, place in (("s0", 0), ("s0", 1), ("s1", 0)):
        world.head.have(name, place, number)
    if how == "refused":
        world.head.unmirrored(1, number, "s1", "it needs [5] MB of memory, and there are [1] MB")
        sentences = told(world)
    else:
        lost = ["s1"] if how == "lost" else []
        world.now += 61.0 if how == "silent" else 0
        for name in ("s0", "s1"):
            spare = world.head.facts.spares[name]
            spare.lease = world.now + (0 if name in lost else LEASE)
        world.renew("s1")
        world.head.look_at_image(world.now)
        sentences = told(world)
    assert world.head.facts.line == number
    assert world.head.facts.holders[1] == ["s0"]
    assert any("host [s1] has no copy of place [1]" in one for one in sentences)
    assert world.ledger[-1]["survives"] == 1


def test_the_same_refusal_is_said_once() -> None:
    world = World(spares=2, copies=2)
    said = []
    for _ in range(3):
        number = world.image(mirrored=False)
        for place in range(PLACES):
            world.head.have("s0", place, number)
            world.head.unmirrored(place, number, "s1", "it is full")
        said += told(world)
        assert world.head.facts.line == number
    assert len(said) == PLACES


def test_what_comes_on_is_waited_for() -> None:
    """However slow its link is."""
    world = World(spares=1)
    number = world.image(mirrored=False)
    for _ in range(20):
        world.pass_time(30.0)
        world.head.sending(world.now, number)
        assert world.head.pending
    world.pass_time(61.0)
    assert not world.head.pending
    assert world.head.facts.line == 0


def lose(world: World, *hosts: str) -> None:
    """Lose hosts at one moment; those that are chosen begin, until all are back or the job ends."""
    for _ in range(20):
        world.pass_time(LEASE / 2, *hosts)
        for place in world.head.facts.places.values():
            if place.host in hosts or world.head.facts.failed:
                continue
            if not place.claimed:
                assert world.head.claim(world.now, place.number, place.host, place.life) == ""
            if world.head.phase is Phase.BACK and place.restored != world.head.facts.round:
                world.head.agent(world.now, place.number, world.head.facts.round)
        world.take()


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_as_many_domains_as_copies_may_be_lost_whichever(copies: int) -> None:
    """One more may end the job, which then says where the copies were."""
    ended = 0
    for count in range(1, copies + 2):
        names = [f"h{n}" for n in range(3)] + [f"s{n}" for n in range(copies)]
        for lost in itertools.combinations(names, count):
            world = World(places=3, spares=copies, copies=copies)
            number = world.image()
            assert world.ledger[-1]["survives"] == copies
            lose(world, *lost)
            chosen = [entry["host"] for entry in world.ledger if entry["kind"] == "chosen"]
            assert not set(chosen) & set(lost)
            why = world.head.facts.failed
            if count <= copies:
                assert not why
                assert world.head.facts.line == number
                assert world.head.phase is Phase.RUN
                assert not {p.host for p in world.head.facts.places.values()} & set(lost)
            elif why:
                ended += 1
                assert "no other host has its image: host [s0] " in why
    assert ended


def test_a_chosen_host_that_does_not_begin_is_lost_too() -> None:
    world = World(spares=2, copies=2)
    world.image()
    world.pass_time(LEASE + 1, "h1")
    assert world.head.facts.places[1].host == "s0"
    lose(world, "h1", "s0")
    assert world.head.facts.places[1].host == "s1"
    assert world.head.phase is Phase.RUN


# ---- in any order -----------------------------------------------------------------------------


class Domains(Walk):
    """Racks of a training and a spare host are lost, one or both of it, at any moment."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, copies=2, topology=racks("a", "b", "c"))
        self.at_line: dict[str, Any] = {}

    def lose(self, host: str) -> None:
        """Lose a host, or its rack; the oldest loss may be of a spare host alone."""
        rack = host[1]
        kind = self.dice.choice(["h", "s", "hs"])
        self.lost |= {f"{one}{rack}" for one in kind}

    def left(self, place: int) -> list[str]:
        """Return which hosts can take the copy of a place's image, and have not yet."""
        spares, image = self.head.facts.spares, (place, self.number)
        left = super().left(place)
        return [name for name in left if name in spares and image not in spares[name].images]

    def look_at(self, entry: dict[str, Any]) -> None:
        """A job ends only after more losses than its copies survive."""
        super().look_at(entry)
        topology, facts = self.how["topology"], self.head.facts
        if entry["kind"] == "line":
            hosts = {place.number: place.host for place in facts.places.values()}
            self.at_line = entry | {"hosts": hosts}
            for names in entry["holders"].values():
                domains = [topology.of(name) for name in names]
                assert len({*domains}) == len(domains)
        elif entry["kind"] == "failed" and "no other host" in entry["why"]:
            names = itertools.chain(*self.at_line["holders"].values())
            of_line = {*self.at_line["hosts"].values(), *names}
            lost = {topology.of(host) for host in self.lost & of_line}
            assert len(lost) > self.at_line["survives"]


def one_of(walk: Domains) -> None:
    """Let one thing happen, and more of what brings copies on."""
    walk.one()
    walk.take()
    place = walk.dice.randrange(3)
    if left := walk.left(place):
        walk.head.have(walk.dice.choice(left), place, walk.number)
        walk.take()


@cache
def walked(seed: int) -> Domains:
    """Return a job at its end, or after many things have happened."""
    walk = Domains(seed)
    for _ in range(300):
        one_of(walk)
        if walk.head.facts.failed:
            break
    return walk


@pytest.mark.parametrize("seed", range(100))
def test_any_order(seed: int) -> None:
    assert walked(seed).ledger


def test_orders_are_those_that_matter() -> None:
    ledgers = [walked(seed).ledger for seed in range(100)]
    lines = [[e for e in ledger if e["kind"] == "line"] for ledger in ledgers]
    assert sum(any(e["survives"] for e in of_one) for of_one in lines) > 20
    moved = [sum(e["kind"] == "chosen" for e in ledger) for ledger in ledgers]
    assert sum(count > 0 for count in moved) > 20
    assert sum(count > 1 for count in moved) > 5
