"""Every order in which faults, deaths and messages can come, for jobs of two and three ranks."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery import facts  # noqa: E402
from pyft.recovery.communicators import Communicators  # noqa: E402
from pyft.recovery.gpus import Gpus  # noqa: E402
from pyft.recovery.plan import Plan  # noqa: E402
from pyft.recovery.rank import Rank, State  # noqa: E402


@pytest.mark.parametrize(
    ("ranks", "spares", "faults", "kinds"),
    [
        (2, 0, 3, ("kill",)),
        (2, 1, 3, ("kill", "lost")),
        (2, 0, 2, ("kill", "mute", "lost")),
        (3, 1, 2, ("kill",)),
        (3, 2, 2, ("lost", "mute")),
        (3, 0, 2, ("kill", "refuses")),
        (2, 0, 2, ("kill", "deaf")),
        (3, 0, 2, ("kill", "stays")),
        pytest.param(3, 0, 3, ("kill",), marks=pytest.mark.long),
    ],
)
def test_all_orders(ranks: int, spares: int, faults: int, kinds: tuple[str, ...]) -> None:
    assert model.explore(model.World(ranks, spares, faults, kinds), limit=200_000) > 100


@pytest.mark.parametrize(
    ("ranks", "spares", "faults", "kinds", "agents"),
    [
        (2, 0, 2, ("kill",), 2),
        (2, 1, 2, ("kill", "lost"), 2),
        (2, 0, 1, ("mute",), 3),
        (3, 0, 1, ("kill",), 3),
    ],
)
def test_all_orders_with_agents_that_die(
    ranks: int, spares: int, faults: int, kinds: tuple[str, ...], agents: int
) -> None:
    world = model.World(ranks, spares, faults, kinds, agents)
    assert model.explore(world, limit=200_000) > 100


@pytest.mark.parametrize(
    ("ranks", "spares", "faults", "kinds"), [(2, 0, 2, ("kill",)), (3, 0, 1, ("mute",))]
)
def test_all_orders_with_deadlines_that_pass_early(
    ranks: int, spares: int, faults: int, kinds: tuple[str, ...]
) -> None:
    """Who is only slow is taken for one that does nothing any more."""
    world = model.World(ranks, spares, faults, kinds, dues=1)
    assert model.explore(world, limit=200_000) > 100


def test_the_model_finds_a_deadline_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Communicators, "due", lambda *_: iter(()))
    with pytest.raises(AssertionError):
        model.explore(model.World(2, 0, 2, ("kill", "deaf")), limit=10_000)


@pytest.mark.parametrize("stage", ["export", "fresh", "replace", "join"])
def test_the_model_finds_a_deadline_that_is_not_set(
    monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def apply(self: model.World, actions: list[ev.Action]) -> None:
        timers = [one for one in actions if isinstance(one, ev.Timer) and one.what[3:4] == (stage,)]
        original(self, [one for one in actions if one not in timers])

    original = model.World.apply
    monkeypatch.setattr(model.World, "apply", apply)
    with pytest.raises(AssertionError):
        model.explore(model.World(2, 0, 2, ("kill", "deaf")), limit=10_000)


def test_the_model_finds_a_kill_without_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the others would wait for ever for a server that cannot be ended."""
    monkeypatch.setattr(Plan, "_end_server", lambda _, rank: [ev.Kill(rank.id, rank.epoch)])
    with pytest.raises(AssertionError):
        model.explore(model.World(2, 0, 1, ("stays",)), limit=10_000)


