"""What the head decides: holds, lines, leases and claims, in every order of losses."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pyft.hosts.head.decisions import Phase, Say, Write
from pyft.hosts.head.drains import Drains as Coordinator
from pyft.hosts.head.places import Facts, do_not_fit

LEASE = 10.0
PLACES = 2


def test_addresses_are_said_when_all_are_known_and_to_who_comes_back() -> None:
    head = Coordinator(Facts(3), LEASE)
    told = []
    for number in (0, 2, 1, 0):
        head.known_at(number, f"10.0.0.{number}")
        said = [action for action in head.taken() if isinstance(action, Say)]
        assert all(s.values["addresses"] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"] for s in said)
        told.append([say.to[1] for say in said])
    assert told == [[], [], [0, 1, 2], [0]]


class World:
    """A head, its ledger, and hosts of which each can be asked."""

    def __init__(self, places: int = PLACES, spares: int = 1, **how: Any) -> None:
        """`how`: every, copies, topology and mttf_s."""
        self.now = 0.0
        self.how = {"every": 1.0} | how
        self.ledger: list[dict[str, Any]] = []
        self.said: list[Say] = []
        self.places = places
        self.head = Coordinator(Facts(places), LEASE, **self.how)
        for number in range(places):
            assert self.head.claim(self.now, number, f"h{number}", 0) == ""
            self.head.agent(self.now, number, 0)
        for number in range(spares):
            self.head.spare(self.now, f"s{number}", "10.0.0.9", 1000)
        self.take()

    def take(self) -> list[Say]:
        """Do what is decided; return what was said now."""
        actions = self.head.taken()
        self.ledger += [a.entry for a in actions if isinstance(a, Write)]
        new = [a for a in actions if isinstance(a, Say)]
        self.said += new
        return new

    def renew(self, *lost: str) -> None:
        """Have all hosts but some renew."""
        for place in self.head.facts.places.values():
            if place.host not in lost:
                self.head.renew(self.now, place.number, place.host, place.life)
        for name, spare in list(self.head.facts.spares.items()):
            if name not in lost:
                self.head.spare(self.now, name, spare.address, spare.port)

    def pass_time(self, seconds: float, *lost: str) -> list[Say]:
        """Let time pass; `lost` renew nothing."""
        until, said = self.now + seconds, []
        while self.now < until:
            self.now += 0.5
            self.renew(*lost)
            self.head.tick(self.now)
            said += self.take()
        return said

    def hold(self) -> int:
        """Come to the cut of a step."""
        for number in range(self.places):
            self.head.status(number, 10, 0.5)
        said = self.pass_time(2.0)
        assert {s.kind for s in said} == {"hold"}
        return said[0].values["step"]

    def image(self, mirrored: bool = True) -> int:
        """Make an image."""
        step = self.hold()
        for number in range(self.places):
            self.head.held(self.now, number, step, [[5, number, -1, 7, 7]])
        dumps = self.take()
        assert [s.kind for s in dumps] == ["dump"] * self.places
        number = dumps[0].values["number"]
        for place in range(self.places):
            self.head.copied(self.now, place, number)
        for place in range(self.places if mirrored else 0):
            for name, _, _ in dumps[place].values["mirrors"]:
                self.head.have(name, place, number)
        self.take()
        return number

    def restarted(self, entries: int | None = None) -> None:
        """Let the head die, perhaps after so many entries, and another one go on."""
        facts = Facts(self.places)
        for entry in self.ledger[:entries]:
            facts.apply(entry)
        self.head = Coordinator(facts, LEASE, now=self.now, **self.how)


@pytest.mark.parametrize(
    ("how", "pause_s"), [({}, 100.0), ({"mttf_s": 200.0}, 20.0), ({"every": 7.0}, 7.0)]
)
def test_the_next_image_is_as_far_as_its_cost_says(how: dict[str, float], pause_s: float) -> None:
    world = World(**{"every": 0.0} | how)
    step = world.hold()
    for number in range(PLACES):
        world.head.held(world.now, number, step, [[5, number, -1, 7, 7]])
    dumps = world.take()
    world.now += 1.0
    for place in range(PLACES):
        world.head.copied(world.now, place, dumps[0].values["number"])
        for name, _, _ in dumps[place].values["mirrors"]:
            world.head.have(name, place, dumps[0].values["number"])
    world.take()
    assert "hold" not in {said.kind for said in world.pass_time(pause_s - 0.5)}
    assert "hold" in {said.kind for said in world.pass_time(1.0)}


def kinds(said: list[Say]) -> list[tuple[tuple[str, int | str], str]]:
    """Return who was told what."""
    return [(s.to, s.kind) for s in said]


def test_an_image_counts_when_another_host_has_all_of_it() -> None:
    world = World()
    number = world.image(mirrored=False)
    assert ("release") in {s.kind for s in world.said}
    world.head.have("s0", 0, number)
    assert world.head.facts.line == 0
    world.head.have("s0", 1, number)
    assert world.head.facts.line == number
    assert world.ledger[-1]["kind"] != "line"  # it is said only after it is written
    world.take()
    assert [entry["kind"] for entry in world.ledger[-1:]] == ["line"]


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_file_to_which_two_places_append_has_no_image(is_shared: bool) -> None:
    """Each would cut it back to another size."""
    world = World()
    step = world.hold()
    for place in range(PLACES):
        world.head.held(world.now, place, step, [])
    world.head.copied(world.now, 0, 1, ["7::/shared/log", "8::/shared/log.0"])
    world.head.copied(world.now, 1, 1, ["7::/shared/log" if is_shared else "9::/shared/log"])
    said = {one.kind: one.values for one in world.take()}
    why = "places [0] and [1] both append to [/shared/log]" if is_shared else ""
    assert said["release"] == {"why": why, "number": 1 if is_shared else 0}
    assert (world.head.pending is None) == is_shared


def test_a_copy_counts_that_a_host_names_only_when_it_calls_again() -> None:
    """Its word that the copy is whole was lost with its connection."""
    world = World()
    number = world.image(mirrored=False)
    world.head.have("s0", 0, number)
    world.head.facts.spares["s0"].images = {(0, number), (1, number)}  # of its hello
    world.pass_time(0.5)
    assert world.head.facts.line == number
    assert "hold" in {said.kind for said in world.pass_time(2.0)}


def test_copies_may_arrive_before_the_last_place_is_done() -> None:
    world = World()
    step = world.hold()
    for place in range(PLACES):
        world.head.held(world.now, place, step, [])
    world.head.copied(world.now, 0, 1)
    for place in range(PLACES):
        world.head.have("s0", place, 1)
    assert world.head.facts.line == 0
    world.head.copied(world.now, 1, 1)
    assert world.head.facts.line == 1


def test_numbers_that_do_not_fit_are_no_line() -> None:
    world = World()
    step = world.hold()
    world.head.held(world.now, 0, step, [[5, 0, -1, 7, 7]])
    world.head.held(world.now, 1, step, [[5, 1, -1, 8, 8]])
    assert {s.kind for s in world.take()} == {"release"}
    assert world.head.phase is Phase.RUN


def test_a_message_under_way_is_no_line() -> None:
    there, back = [[5, 0, 1, 3, 0]], [[5, 1, 0, 0, 2]]
    assert "under way" in do_not_fit({0: there, 1: back})
    back[0][4] = 3
    assert do_not_fit({0: there, 1: back}) == ""


def test_a_host_that_is_silent_is_replaced_and_all_go_back() -> None:
    world = World()
    number = world.image()
    said = world.pass_time(LEASE + 1, "h1")
    assert (("agent", 0), "back") in kinds(said)
    take = next(s for s in said if s.kind == "take")
    assert take.to == ("spare", "s0")
    assert (take.values["number"], take.values["life"]) == (number, 2)
    assert world.head.claim(world.now, 1, "s0", 2) == ""
    world.head.agent(world.now, 1, take.values["round"])
    assert world.head.phase is Phase.BACK  # place 0 has not come back
    world.head.gone(world.now, 0)
    world.head.agent(world.now, 0, take.values["round"])
    assert kinds(world.take()) == [(("agent", 0), "go"), (("agent", 1), "go")]
    assert world.head.phase is Phase.RUN


@pytest.mark.parametrize("when", ["hold", "dump", "mirror"])
def test_a_host_lost_in_an_image_leaves_the_one_before(when: str) -> None:
    world = World()
    number = world.image()
    step = world.hold()
    if when != "hold":
        for place in range(PLACES):
            world.head.held(world.now, place, step, [])
    if when == "mirror":
        for place in range(PLACES):
            world.head.copied(world.now, place, number + 1)
        world.head.have("s0", 0, number + 1)
    said = world.pass_time(LEASE + 1, "h1")
    back = next(s for s in said if s.kind == "back")
    assert back.values["number"] == number


@pytest.mark.parametrize("how", ["unmirrored", "late", "back", "passed"])
def test_spares_drop_an_image_that_was_given_up(how: str) -> None:
    """Else each one that fails after a place's copy has arrived stays in their memory."""
    world = World()
    line = world.image()
    if how == "passed":
        step = world.hold()
        for place in range(PLACES):
            world.head.held(world.now, place, step, [])
        world.head.have("s0", 0, line + 1)
        world.head.passed_over(world.now, 1, "CRIU fails")
    else:
        number = world.image(mirrored=False)
        world.head.have("s0", 0, number)
        if how == "unmirrored":
            world.head.unmirrored(0, number, "s0", "it is broken")
        elif how == "late":
            world.pass_time(61.0)
        else:
            world.head.lost(world.now, 0, "it was killed")
    world.take()
    drops = [s for s in world.said if s.to == ("spare", "s0") and s.kind == "drop"]
    assert [s.values["number"] for s in drops][:1] == [line + 1]
    assert world.head.facts.spares["s0"].images == {(0, line), (1, line)}


