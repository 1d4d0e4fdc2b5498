"""Every order of deaths and messages while two ranks make their communicator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402
from model_meeting import MeetingWorld  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery.communicators import Communicators  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402

KILL = ("kill",)


@pytest.mark.parametrize(("faults", "agents"), [(1, 1), pytest.param(1, 2, marks=pytest.mark.long)])
def test_all_orders(faults: int, agents: int) -> None:
    """Two deaths take much longer, and pass."""
    assert model.explore(MeetingWorld(2, 0, faults, KILL, agents), limit=300_000) > 1000


def test_the_model_finds_that_making_is_heard_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other message: behind what other servers have said later."""
    late = lambda self, server: self.say(server, wire.Making)  # noqa: E731
    monkeypatch.setattr(MeetingWorld, "say_making", late)
    with pytest.raises(AssertionError):
        model.explore(MeetingWorld(2, 0, 1, KILL), limit=50_000)


def test_the_model_finds_records_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has died when it had records must not go on alone while another one is about to."""
    monkeypatch.setattr(Communicators, "_on_the_way", lambda *_: [])
    with pytest.raises(AssertionError):
        model.explore(MeetingWorld(2, 0, 1, KILL), limit=50_000)


def test_the_model_finds_a_lost_one_that_nobody_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeetingWorld, "would_ask", lambda *_: False)
    with pytest.raises(AssertionError):
        model.explore(MeetingWorld(2, 0, 1, KILL), limit=50_000)


def test_who_keeps_others_waiting_is_replaced() -> None:
    """A rank with records waits for one that has said nothing since it began to make it."""
    plan = MeetingWorld(2, 0, 0, KILL).plan
    plan.handle(ev.Received(0, 1, wire.Making(7, 0)))
    actions = plan.handle(ev.Received(1, 2, wire.WantExport(7, 1)))
    timers = [action for action in actions if isinstance(action, ev.Timer)]
    assert [timer.what[3] for timer in timers] == ["wait"]
    assert ev.Kill(0, 1) in plan.handle(ev.Due(timers[0].what))
