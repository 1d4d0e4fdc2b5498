"""A hold in which each rank is held, or waits for one that is: it ends before its time is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyft.hosts.head.decisions import Phase as PhaseOfHead
from pyft.hosts.head.decisions import Say
from pyft.hosts.head.drains import Drains as Coordinator
from pyft.hosts.head.places import Facts
from pyft.hosts.place.remote import RemoteImages
from pyft.recovery.images import ClientState, Hold, ImagePlan, Phase, Release
from pyft.recovery.stillness import STILL_S, Stillness

STEP = 7


def running(id: int) -> ClientState:
    return ClientState(id, 5, 0, 0, 4, True)


def held(id: int, at: float, signs: int = 1) -> ClientState:
    return ClientState(id, STEP, STEP, 7, 7, True, stands=True, signs=(id, signs), seen_at=at)


def waits(id: int, at: float, signs: int = 1) -> ClientState:
    """Return one whose steps have parted from the others': it waits for them in the next step."""
    return replace(held(id, at, signs), steps=STEP - 1, held_step=0, held_cut=0, line=6)


def in_a_hold() -> ImagePlan:
    plan = ImagePlan()
    assert plan.look(0.0, [running(0), running(1)]) == [Hold(STEP)]
    assert plan.deadline() > 10 * STILL_S
    return plan


def test_a_hold_in_which_nothing_moves_ends_at_its_limit() -> None:
    plan = in_a_hold()
    assert plan.look(0.0, [held(0, 0.0), waits(1, 0.0)]) == []
    (release,) = plan.look(STILL_S, [held(0, STILL_S), waits(1, STILL_S)])
    assert isinstance(release, Release)


def test_a_rank_that_waits_for_a_held_one_ends_the_hold() -> None:
    plan = in_a_hold()
    assert plan.look(1.0, [held(0, 1.0), waits(1, 1.0)]) == []
    assert plan.look(1.3, [held(0, 1.3), waits(1, 1.3)]) == []
    (release,) = plan.look(1.5, [held(0, 1.5), waits(1, 1.5)])
    assert isinstance(release, Release)
    assert "clients [1] wait for others, and clients [0] are held" in release.why
    assert plan.phase is Phase.NONE


@pytest.mark.parametrize("moves", [0, 1])
def test_not_while_one_of_them_moves(moves: int) -> None:
    """The device of a held rank may still be at what the other one waits for."""
    plan = in_a_hold()
    for turn in range(1, 15):
        now, signs = 1.0 + turn * STILL_S / 2, [1, 1]
        signs[moves] = turn
        assert plan.look(now, [held(0, now, signs[0]), waits(1, now, signs[1])]) == []
    assert plan.phase is Phase.HOLD


def test_not_while_one_is_in_code_of_its_own() -> None:
    plan = in_a_hold()
    for now in (1.0, 2.0, 3.0):
        busy = replace(waits(1, now), stands=False)
        assert plan.look(now, [held(0, now), busy]) == []


def test_not_while_the_servers_have_not_looked_again() -> None:
    """A busy machine lets a server look late: what it has said is of before."""
    plan = in_a_hold()
    for now in (1.0, 2.0, 3.0):
        assert plan.look(now, [held(0, now), waits(1, 1.0 + STILL_S / 2)]) == []


def test_looks_that_are_not_close_neither_say_nor_forget_it() -> None:
    seen = Stillness()
    assert seen.lasts(1.0, [held(0, 1.0), waits(1, 1.0)]) == 0.0
    quick = [replace(one(id, 1.3), stands=None) for id, one in ((0, held), (1, waits))]
    assert seen.lasts(1.3, quick) == pytest.approx(0.3)
    moved = [quick[0], replace(quick[1], signs=(1, 2))]
    assert seen.lasts(1.4, moved) == 0.0
    assert seen.lasts(1.9, [replace(one, seen_at=1.9) for one in moved]) == 0.0