def test_an_agent_that_dies_while_it_sends_costs_this_image_only() -> None:
    """And not all images until the copies' deadline."""
    world = World()
    line = world.image()
    number = world.image(mirrored=False)
    world.head.have("s0", 0, number)
    world.head.gone(world.now, 0)
    world.head.agent(world.now, 0, 0)  # its copy is whole
    assert world.head.pending
    world.head.gone(world.now, 1)
    world.head.agent(world.now, 1, 0)
    assert not world.head.pending
    assert (("agent", 0), "drop") in kinds(world.take())
    assert world.image() == number + 1
    assert world.head.facts.line == number + 1
    assert line == number - 1


def test_before_the_first_image_the_job_ends() -> None:
    world = World()
    said = world.pass_time(LEASE + 1, "h1")
    assert {s.kind for s in said} == {"fail", "over"}
    assert "no image yet" in world.head.facts.failed


def test_without_a_spare_the_job_ends_and_says_so() -> None:
    world = World(spares=0)
    step = world.hold()
    for place in range(PLACES):
        world.head.held(world.now, place, step, [])
    for place in range(PLACES):
        world.head.copied(world.now, place, 1)
    assert world.head.facts.line == 1  # for a program that is killed
    world.pass_time(LEASE + 1, "h1")
    assert "no other host has its image" in world.head.facts.failed
    world.head.done(0, 143)  # that is how it ended the others
    assert world.head.facts.exit_code == 1


