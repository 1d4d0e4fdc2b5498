"""A place's right to run: from when it counts, and that nothing keeps it from being ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.process.criu_work import CriuWork, Work
from pyft.hosts.place import lease as module
from pyft.hosts.place.lease import Lease

OPTIONS: Any = SimpleNamespace(place=0, host="h0", life=0, head="127.0.0.1:29471")


class Clock:
    """Time that passes as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "clock_gettime", lambda _: self.now)


class Answers:
    """A head that takes its time to answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def to(self, *_: object) -> Answers:
        """Connect."""
        return self

    def send(self, *_: object, **__: object) -> None:
        """Take what is said."""

    def receive(self, _: float) -> dict[str, Any]:
        """Answer after a while."""
        self._clock.now += 5.0
        return {"kind": "welcome", "life": 1, "lease_s": 10.0}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that counts leases."""
    monkeypatch.setenv("PYFT_TOKEN", "0123456789abcdef")
    made = Clock(monkeypatch)
    monkeypatch.setattr(module, "Link", Answers(made))
    monkeypatch.setattr(module, "HeadLink", lambda *_: SimpleNamespace(heard=lambda: None))
    monkeypatch.setattr(module.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    return made


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done to the place, in order."""
    done: list[str] = []
    monkeypatch.setattr(module, "_stop", lambda pids: done.append("stop") or [])
    monkeypatch.setattr(module.messages, "say", lambda _: done.append("say"))
    monkeypatch.setattr(module.process_tree, "send", lambda *_: done.append("send"))
    return done


def test_the_first_lease_counts_from_when_it_was_asked_for(
    clock: Clock, stopped: list[str]
) -> None:
    """The head has counted since it read the claim, perhaps long before its answer came."""
    lease = Lease(OPTIONS)
    lease.claim()
    clock.now += 3.0  # until the supervisor is there
    lease.begin()
    lease._fence(clock.now)
    assert "stop" in stopped  # 8 of 10 s are over


def test_a_terminal_that_takes_nothing_keeps_nobody_running(
    clock: Clock, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are stopped before anything is said, and it is not waited for that."""
    waits: list[str] = []
    monkeypatch.setattr(module.messages, "say", lambda _: waits.append(stopped.pop()))
    lease = Lease(OPTIONS)
    lease.claim()
    clock.now += 8.0
    lease._fence(clock.now)
    assert (stopped, waits) == (["stop"], [])


def test_a_lease_that_cannot_be_kept_ends_the_place(
    clock: Clock, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(module.process_tree, "descendants", lambda _: [4])
    monkeypatch.setattr(module.process_tree, "send", lambda _, number: killed.append(number))
    lease = Lease(OPTIONS)
    lease.claim()
    lease.begin()
    said: list[Any] = [{"kind": "renewed", "number": []}]
    lease._link.heard = lambda: said.pop() if said else None  # type: ignore[method-assign]
    lease._keep()
    assert killed
    assert "cannot be kept" in lease.lost


def test_the_end_is_said_until_the_head_has_noted_it(clock: Clock) -> None:
    """What was said to a head that has just died has reached nobody."""
    said: list[int] = []
    lease = Lease(OPTIONS)
    lease.claim()

    def say(kind: str, code: int, life: int) -> bool:
        said.append(code)
        if len(said) == 3:
            lease._take(clock.now, {"kind": "noted"})
        return True

    ended: list[int] = []
    lease._link = SimpleNamespace(say=say, end=lambda: ended.append(len(said)))  # type: ignore[assignment]
    lease.end(256 + 5)
    assert (said, ended) == ([5, 5, 5], [3])


def test_a_place_that_has_left_is_said_until_it_is_noted_and_kills_nobody(
    clock: Clock, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it runs any more; what the launcher starts after that is no part of it."""
    lease = Lease(OPTIONS)
    lease.claim()
    said: list[tuple[str, int]] = []

    def say(kind: str, **values: Any) -> None:
        said.append((kind, values["life"]))
        if len(said) == 3:
            lease._take(clock.now, {"kind": "noted"})

    link = SimpleNamespace(heard=lambda: None, say=say, end=lambda: said.append(("end", 0)))
    monkeypatch.setattr(module, "HeadLink", lambda *_: link)
    monkeypatch.setattr(module, "AGAIN_S", 0.001)
    lease.begin()
    lease.leave()
    assert said == [("left", 1)] * 3 + [("end", 0)]
    lease._keep()
    assert stopped == []
    assert lease.lost == ""


def test_the_next_owner_may_have_the_place_before_the_answer_is_here(
    clock: Clock, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal is refused then: no reason to kill what this host may have been given since."""
    lease = Lease(OPTIONS)
    lease.claim()
    refused = [{"kind": "refused", "why": "another host has the place"}]

    def say(kind: str, **_: Any) -> None:
        if kind == "left":
            lease._keep()  # the thread hears it now

    def heard() -> dict[str, str] | None:
        return refused.pop() if refused else None

    link = SimpleNamespace(heard=heard, say=say, end=lambda: None)
    monkeypatch.setattr(module, "HeadLink", lambda *_: link)
    lease.begin()
    lease.leave()
    assert lease.lost == "another host has the place"
    assert stopped == []


class Tree:
    """Processes of a place: number of the parent by number. The launcher is 1."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parents = {2: 1, 3: 2, 4: 2, 5: 4, 6: 2, 7: 6}  # 3: agent, 4: CRIU, 6: restored
        self.stopped: list[int] = []
        self.killed: set[int] = set()
        self.criu = CriuWork()
        monkeypatch.setattr(module.process_tree, "descendants", self._below)
        monkeypatch.setattr(module.process_tree, "send", self._send)
        monkeypatch.setattr(module, "_stop", lambda pids: self.stopped.extend(pids) or [])
        self.lease = Lease(OPTIONS, self.criu)
        self.lease.claim()
        self._clock = clock

    def _below(self, _: int, spared: Collection[int] = ()) -> list[int]:
        found: list[int] = []
        for pid, parent in self.parents.items():  # parents come first
            if pid not in spared and (parent == 1 or parent in found):
                found.append(pid)
        return found

    def _send(self, pids: Collection[int], number: int) -> None:
        if number == signal.SIGKILL:
            self.killed |= set(pids)

    def fence(self, seconds: float) -> None:
        """Look at the lease so long after it was confirmed last."""
        self.stopped, self.killed = [], set()
        self.lease._fence(self.lease._confirmed + seconds)


def test_criu_goes_on_while_the_place_stands_still(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRIU fails when a process that it restores is stopped; that one runs nothing of its own."""
    tree = Tree(clock, monkeypatch)
    tree.criu.begins(Work(pid=4, root=6, restores=True))
    tree.fence(8.0)
    assert (tree.stopped, tree.killed) == ([2, 3], set())
    del tree.parents[4], tree.parents[5]  # CRIU has ended, and the supervisor stands still
    tree.fence(8.0)
    assert tree.stopped == [2, 3, 6, 7]
    tree.parents[4] = 1  # another one has its number
    tree.criu.ended(4)
    tree.fence(8.0)
    assert 4 in tree.stopped


def test_a_restore_ends_with_the_lease_and_a_dump_does_not(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on another host may begin with the place. A dump only reads."""
    tree = Tree(clock, monkeypatch)
    tree.criu.begins(Work(pid=4, root=6, restores=True))
    tree.fence(10.1)
    assert (tree.stopped, tree.killed) == ([2, 3], {4, 5, 6, 7})
    tree.criu.begins(Work(pid=4, root=6, restores=False))
    tree.fence(10.1)
    assert (tree.stopped, tree.killed) == ([2, 3], set())


def test_a_forked_process_says_what_it_works_on() -> None:
    """The page is that of the process that was forked, and of the one that has forked it."""
    criu = CriuWork()
    command = [sys.executable, "-c", "input()"]
    begins = lambda: criu.begins(Work(os.getpid(), 77, True))  # noqa: E731
    with subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=begins) as process:
        assert criu.among([process.pid]) == Work(process.pid, 77, True)
        assert criu.among([process.pid + 1]) is None
        criu.ended(process.pid + 1)
        assert criu.among([process.pid])
        criu.ended(process.pid)
        assert criu.among([process.pid]) is None
        process.communicate(b"\n")
