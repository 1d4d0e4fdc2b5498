"""The short form of `make fuzz`: nothing that comes from outside ends an agent."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
from agent_inputs import TARGETS, Target  # noqa: E402
from mutate import mutated  # noqa: E402
from socket_inputs import Sockets  # noqa: E402

MUTATIONS = 2000
LONG_FORM = str(Path(__file__).parent.parent / "fuzz" / "run.py")


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


def test_the_long_form_ends_after_so_many_mutations(tmp_path: Path) -> None:
    """However long they take; the count of all runs is kept."""
    chosen = ("--target", "http", "--target", "orders", "--corpus", str(tmp_path))
    for run in (1, 2):
        subprocess.run([sys.executable, LONG_FORM, "--mutations", "40", *chosen], check=True)
        counts = json.loads((tmp_path / "counts.json").read_text())
        assert {name: row["mutations"] for name, row in counts.items()} == {
            "http": 40 * run,
            "orders": 40 * run,
        }


def test_a_target_that_is_none_is_refused() -> None:
    """Or nothing would be tried, and all would be well."""
    command = [sys.executable, LONG_FORM, "--mutations", "1", "--target", "htp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'htp'" in done.stderr
