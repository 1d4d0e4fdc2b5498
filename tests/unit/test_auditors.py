"""An auditor that ends: what is concluded, counted and said; what it is told when it starts."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.lifecycle import audits as module
from pyft.agent.lifecycle.auditors import Auditor
from pyft.agent.lifecycle.audits import Audits
from pyft.agent.members.server import LastWords
from pyft.recovery import events
from pyft.recovery.audits import CANNOT_TELL, NOT_KEPT, Finding, Interval
from pyft.recovery.disputes import Disputes
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import State
from pyft.wire import messages as wire
from pyft.wire.layout import FaultKind

WRONG = Finding(1, 1, 0, 100, "aa", "the first")
PID = 77


class Job:
    """One rank with a cut that is being audited, as far as the ends of auditors need it."""

    def __init__(self) -> None:
        self.plan = Plan(Gpus(1, 1), replay_all=True, audits=True)
        self.plan.handle(events.Attached(0, 0, 0))
        self.plan.handle(events.Received(0, 1, wire.Prepared(1, True, 10)))
        self.plan.handle(events.Audited(0, 1, 1))
        self.plan.handle(events.Received(0, 1, wire.Prepared(2, True, 50)))
        assert self.plan.ranks[0].state is State.RUNNING
        self.gpus, self.ending, self.said = self.plan.gpus, False, list[Any]()
        channel = SimpleNamespace(rank=0, control_fd=-1, header=lambda: {"unreplayable_from": 0})
        self.member: Any = SimpleNamespace(
            id=0, channel=channel, audited=Counter[str](), disputes=Disputes()
        )
        self.members = {0: self.member}
        self.options = SimpleNamespace(dmr_where="other")
        self.loop = SimpleNamespace(
            after=lambda _, call: call(), watch=lambda *_: None, forget=lambda _: None
        )
        self.supervisor = SimpleNamespace(forget=lambda _: None)
        self.starts = SimpleNamespace(environment=lambda *_: {"PYFT_A": "1"})
        agent: Any = self
        self.audits = Audits(agent)

    def event(self, event: Any) -> None:
        self.said.append(event)

    def keep(self) -> None:
        """Note all, for the next agent."""

    def ends(self, code: int, *found: Finding) -> Interval:
        """Have an auditor end with these last words."""
        interval = Interval(0, 1, 2, 50, 40, 0, list(found))
        words = LastWords(FaultKind.UNRECOVERABLE, code, 50, "a sentence")
        socket = SimpleNamespace(close=lambda: None)
        server = SimpleNamespace(pid=PID, words=words, socket=socket, receive=lambda _: None)
        parts: Any = (self, interval, server, 1)
        self.audits._runs[PID] = Auditor(*parts)
        assert self.audits.reaped(PID)
        return interval


@pytest.mark.parametrize("found", [(), (WRONG,)], ids=["audit", "vote"])
def test_a_trace_of_a_corrected_fault_blames_nothing(
    found: tuple[Finding, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job()
    job.ends(CANNOT_TELL, *found)
    assert job.said == [events.Audited(0, 1, 2)], "the cut counts"
    assert job.member.audited == {"audit_undecided": 1, "unaudited_undecided": 40}
    assert job.gpus.strikes.of == {}
    said = capfd.readouterr().err
    assert "rank [0] is not audited up to entry [50]: a sentence" in said


def test_results_of_collectives_are_a_reason_of_their_own() -> None:
    job = Job()
    job.ends(NOT_KEPT)
    assert job.said == [events.Audited(0, 1, 2)]
    assert job.member.audited == {"unaudited_collectives": 40}


def test_an_auditor_is_told_up_to_where_values_may_have_been_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, told = Job(), list[dict[str, str]]()
    job.member.disputes.of_other()
    job.member.disputes.came_to(35)

    def start(*parts: Any) -> Any:
        told.append(parts[-1])
        raise OSError("none")

    monkeypatch.setattr(module.Auditor, "start", start)
    monkeypatch.setattr(job.audits, "_judge", lambda *_: None)
    job.audits._start(job.member, Interval(0, 1, 2, 50, 40, 0), 1)
    assert told == [{"PYFT_A": "1", "PYFT_DMR_TOLD": "35"}]