def test_a_place_is_claimed_once() -> None:
    world = World()
    assert "is that of host [h0]" in world.head.claim(world.now, 0, "h9", 0)
    assert "is that of host [h0]" in world.head.claim(world.now, 0, "h9", 2)
    assert "does not exist" in world.head.claim(world.now, 7, "h9", 0)


def test_the_old_owner_of_a_place_has_no_say() -> None:
    world = World()
    world.image()
    world.pass_time(LEASE + 1, "h1")
    assert not world.head.renew(world.now, 1, "h1", 1)
    assert not world.head.owns(1, 1)
    assert world.head.claim(world.now, 1, "s0", 2) == ""
    assert world.head.claim(world.now, 1, "s0", 2) != ""  # not twice
    assert world.head.owns(1, 2)


def test_a_killed_program_sends_all_back() -> None:
    world = World()
    number = world.image()
    world.head.lost(world.now, 0, "it was killed")
    said = world.take()
    assert kinds(said) == [(("agent", 0), "back"), (("agent", 1), "back")]
    assert {s.values["number"] for s in said} == {number}
    world.head.lost(world.now, 1, "again")  # it is being put back
    assert world.take() == []


def test_the_same_image_is_not_restored_for_ever() -> None:
    world = World()
    world.image()
    for _ in range(3):
        world.head.lost(world.now, 0, "it was killed")
        for place in range(PLACES):
            world.head.agent(world.now, place, world.head.facts.round)
        world.take()
    world.head.lost(world.now, 0, "it was killed")
    assert "restored [3] times" in world.head.facts.failed


