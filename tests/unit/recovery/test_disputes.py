"""What servers say of executions that differ reaches those that follow, and GPUs are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.lifecycle.router import Router
from pyft.recovery import events as ev
from pyft.recovery.classify import of_exit
from pyft.recovery.disputes import MOST, Disputes
from pyft.recovery.facts import of_plan, restore
from pyft.recovery.gpus import Gpus, Strikes
from pyft.recovery.plan import Plan
from pyft.recovery.rank import State
from pyft.recovery.report import Incident
from pyft.wire import messages as wire
from pyft.wire.layout import MISMATCH_EXIT, FaultKind

DIGESTS = bytes(range(48))
SAID = wire.Mismatch(10, 20, 25, DIGESTS)


def test_a_server_is_told_what_those_before_have_found() -> None:
    disputes = Disputes()
    assert disputes.environment() == {}
    disputes.add(SAID)
    (one,) = disputes.environment()["PYFT_DMR_DISPUTES"].split(";")
    assert one.split(",") == [
        *("10", "20", "25"),
        "07060504030201000f0e0d0c0b0a0908",
        "17161514131211101f1e1d1c1b1a1918",
        "27262524232221202f2e2d2c2b2a2928",
    ]
    for _ in range(MOST):
        disputes.add(SAID)
    assert disputes.environment()["PYFT_DMR_DISPUTES"].count(";") == MOST - 1
    assert Disputes.restored(disputes.note()) == disputes


@pytest.mark.parametrize("length", [0, 47, 49])
def test_other_digests_are_none(length: int) -> None:
    with pytest.raises(ValueError, match="bytes of digests"):
        Disputes().add(wire.Mismatch(10, 20, 25, bytes(length)))


@pytest.mark.parametrize("entries", [(26, 26, 25), (10, 26, 25), (26, 10, 25)])
def test_a_mismatch_is_of_entries_that_were_dispatched(entries: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not executed yet"):
        Disputes().add(wire.Mismatch(*entries, DIGESTS))
    disputes = Disputes()
    disputes.add(wire.Mismatch(20, 10, 20, DIGESTS))  # streams may execute them so
    assert disputes.has(20, 10)
    assert not disputes.has(10, 20)
    disputes.add(wire.Mismatch(20, 20, 20, DIGESTS))  # executed again by the server
    assert disputes.has(20, 20)


def test_what_others_were_told_ends_where_they_were_ended() -> None:
    disputes = Disputes()
    disputes.came_to(7)
    assert disputes.environment() == {}
    disputes.of_other()
    assert disputes.environment() == {}
    disputes = Disputes.restored(disputes.note())
    disputes.came_to(40)
    disputes.came_to(50)  # of a server that has replayed
    assert disputes.environment() == {"PYFT_DMR_TOLD": "40"}


@pytest.mark.parametrize(("reached", "told"), [(0, {}), (1, {"PYFT_DMR_TOLD": "1"})])
def test_who_had_no_entry_was_told_nothing(reached: int, told: dict[str, str]) -> None:
    disputes = Disputes()
    disputes.of_other()
    disputes.came_to(reached)
    assert disputes.environment() == told


def test_who_is_ended_in_a_replay_was_further_before() -> None:
    disputes = Disputes()
    disputes.of_other()
    disputes.came_to(40)
    disputes.of_other()  # in the replay it is found again
    disputes = Disputes.restored(disputes.note())
    disputes.came_to(12)
    assert disputes.environment() == {"PYFT_DMR_TOLD": "40"}
    disputes.of_other()
    disputes.came_to(60)
    assert disputes.environment() == {"PYFT_DMR_TOLD": "60"}


class Job:
    """Two ranks with a communicator, and another one, as far as messages of servers need them."""

    def __init__(self) -> None:
        self.plan = Plan(Gpus(3, 0), replay_all=True)
        self.kept = 0
        self.incidents = Incidents(lambda _: None)
        for id in range(3):
            self.plan.handle(ev.Attached(id, id, id))
        for id in range(2):
            self.said(id, wire.Made(5, rank=id))
        channel = SimpleNamespace(rank=0)
        self.members = {
            id: SimpleNamespace(id=id, who=f"rank [{id}]", disputes=Disputes(), channel=channel)
            for id in range(3)
        }

    def said(self, id: int, message: wire.Message) -> None:
        self.plan.handle(ev.Received(id, self.plan.ranks[id].epoch, message))

    def keep(self) -> None:
        self.kept += 1

    def hear(self, id: int, message: wire.Message) -> None:
        """Let the agent read what a server has said."""
        event = ev.Received(id, 1, message)
        server: Any = SimpleNamespace(pid=7, receive=lambda _: event, taken=lambda: None)
        assert Router(self).read(self.members[id], server)  # type: ignore[arg-type]


def told(job: Job) -> list[int]:
    for member in job.members.values():
        member.disputes.came_to(40)
    return [member.disputes.told for member in job.members.values()]


def test_those_that_go_back_with_it_may_have_been_told_something_wrong() -> None:
    job = Job()
    job.hear(0, SAID)
    assert job.members[0].disputes.has(10, 20)
    assert job.kept == 1
    assert told(job) == [0, 40, 0]


def test_what_no_server_says_is_told_to_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    job = Job()
    job.hear(0, wire.Mismatch(10, 26, 25, DIGESTS))
    assert told(job) == [0, 0, 0]
    job.hear(0, wire.Vote(10, 20, wire.Culprit.FIRST))
    errors = capfd.readouterr().err
    assert "a mismatch is of entries that were not executed yet" in errors
    assert "a vote about entries [10] and [20], which have not differed, from" in errors


def test_a_vote_is_of_the_mismatch_that_was_found_last(
    capfd: pytest.CaptureFixture[str],
) -> None:
    job = Job()
    found = [
        Incident(0, 0, name, "", 0, 0, seq=seq)
        for name, seq in (("mismatch", 20), ("mismatch", 20), ("mismatch", 30), ("hang", 20))
    ]
    job.incidents.all, job.incidents._members = found, [0, 0, 0, 0]
    for said in (SAID, SAID):
        job.hear(0, said)
    job.hear(0, wire.Vote(10, 20, wire.Culprit.SECOND))
    assert [one.culprit for one in found] == ["", "second", "", ""]
    assert "which had differed: the second execution was wrong" in capfd.readouterr().err


def test_strikes_count_for_a_while() -> None:
    strikes = Strikes(most=2, within=100)
    assert not strikes.add(0, 5)
    assert not strikes.add(1, 6)
    assert not strikes.add(0, 105)
    assert strikes.add(0, 204)
    after = Strikes(most=2, within=100)
    after.restore(strikes.note())
    assert after.of == strikes.of


def test_an_operator_takes_a_gpu_for_well() -> None:
    gpus = Gpus(1, 1)
    gpus.strikes.add(0, 5)
    gpus.add(0)
    assert gpus.strikes.of == {}


def mismatch(plan: Plan, cut: int) -> ev.Start:
    """Have the first rank's server find a mismatch; return what is started, which then works."""
    fault = of_exit(MISMATCH_EXIT << 8, FaultKind.MISMATCH, 0, "product ...", 77, cut)
    actions = plan.handle(ev.Exited(0, plan.ranks[0].epoch, fault))
    (start,) = [action for action in actions if isinstance(action, ev.Start)]
    plan.handle(ev.Received(0, start.epoch, wire.Live()))
    return start


