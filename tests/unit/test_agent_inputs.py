"""The short form of `make fuzz`: nothing that comes from outside ends an agent."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
from agent_inputs import TARGETS, Target  # noqa: E402
from mutate import mutated  # noqa: E402
from socket_inputs import Sockets  # noqa: E402

MUTATIONS = 2000


@pytest.mark.parametrize("make", [*TARGETS, Sockets], ids=lambda make: make.name)
def test_no_input_ends_an_agent(make: Callable[[], Target]) -> None:
    target, dice = make(), random.Random(1)
    try:
        seeds = target.seeds()
        for data in seeds:
            target.run(data)
        for _ in range(MUTATIONS):
            target.run(mutated(dice, seeds, target.words))
    finally:
        target.close()
