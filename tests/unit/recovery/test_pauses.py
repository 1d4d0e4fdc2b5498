"""What the agent tells clients of recoveries, for the deadlines of the program itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count

import pytest

from pyft.agent.channel import page
from pyft.agent.lifecycle.pauses import NOTE, Pauses
from pyft.recovery.rank import Rank, State


@pytest.fixture
def pages() -> Iterator[list[int]]:
    fds = [os.memfd_create("control") for _ in range(2)]
    for fd in fds:
        os.ftruncate(fd, 4096)
    yield fds
    for fd in fds:
        os.close(fd)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time is 100 ns later."""
    times = count(1000, 100)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(times))


def ranks(*states: State) -> list[Rank]:
    return [Rank(id, id, id, id, 1, state) for id, state in enumerate(states)]


def words(fd: int) -> tuple[int, int]:
    state = page.read(fd)
    assert state.pauses_version % 2 == 0
    return state.paused_ns, state.paused_since


def test_recoveries_that_overlap_count_once(pages: list[int], clock: None) -> None:
    notes = {}
    pauses = Pauses(notes.__setitem__)
    works, recovers = State.RUNNING, State.RECOVERING
    steps = [
        ((works, works), (0, 0)),
        ((State.FENCING, works), (0, 1000)),
        ((recovers, State.WAITING), (0, 1000)),
        ((works, State.WAITING), (0, 1000)),
        ((works, works), (100, 0)),
        ((works, State.GIVEN_UP), (100, 0)),
        ((recovers, State.GONE), (100, 1200)),
        ((State.GONE, State.GIVEN_UP), (200, 0)),
    ]
    for states, wanted in steps:
        pauses.follow(ranks(*states), lambda: pages)
        assert [words(fd) for fd in pages] == [wanted, wanted], states
    assert notes[NOTE] == {"total_ns": 200, "since_ns": 0}


def test_the_next_agent_goes_on_where_one_has_died(pages: list[int], clock: None) -> None:
    notes = {}
    before = Pauses(notes.__setitem__)
    before.follow(ranks(State.RECOVERING), lambda: pages[:1])  # and dies before the second page
    page.write(pages[1], pauses_version=7)  # or while it writes
    after = Pauses(notes.__setitem__)
    after.adopt(notes[NOTE], pages)
    assert [words(fd) for fd in pages] == [(0, 1000), (0, 1000)]
    after.follow(ranks(State.RUNNING), lambda: pages)
    assert [words(fd) for fd in pages] == [(100, 0), (100, 0)]


def test_a_client_that_comes_later_is_told(pages: list[int], clock: None) -> None:
    pauses = Pauses(lambda name, note: None)
    pauses.adopt(None, pages[:1])
    pauses.follow(ranks(State.RECOVERING), lambda: pages[:1])
    pauses.tell(pages[1])
    assert words(pages[1]) == words(pages[0]) == (0, 1000)


def test_a_recovery_at_another_host_counts_as_one_here(pages: list[int], clock: None) -> None:
    pauses = Pauses(lambda *_: None)
    for elsewhere, state, wanted in (
        (True, State.RUNNING, (0, 1000)),
        (True, State.RECOVERING, (0, 1000)),
        (False, State.RECOVERING, (0, 1000)),
        (False, State.RUNNING, (100, 0)),
    ):
        pauses.elsewhere = elsewhere
        pauses.follow(ranks(state), lambda: pages)
        assert words(pages[0]) == wanted