def test_a_place_that_has_ended_cannot_go_back() -> None:
    world = World()
    world.image()
    world.head.done(0, 0)
    world.pass_time(LEASE + 1, "h1")
    assert "places [0] have ended" in world.head.facts.failed


def test_the_command_of_a_place_fails() -> None:
    world = World()
    world.head.done(0, 3)
    assert {s.kind for s in world.take()} == {"fail", "over"}
    world.head.done(1, 143)  # ended by the head
    assert world.head.facts.exit_code == 3


def test_who_asks_first_makes_the_id() -> None:
    world = World()
    world.head.want_id(0, 0, 4, 99, "")
    world.head.want_id(1, 0, 4, 99, "")
    (asked,) = world.take()
    assert (asked.to, asked.values["made_as"]) == (("agent", 0), "")
    world.head.want_id(0, 0, 4, 99, "abcd")
    (answer,) = world.take()
    assert (answer.to, answer.values["made_as"]) == (("agent", 1), "abcd")
    world.head.want_id(0, 1, 4, 99, "")  # of a round that is none
    assert world.take() == []


def test_another_head_goes_on() -> None:
    world = World()
    number = world.image()
    world.head.lost(world.now, 0, "it was killed")
    world.take()
    world.restarted()
    assert world.head.phase is Phase.BACK
    world.head.spare(world.now, "s0", "10.0.0.9", 1000)
    for place in range(PLACES):
        world.head.agent(world.now, place, 0)
    assert {s.values["number"] for s in world.take() if s.kind == "back"} == {number}
    for place in range(PLACES):
        world.head.agent(world.now, place, 1)
    assert world.head.phase is Phase.RUN


class Walk(World):
    """A job whose hosts and head are lost at any moment; what must never be is looked at each time."""

    def __init__(self, seed: int, **how: Any) -> None:
        super().__init__(places=3, spares=3, **how)
        self.dice = random.Random(seed)
        self.lost: set[str] = set()
        self.heard = {place: self.now for place in range(3)}  # when its owner was last confirmed
        self.step = self.number = 0
        self.holders: dict[int, list[str]] = {}  # of the image that was begun last, by place

    def renew(self, *lost: str) -> None:
        """Note what each owner may count from."""
        super().renew(*lost)
        for place in self.head.facts.places.values():
            if place.host not in lost and place.claimed:
                self.heard[place.number] = self.now

    def one(self) -> None:
        """Let one thing happen, likelier what brings the job on."""
        dice, place = self.dice, self.dice.randrange(3)
        owner = self.head.facts.places[place]
        away = owner.host in self.lost
        what = dice.choices(
            ("held", "copied", "have", "agent", "time", "killed", "lost", "restarted"),
            (20, 20, 20, 20, 8, 1, 3, 1),
        )[0]
        if what == "held" and not away:
            self.head.held(self.now, place, self.step, [])
        elif what == "copied" and not away:
            self.head.copied(self.now, place, self.number)
        elif what == "have" and (left := self.left(place)):
            self.head.have(dice.choice(left), place, self.number)
        elif what == "agent" and not away:
            if not owner.claimed and self.head.claim(self.now, place, owner.host, owner.life) == "":
                self.heard[place] = self.now
            if owner.claimed and (not owner.present or owner.restored != self.head.facts.round):
                self.head.agent(self.now, place, self.head.facts.round)
        elif what == "killed" and not away and self.head.facts.restores < 2 and self.number:
            self.head.lost(self.now, place, "killed")
        elif what == "lost" and self.head.facts.line and len(self.lost) < 2:
            self.lose(owner.host)
        elif what == "restarted":
            self.restarted(dice.choice([None, None, -1]))
        else:
            for number in range(3):
                self.head.status(number, 10, 0.5)
            self.pass_time(dice.choice([0.5, 0.5, 2.0, 8.0]), *self.lost)

    def lose(self, host: str) -> None:
        """Lose a host."""
        self.lost.add(host)

    def left(self, place: int) -> list[str]:
        """Return which hosts can take the copy of a place's image."""
        return [name for name in self.holders.get(place, ()) if name not in self.lost]

    def restarted(self, entries: int | None = None) -> None:
        """Let the head die; it may have said nothing of its last entry."""
        spares = self.head.facts.spares
        if entries and self.ledger[-1]["kind"] != "back":
            entries = None
        super().restarted(entries)
        self.ledger = self.ledger[:entries]
        for name, spare in spares.items():
            if name not in self.lost:
                self.head.spare(self.now, name, spare.address, spare.port)
                if known := self.head.facts.spares.get(name):
                    known.images = set(spare.images)

    def take(self) -> list[Say]:
        """Look at each decision as it is made."""
        before = len(self.ledger)
        said = super().take()
        for one in said:
            if one.kind == "hold":
                self.step = one.values["step"]
            elif one.kind == "dump":
                self.number = one.values["number"]
                self.holders[int(one.to[1])] = [name for name, _, _ in one.values["mirrors"]]
        for entry in self.ledger[before:]:
            self.look_at(entry)
        return said

    def look_at(self, entry: dict[str, Any]) -> None:
        """Check one decision."""
        facts = self.head.facts
        if entry["kind"] == "chosen":  # the owner before has stopped
            assert self.now >= self.heard[entry["place"]] + LEASE
            lives = [
                e["life"] for e in self.ledger if e.get("place") == entry["place"] and "life" in e
            ]
            assert lives == sorted(lives)
        elif entry["kind"] == "line":  # it is whole on other hosts
            for place, names in entry["holders"].items():
                images = [facts.spares[name].images for name in names]
                assert all((int(place), entry["number"]) in of_host for of_host in images)
        elif entry["kind"] == "onward":
            assert all(p.claimed and p.present for p in facts.places.values())
        elif entry["kind"] == "back":
            assert entry["number"] == facts.line > 0


