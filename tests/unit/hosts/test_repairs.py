"""Servers of several places get their places in communicators, in every order of messages and faults."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model_repairs as places  # noqa: E402

model = places.model


def test_every_order_of_one_fault() -> None:
    assert model.explore(places.World(2, 1), limit=100_000) > 30


def walk(world: places.World, seed: int) -> None:
    """Go one way through all that can happen, to its end."""
    chance = random.Random(seed)
    for _ in range(5000):
        steps = list(world.next_steps())
        ended = all(kind in world.kinds for kind, _ in steps)  # nothing but faults can happen
        if ended and (not steps or chance.random() < 0.5):
            return world.check_end()
        rare = chance.random() < 0.1  # or all is cut off before anything is half done
        usual = [step for step in steps if rare or step[0] not in ("cut", "head", "agent")]
        world.do(chance.choice(usual))
        world.forget_deadlines()
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("ranks", "faults", "kinds", "cuts", "heads", "deaths"),
    [
        (2, 3, ("kill", "lost"), 0, 0, 0),
        (3, 3, ("kill",), 0, 0, 0),
        (3, 2, ("kill", "mute"), 0, 0, 0),
        (3, 2, ("kill",), 2, 0, 0),
        (3, 2, ("kill",), 0, 2, 0),
        (3, 2, ("kill",), 0, 0, 2),
        (4, 4, ("kill", "deaf"), 2, 1, 1),
    ],
)
def test_many_orders(
    ranks: int, faults: int, kinds: tuple[str, ...], cuts: int, heads: int, deaths: int
) -> None:
    for seed in range(40):
        walk(places.World(ranks, faults, kinds, cuts, heads, deaths), seed)