def test_a_gpu_that_computes_wrongly_too_often_is_left() -> None:
    plan = Plan(Gpus(1, 1))
    plan.handle(ev.Attached(0, 0, 0))
    assert mismatch(plan, 3).gpu == 0
    assert plan.gpus.usable(0)
    again = Plan(Gpus(1, 1))  # the next agent's
    restore(again, of_plan(plan))
    again.adopt(plan.ranks[0])
    start = mismatch(again, 4)
    assert (start.gpu, start.mode) == (1, ev.Mode.NORMAL)
    assert "computed wrongly [2] times" in again.gpus.lost[0]
    assert mismatch(again, 5).gpu == 1


def test_without_a_spare_the_gpu_goes_on() -> None:
    plan = Plan(Gpus(1, 0))
    plan.handle(ev.Attached(0, 0, 0))
    for cut in range(1, 6):
        assert mismatch(plan, cut).gpu == 0
    assert plan.gpus.lost == {}
    plan.handle(ev.AddSpare(1))
    assert mismatch(plan, 6).gpu == 1


def test_all_ranks_on_a_gpu_that_is_left_leave_it() -> None:
    plan = Plan(Gpus(2, 2, Strikes(most=1)))
    plan.gpus.behind[1] = 0
    for id in range(2):
        plan.handle(ev.Attached(id, id, id))
    assert mismatch(plan, 3).gpu != 0
    assert plan.ranks[1].state is State.FENCING
