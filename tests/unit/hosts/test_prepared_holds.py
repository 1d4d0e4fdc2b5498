"""All places that can write pages while they run have done so before the head holds them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_coordinator import Walk, World, kinds  # noqa: E402

from pyft.hosts.head import lines  # noqa: E402
from pyft.hosts.head.decisions import Phase  # noqa: E402
from pyft.hosts.place.remote import RemoteImages  # noqa: E402
from pyft.recovery.images import Hold, Prepare, Release  # noqa: E402
from pyft.recovery.images import Phase as PlacePhase  # noqa: E402

HOLDS = [(("agent", 0), "hold"), (("agent", 1), "hold")]


def preparing(*can: int, **how: Any) -> World:
    """Return a head whose first image is due; these places can make pre-dumps."""
    world = World(**how)
    for number in can:
        world.head.prepares(number)
    for number in range(world.places):
        world.head.status(number, 10, 0.5)
    assert kinds(world.pass_time(0.5)) == [(("agent", number), "prepare") for number in can]
    return world


def test_the_hold_waits_for_each_place_that_has_begun() -> None:
    world = preparing(0, 1)
    assert world.pass_time(30.0) == []
    world.head.prepared(world.now, 1, 0.0)
    assert world.take() == []
    world.head.prepared(world.now, 0, 0.0)
    assert kinds(world.take()) == HOLDS


def test_it_does_not_wait_for_one_that_cannot() -> None:
    world = preparing(1)
    world.head.prepared(world.now, 1, 0.0)
    assert kinds(world.take()) == HOLDS


def test_it_does_not_wait_for_ever() -> None:
    world = preparing(0, 1)
    world.head.prepared(world.now, 1, 0.0)
    assert world.pass_time(lines.PREPARED_S - 1.0) == []
    assert kinds(world.pass_time(2.0)) == HOLDS


def test_another_agent_of_a_place_has_none_and_is_not_waited_for() -> None:
    world = preparing(0, 1)
    world.head.prepared(world.now, 1, 0.0)
    world.head.agent(world.now, 0, 0)
    assert kinds(world.take()) == [(("agent", 0), "release")]
    assert kinds(world.pass_time(0.5)) == HOLDS


def test_without_an_agent_there_is_no_hold_and_all_give_theirs_up() -> None:
    world = preparing(0, 1)
    world.head.gone(world.now, 0)
    said = kinds(world.pass_time(1.0))
    assert said == [(("agent", 0), "release"), (("agent", 1), "release")]
    world.head.prepared(world.now, 1, 0.0)  # too late
    assert world.take() == []
    world.head.agent(world.now, 0, 0)
    world.head.prepares(0)
    world.take()
    assert kinds(world.pass_time(0.5)) == [(("agent", 0), "prepare"), (("agent", 1), "prepare")]


def test_all_go_back_meanwhile_as_ever() -> None:
    world = World()
    world.image()
    for number in range(2):
        world.head.prepares(number)
    assert "prepare" in {said.kind for said in world.pass_time(2.0)}
    world.head.lost(world.now, 0, "killed")
    assert {kind for _, kind in kinds(world.take())} >= {"back"}
    world.head.prepared(world.now, 0, 0.0)
    assert world.take() == []
    assert world.head.phase is Phase.BACK
    for number in range(2):
        world.head.agent(world.now, number, 1)
    world.take()
    assert {said.kind for said in world.pass_time(3.0)} == {"hold"}  # new agents have not said it


@pytest.mark.parametrize("stood_s", [0.0, 0.5])
def test_what_places_stood_still_for_it_is_of_the_cost(stood_s: float) -> None:
    world = preparing(0, 1, every=0.0)
    world.head.prepared(world.now, 0, stood_s)
    world.head.prepared(world.now, 1, stood_s / 2)
    step = world.take()[0].values["step"]
    for number in range(2):
        world.head.held(world.now, number, step, [[5, number, -1, 7, 7]])
    dumps = world.take()
    world.now += 1.0
    for place in range(2):
        world.head.copied(world.now, place, dumps[0].values["number"])
        for name, _, _ in dumps[place].values["mirrors"]:
            world.head.have(name, place, dumps[0].values["number"])
    world.take()
    pause_s = 100.0 * (1.0 + stood_s)
    assert "prepare" not in {said.kind for said in world.pass_time(pause_s - 0.5)}
    assert "prepare" in {said.kind for said in world.pass_time(1.0)}


class PreparingWalk(Walk):
    """Hosts and head are lost at any moment, also while pages are written."""

    prepared = 0

    def one(self) -> None:
        """Places say that they can, and that they have; perhaps twice, or too late."""
        place = self.dice.randrange(3)
        if self.head.facts.places[place].host not in self.lost:
            if self.dice.random() < 0.5:
                self.head.prepares(place)
            if self.dice.random() < 0.5:
                before = self.head.phase
                self.head.prepared(self.now, place, 0.1)
                self.prepared += before is Phase.RUN and self.head.phase is Phase.HOLD
        super().one()


def test_any_order() -> None:
    """What Walk looks at holds, and images come about."""
    walks = [PreparingWalk(seed) for seed in range(30)]
    for walk in walks:
        for _ in range(300):
            walk.one()
            walk.take()
            if walk.head.facts.failed:
                break
    assert all(walk.prepared for walk in walks)
    assert sum(walk.head.facts.line > 0 for walk in walks) > 5


# ---- at a place ----------------------------------------------------------------------------------


class Link:
    """A connection to the head."""

    def __init__(self) -> None:
        self.words: list[dict[str, Any]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []

    def heard(self) -> dict[str, Any] | None:
        return self.words.pop(0) if self.words else None

    def say(self, kind: str, **values: Any) -> None:
        self.told.append((kind, values))


def place() -> tuple[RemoteImages, Link]:
    """Return the plan of a place, and its connection."""
    plan, link = RemoteImages(), Link()
    plan.link = link  # type: ignore[assignment]
    return plan, link


def hears(plan: RemoteImages, link: Link, **said: Any) -> list[Any]:
    """Let the head say something; return what follows."""
    link.words.append(said)
    return list(plan.look(0.0, []))


@pytest.mark.parametrize("can", [True, False])
def test_a_place_says_whether_it_can(can: bool) -> None:
    plan, _ = place()
    plan.prepares = can
    assert plan.hello(1, 1).get("prepares", False) is can


def test_a_place_does_it_and_says_so_once() -> None:
    plan, link = place()
    assert hears(plan, link, kind="prepare") == [Prepare()]
    assert plan.prepared(0.0, [], 0.0021) == []
    assert link.told == [("prepared", {"stood_us": 2100})]
    assert plan.prepared(0.0, [], 0.0) == []
    assert len(link.told) == 1


@pytest.mark.parametrize(
    ("said", "phase", "follows"),
    [
        ({"kind": "hold", "step": 9, "milliseconds": 10}, PlacePhase.HOLD, Hold(9)),
        ({"kind": "release", "why": "", "number": 0}, PlacePhase.NONE, Release()),
    ],
)
def test_what_the_head_says_meanwhile_counts(
    said: dict[str, Any], phase: PlacePhase, follows: Hold | Release
) -> None:
    plan, link = place()
    hears(plan, link, kind="prepare")
    assert hears(plan, link, **said) == [follows]
    plan.prepared(0.0, [], 0.0)
    assert plan.phase is phase
    assert "prepared" not in dict(link.told)


def test_the_next_agent_waits_for_the_heads_word() -> None:
    plan, link = place()
    hears(plan, link, kind="prepare")
    after, _ = place()
    after.adopt(0.0, plan.note())
    assert after.phase is PlacePhase.NONE
    assert SimpleNamespace(**after.note()).number == 0