def walked(seed: int) -> Walk:
    """Return a job at its end, or after many things have happened."""
    walk = Walk(seed)
    for _ in range(300):
        walk.one()
        walk.take()
        if walk.head.facts.failed:
            break
    return walk


@pytest.mark.parametrize("seed", range(100))
def test_any_order(seed: int) -> None:
    """A place has one owner at a time, and a line is on two hosts; the ledger says all of it."""
    walk = walked(seed)
    facts = Facts(3)
    for entry in walk.ledger:
        facts.apply(entry)
        moves = any(place.life and not place.claimed for place in facts.places.values())
        assert not (moves and facts.is_back)
    told = walk.head.facts
    assert (facts.line, facts.round, facts.is_back) == (told.line, told.round, told.is_back)
    assert [(p.host, p.life, p.claimed) for p in facts.places.values()] == [
        (p.host, p.life, p.claimed) for p in told.places.values()
    ]


def test_orders_are_those_that_matter() -> None:
    """In many of them a host is replaced, and all go on."""
    kinds = [{entry["kind"] for entry in walked(seed).ledger} for seed in range(100)]
    for kind in ("line", "back", "chosen", "onward"):
        assert sum(kind in one for one in kinds) > 20, kind


def test_a_spare_that_has_not_heard_takes_the_place_when_it_calls() -> None:
    """Also after another head has come."""
    world = World()
    number = world.image()
    world.pass_time(LEASE + 1, "h1")
    for restarted in (False, True):
        if restarted:
            world.restarted()
        world.head.spare(world.now, "s0", "10.0.0.9", 1000)
        (take,) = world.take()
        assert (take.to, take.kind) == (("spare", "s0"), "take")
        assert (take.values["number"], take.values["life"]) == (number, 2)
        assert "s0" not in world.head.facts.spares


def test_a_head_that_dies_between_two_entries_sends_all_back() -> None:
    """Whatever the next one reads: a place that moves joins a new round, and so do all others."""
    world = World()
    number = world.image()
    world.pass_time(LEASE + 1, "h1")
    kinds_written = [entry["kind"] for entry in world.ledger]
    assert kinds_written[-2:] == ["back", "chosen"]
    world.restarted(len(kinds_written) - 1)
    assert world.head.phase is Phase.BACK
    world.head.spare(world.now, "s0", "10.0.0.9", 1000)
    world.head.facts.spares["s0"].images = {(1, number)}
    (take,) = (s for s in world.pass_time(LEASE + 21, "h1") if s.kind == "take")
    assert take.values["round"] == 1


def test_a_head_of_a_job_that_has_ended_ends() -> None:
    world = World()
    for place in range(PLACES):
        world.head.done(place, 0)
    world.take()
    world.restarted()
    assert world.head.phase is Phase.OVER


def test_spares_hear_of_the_end() -> None:
    world = World()
    for place in range(PLACES):
        world.head.done(place, 0)
    assert (("spare", "s0"), "over") in kinds(world.take())
