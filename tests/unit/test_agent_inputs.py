"""The short form of `make fuzz`: nothing that comes from outside ends an agent."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft.wire.layout import PAGE_BYTES

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
import agent_inputs  # noqa: E402
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


def test_what_an_input_does_does_not_depend_on_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An input that has ended an agent is kept, and has to end one alone."""
    saved: list[int] = []
    monkeypatch.setattr(agent_inputs, "save_log", lambda *_: saved.append(1))
    monkeypatch.setattr(agent_inputs.live, "recent_entries", lambda _: [])
    target = agent_inputs.Memory()
    ring = target.member.channel.areas.ring_offset
    places = [(fd, at) for fd in target.fds for at in (0, PAGE_BYTES)]
    places += [(target.fds[0], ring), (target.fds[0], ring + PAGE_BYTES)]
    changed = range(PAGE_BYTES - 8, PAGE_BYTES)  # the last ones reach the next page
    writes = [(which, at) for which in range(3) for at in changed]
    data = b"".join(bytes([w]) + at.to_bytes(7, "little") + b"\xff" * 8 for w, at in writes)
    ending = next(d for n in range(1000) if zlib.crc32(d := bytes([0] * n)) % 50 == 0)
    try:
        target.run(ending)
        before = [os.pread(fd, 8, at + end) for fd, at in places for end in (0, PAGE_BYTES - 8)]
        target.run(data)
        target.run(ending)
        after = [os.pread(fd, 8, at + end) for fd, at in places for end in (0, PAGE_BYTES - 8)]
    finally:
        target.close()
    assert before == after
    assert len(saved) >= 2


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