def test_the_model_finds_a_gpu_that_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be ended is on it still."""
    monkeypatch.setattr(Gpus, "lose", lambda *_: None)
    with pytest.raises(AssertionError, match="there still"):
        model.explore(model.World(2, 0, 1, ("stays",)), limit=10_000)


def test_the_model_finds_a_deadline_of_a_server_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def due(self: Plan, event: ev.Due) -> list[ev.Action]:
        kind, id, *_ = event.what
        if kind != "fence":
            return original(self, event)
        return original(self, ev.Due((kind, id, self.ranks[int(id)].epoch)))

    original = Plan._due
    monkeypatch.setattr(Plan, "_due", due)
    with pytest.raises(AssertionError, match="that is over"):
        model.explore(model.World(3, 0, 1, ("mute",), dues=1), limit=10_000)


def test_the_model_finds_a_forgetful_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(plan: Plan, kept: dict) -> None:
        facts._restore_gpus(plan.gpus, kept)  # but no communicators, and no epoch

    monkeypatch.setattr(facts, "restore", nothing)
    with pytest.raises(AssertionError):
        model.explore(model.World(2, 0, 1, ("kill",), 2), limit=10_000)


def test_the_model_finds_a_server_that_is_not_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Plan, rank: Rank) -> list[ev.Action]:
        self.ranks[rank.id] = rank
        return self.starting.next(rank, False) if rank.state is State.FENCING else []

    monkeypatch.setattr(Plan, "adopt", hasty)
    with pytest.raises(AssertionError, match="two servers"):
        model.explore(model.World(2, 0, 1, ("kill",), 2), limit=10_000)


def test_the_model_finds_a_second_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Plan, rank: object, fault: object) -> list[ev.Action]:
        return self.starting.next(rank, False)  # without waiting for the death of the one before

    monkeypatch.setattr(Plan, "_fence", hasty)
    with pytest.raises(AssertionError, match="two servers"):
        model.explore(model.World(2, 0, 1, ("mute",)), limit=10_000)


def test_the_model_finds_a_member_that_was_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_one(self: Communicators, group: object, rank: int) -> list[tuple[int, int]]:
        return original(self, group, rank)[:1]

    original = Communicators._candidates
    monkeypatch.setattr(Communicators, "_candidates", forget_one)
    with pytest.raises(AssertionError):
        model.explore(model.World(3, 0, 1, ("kill",)), limit=10_000)


def test_the_model_finds_two_that_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all are dead, only the first one may take its place without the others."""
    first = Communicators._ask_for_export

    def at_once(self: Communicators, key: int, group: object, *rest: object) -> None:
        first(self, key, group, *rest)
        if group.repair.stage == "alone":
            group.repair = None

    monkeypatch.setattr(Communicators, "_ask_for_export", at_once)
    with pytest.raises(AssertionError):
        model.explore(model.World(2, 0, 2, ("kill",)), limit=10_000)


def walk(world: model.World, seed: int, steps: int) -> list[list[tuple[str, int]]]:
    """Let things happen, drawn at random; return what could have happened each time."""
    draw, seen = random.Random(seed), []
    while len(seen) < steps and (happens := list(world.next_steps())):
        seen.append(happens)
        world.do(draw.choice(happens))
    return seen


def thawed(state: bytes) -> model.World:
    """Return the world of a frozen state."""
    world = model.World.__new__(model.World)
    world.__dict__ = pickle.loads(state)
    return world


def test_what_is_frozen_goes_on_as_it_would_have() -> None:
    """Else `explore` would look at other worlds than those that it has come to."""
    for seed in range(40):
        world = model.World(2, 1, 2, ("kill", "mute", "lost"), agents=2)
        walk(world, seed, 1 + seed % 12)
        again = thawed(world.freeze())
        assert walk(again, 1000 + seed, 30) == walk(world, 1000 + seed, 30)
        assert (again.servers, again.epochs) == (world.servers, world.epochs)
        assert facts.of_plan(again.plan) == facts.of_plan(world.plan)


@pytest.mark.parametrize("part", ["world", "server", "rank", "gpus"])
def test_worlds_that_differ_in_anything_are_two(part: str) -> None:
    """`explore` goes on from one of all that freeze alike: what is left out is never tried."""
    parts = {
        "world": lambda world: world,
        "server": lambda world: world.servers[0],
        "rank": lambda world: world.plan.ranks[0],
        "gpus": lambda world: world.plan.gpus,
    }
    world = model.World(2, 1, 2, ("kill",))
    names = set(vars(parts[part](world))) - {"timers"}
    assert len(names) >= 4, names
    for name in sorted(names):
        other = thawed(world.freeze())
        assert other.freeze() == thawed(world.freeze()).freeze()
        setattr(parts[part](other), name, "something else")
        assert other.freeze() != world.freeze(), name