def test_a_new_hold_begins_anew() -> None:
    plan = in_a_hold()
    plan.look(1.0, [held(0, 1.0), waits(1, 1.0)])
    plan.interrupted(1.1, "something else")
    now = 100.0
    assert plan.look(now, [running(0), running(1)]) == [Hold(STEP)]
    assert plan.look(now + 0.1, [held(0, now + 0.1), waits(1, now + 0.1)]) == []


# ---- several hosts --------------------------------------------------------------------------------


class Link:
    """To the head, which has said to hold."""

    def __init__(self) -> None:
        self.said = [{"kind": "hold", "step": STEP, "milliseconds": 30_000}]
        self.told: list[tuple[str, dict[str, Any]]] = []

    def heard(self) -> dict[str, Any] | None:
        return self.said.pop() if self.said else None

    def say(self, kind: str, **values: Any) -> None:
        self.told.append((kind, values))


def test_a_place_says_that_only_others_can_move_it_and_takes_it_back() -> None:
    plan, link = RemoteImages(), Link()
    plan.link = link  # type: ignore[assignment]
    for now in (1.0, 1.2, 1.5, 1.6):
        plan.look(now, [held(0, now), waits(1, now)])
    assert [kind for kind, _ in link.told] == ["still"]
    assert "clients [1] wait for others" in link.told[0][1]["why"]
    plan.look(1.7, [held(0, 1.7), waits(1, 1.7, signs=2)])
    assert link.told[1:] == [("still", {"step": STEP, "why": ""})]
    plan.look(1.8, [held(0, 1.8), held(1, 1.8)])
    assert [kind for kind, _ in link.told[2:]] == ["held"]


class Head:
    """A head whose places are to be held."""

    def __init__(self) -> None:
        self.head = Coordinator(Facts(2), lease=15.0, every=1.0)
        for place in (0, 1):
            self.head.claim(0.0, place, f"h{place}", 0)
            self.head.agent(0.0, place, 0)
            self.head.status(place, 10, 5.0)
        self.tick(2.0)
        assert self.head.phase is PhaseOfHead.HOLD
        self.step = self.head.step

    def tick(self, now: float) -> str:
        """Let time pass; return why it has let all go on."""
        self.head.tick(now)
        said = [a for a in self.head.taken() if isinstance(a, Say) and a.kind == "release"]
        return said[-1].values["why"] if said else ""


def test_a_hold_ends_when_one_place_is_held_and_the_other_waits_for_it() -> None:
    world = Head()
    world.head.held(2.5, 0, world.step, [])
    world.head.still(3.0, 1, world.step, "client [1] waits")
    assert world.tick(3.0 + STILL_S / 2) == ""
    assert world.tick(3.0 + STILL_S + 0.1) == "place [1]: client [1] waits"
    assert world.head.phase is PhaseOfHead.RUN


@pytest.mark.parametrize("what", ["taken back", "one place", "another step", "it is held"])
def test_a_hold_goes_on_where_a_place_may_move(what: str) -> None:
    world = Head()
    if what != "one place":
        world.head.held(2.5, 0, world.step, [])
    step = world.step - 1 if what == "another step" else world.step
    world.head.still(3.0, 1, step, "client [1] waits")
    if what == "taken back":
        world.head.still(3.1, 1, step, "")
    elif what == "it is held":
        world.head.held(3.1, 1, step, [])
        assert world.head.phase is PhaseOfHead.DUMP
        return
    assert world.tick(4.5) == ""
    assert world.head.phase is PhaseOfHead.HOLD


def test_the_next_hold_knows_nothing_of_the_one_before() -> None:
    world = Head()
    for place in (0, 1):
        world.head.still(3.0, place, world.step, "it waits")
    assert world.tick(3.5) == "place [0]: it waits"
    world.tick(7.0)
    assert world.head.phase is PhaseOfHead.HOLD
    assert world.tick(8.0) == ""
    assert world.head.phase is PhaseOfHead.HOLD
