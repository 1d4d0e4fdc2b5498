"""Who was wrong, where an audit finds something; when a cut that is audited becomes the line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pyft.agent.job.options import JobOptions, check_protection, replays_all
from pyft.errors import UsageError
from pyft.recovery import classify, events, redundancy
from pyft.recovery.audits import ATTEMPTS, CANNOT_TELL, NOT_KEPT, Finding, Interval, Verdict
from pyft.recovery.facts import of_plan, restore
from pyft.recovery.gpus import Gpus
from pyft.recovery.line import Line
from pyft.recovery.plan import Plan
from pyft.recovery.rank import State
from pyft.recovery.rollback import Abort, Audit, Commit, FalseCut, RollbackSets, Unaudited
from pyft.wire import messages as wire

JOB = JobOptions(
    job="job",
    log_dir=Path("/log"),
    native_dir=Path("/native"),
    devices=1,
    direct=False,
    command=("train",),
    dmr="audit",
    spares=1,
)
ONE, OTHER = "aa", "bb"


def finding(gpu: int, evidence: str = "", fresh: int = 0) -> Finding:
    return Finding(gpu, 1 if evidence else 0, fresh, 100, evidence, "the first")


def interval(*found: Finding, failed: int = 0) -> Interval:
    return Interval(7, 1, 5, 50, 40, 0, list(found), ["why"] * failed)


# ---- what was wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "failed", "verdict"),
    [
        ([], 0, Verdict.OPEN),
        ([], ATTEMPTS - 1, Verdict.OPEN),
        ([], ATTEMPTS, Verdict.FAILED),
        ([finding(1)], 0, Verdict.EQUAL),
        ([finding(1)], ATTEMPTS, Verdict.EQUAL),
        ([finding(1, ONE)], 0, Verdict.OPEN),
        ([finding(1, ONE)], ATTEMPTS, Verdict.UNDECIDED),
        ([finding(1, ONE), finding(2)], 0, Verdict.AUDITOR),
        ([finding(1, ONE), finding(2, ONE)], 0, Verdict.RANK),
        ([finding(1, ONE), finding(2, OTHER)], 0, Verdict.UNDECIDED),
        # Without a third GPU: 0 is the rank's own.
        ([finding(1, ONE), finding(0, ONE)], 0, Verdict.RANK),
        ([finding(1, ONE), finding(0)], 0, Verdict.OPEN),
        ([finding(1, ONE), finding(0)], ATTEMPTS, Verdict.UNDECIDED),
        ([finding(1, ONE), finding(0), finding(1)], 0, Verdict.AUDITOR),
        ([finding(1, ONE), finding(0), finding(1, ONE)], 0, Verdict.UNDECIDED),
        # All on the rank's own.
        ([finding(0, ONE), finding(0)], 0, Verdict.AUDITOR),
        ([finding(0, ONE), finding(0, ONE)], 0, Verdict.RANK),
    ],
)
def test_two_of_three_are_right(found: list[Finding], failed: int, verdict: Verdict) -> None:
    assert interval(*found, failed=failed).verdict() is verdict


def test_where_a_replay_need_not_be_exact_nothing_is_blamed() -> None:
    assert interval(finding(1)).verdict(exact=False) is Verdict.EQUAL
    assert interval(finding(1, ONE)).verdict(exact=False) is Verdict.INEXACT
    assert interval(finding(1, ONE), finding(2, ONE)).verdict(exact=False) is Verdict.INEXACT


def test_a_vote_goes_to_a_gpu_that_has_not_taken_part() -> None:
    audit, vote = interval(), interval(finding(4, ONE))
    assert audit.place([4, 5], [1], on_own=False) == 4
    assert audit.place([], [1], on_own=False) is None  # no rank's GPU is taken for an audit
    assert vote.place([4, 5], [1], on_own=False) == 5
    assert vote.place([4], [1, 2], on_own=False) == 1
    assert vote.place([4], [], on_own=False) == 0
    assert audit.place([4], [1], on_own=True) == 0
    again = interval(finding(4, ONE), finding(0))
    assert again.place([3, 4], [], on_own=False) == 4
    assert again.place([], [], on_own=False) is None


def test_what_an_auditor_says_is_checked() -> None:
    said = wire.Audited(50, 2, 1, 100, bytes(16) + b"\xff words")
    found = Finding.of(said, 3)
    assert (found.differing, found.fresh, found.bytes, found.text) == (2, 1, 100, "\ufffd words")
    assert Finding.of(wire.Audited(50, 0, 0, 100, bytes(16)), 3).text == "", "nothing differs"
    with pytest.raises(ValueError, match=r"\[15\] bytes of evidence"):
        Finding.of(wire.Audited(50, 2, 1, 100, bytes(15)), 3)


def test_what_an_auditor_lacks_has_the_same_number_at_both_ends() -> None:
    server = Path(__file__).resolve().parents[3] / "proxy" / "server"
    assert f"kNotKept = {NOT_KEPT};" in (server / "session" / "kept.h").read_text()
    assert f"kCannotTell = {CANNOT_TELL};" in (server / "auditor.h").read_text()


# ---- when a cut becomes the line -----------------------------------------------------------------


def sets_of(*ids: int) -> RollbackSets:
    """Return ranks that share a communicator, each with a line at step 1."""
    sets = RollbackSets(audits=True)
    for rank, id in enumerate(ids):
        sets.made(id, 9, rank)
    for id in ids:
        hold(sets, id, 1, 10)
    for id in ids:
        sets.audit_ended(id, 1)
    assert all(sets.line(id) == 1 for id in ids)
    return sets


def hold(sets: RollbackSets, id: int, step: int, entry: int) -> list:
    rank = next(rank for rank, member in sets.groups[9].members.items() if member == id)
    sets.told(id, 9, Line(rank, step))
    return sets.came_to(id, step, entry)


def test_a_cut_is_audited_when_all_of_a_set_hold_it() -> None:
    sets = sets_of(0, 1)
    assert hold(sets, 0, 2, 20) == []
    assert hold(sets, 1, 2, 21) == [Audit(0, 2, 20, 10), Audit(1, 2, 21, 10)]
    assert [one for one in sets.audit_ended(0, 2) if isinstance(one, Commit)] == []
    assert sets.line(0) == 1
    assert sets.audit_ended(1, 2) == [Commit(0, 2), Commit(1, 2)]
    assert sets.line(0) == sets.line(1) == 2


def test_a_rank_without_room_does_not_wait_for_the_audit() -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    assert sets.withdraw(0, 2) == [Abort(0, 2)]  # the other one does not hold it yet
    hold(sets, 0, 3, 30)
    hold(sets, 1, 3, 31)
    sets.audit_ended(1, 3)
    assert sets.withdraw(0, 3) == [Unaudited(0, 3), Commit(0, 3), Commit(1, 3)]


def test_while_a_vote_is_open_it_waits() -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    hold(sets, 1, 2, 21)
    sets.dispute(1, 2)
    assert sets.withdraw(0, 2) == []
    assert sets.line(0) == 1
    sets.audit_ended(0, 2)
    assert sets.audit_ended(1, 2) == [Commit(0, 2), Commit(1, 2)]


@pytest.mark.parametrize("before", [True, False])
def test_when_a_vote_is_over_it_waits_for_no_other_audit(before: bool) -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    hold(sets, 1, 2, 21)
    sets.dispute(1, 2)
    now = [Unaudited(0, 2), Commit(0, 2), Commit(1, 2)]
    if before:
        assert sets.withdraw(0, 2) == []
        again = RollbackSets(audits=True)
        again.restore(sets.note())
        assert again.audit_ended(1, 2) == now
    else:
        assert sets.audit_ended(1, 2) == [Audit(0, 2, 20, 10)]
        assert sets.withdraw(0, 2) == now


def test_an_audit_of_before_a_rollback_says_nothing() -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    hold(sets, 1, 2, 21)
    sets.audit_ended(0, 2)
    sets.go_back([0, 1])
    assert sets.audit_ended(1, 2) == []
    assert sets.line(0) == sets.line(1) == 1
    assert hold(sets, 0, 2, 20) == []
    assert hold(sets, 1, 2, 21) == [Audit(0, 2, 20, 10), Audit(1, 2, 21, 10)]


def test_the_next_agent_has_audited_again_what_waits() -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    hold(sets, 1, 2, 21)
    sets.audit_ended(0, 2)
    sets.dispute(1, 2)
    again = RollbackSets(audits=True)
    again.restore(sets.note())
    assert again.unaudited() == [Audit(1, 2, 21, 10)]
    assert again.withdraw(0, 2) == []
    assert again.audit_ended(1, 2) == [Commit(0, 2), Commit(1, 2)]


def test_without_audits_nothing_waits_for_one() -> None:
    sets = RollbackSets()
    sets.made(0, 9, 0)
    assert hold(sets, 0, 1, 10) == [Commit(0, 1)]


def test_a_cut_before_the_line_is_refused() -> None:
    sets = sets_of(0, 1)
    with pytest.raises(
        FalseCut, match=r"cut \[2\] at entry \[3\], before its line at entry \[10\]"
    ):
        hold(sets, 0, 2, 3)
    assert sets.withdraw(0, 2) == [Abort(0, 2)]
    assert hold(sets, 0, 3, 30) == []
    assert hold(sets, 1, 3, 31) == [Audit(0, 3, 30, 10), Audit(1, 3, 31, 10)]


# ---- in a plan -----------------------------------------------------------------------------------


def test_a_rank_that_was_wrong_goes_back_and_its_gpu_gets_a_strike() -> None:
    plan = Plan(Gpus(1, 1), replay_all=True, audits=True)
    plan.handle(events.Attached(0, 0, 0))
    (first,) = plan.handle(events.Received(0, 1, wire.Prepared(1, True, 10)))
    assert first == events.Audit(0, 1, 1, 10, 0)
    assert plan.handle(events.Audited(0, 1, 1)) == [events.Send(0, 1, wire.Commit(1, final=True))]
    (audit,) = plan.handle(events.Received(0, 1, wire.Prepared(2, True, 20)))
    assert audit == events.Audit(0, 1, 2, 20, 10)
    plan.handle(events.Disputed(0, 1, 2))
    assert plan.handle(events.Received(0, 1, wire.DecisionRequest(2))) == []
    fault = classify.of_agent("audit", "other contents", 20, 2)
    assert isinstance(plan.handle(events.Suspected(0, 1, fault))[0], events.Kill)
    died = classify.of_exit(9)
    start = next(
        one for one in plan.handle(events.Exited(0, 1, died)) if isinstance(one, events.Start)
    )
    assert start.entry == 10  # the last line, which an audit has passed
    assert plan.gpus.strikes.of == {0: [2]}
    assert plan.handle(events.Audited(0, 1, 2)) == []  # of the server before


# ---- a log is its client's, who can change it between two replays --------------------------------


def audited(ranks: int, spares: int, on_one_gpu: bool = False) -> Plan:
    plan = Plan(Gpus(ranks, spares), replay_all=True, audits=True)
    if on_one_gpu:
        plan.gpus.behind = dict.fromkeys(range(ranks), 0)
    for id in range(ranks):
        plan.handle(events.Attached(id, id, id))
    return plan


def blame(plan: Plan, id: int, cut: int) -> int:
    """Have two replays of a rank's log agree against it; return on which GPU it goes on."""
    fault = classify.of_agent("audit", "other contents", 10 * cut, cut)
    plan.handle(events.Suspected(id, plan.ranks[id].epoch, fault))
    for one in list(plan.ranks.values()):
        if one.state is State.FENCING:
            plan.handle(events.Exited(one.id, one.epoch, classify.of_exit(9)))
    for one in plan.ranks.values():
        plan.handle(events.Received(one.id, one.epoch, wire.Live()))
    return plan.ranks[id].gpu


def test_a_log_alone_takes_one_gpu_of_its_rank_and_no_more() -> None:
    plan = audited(ranks=2, spares=3)
    assert [blame(plan, 1, cut) for cut in (1, 2)] == [1, 2]
    again = audited(ranks=2, spares=3)  # the next agent's
    restore(again, of_plan(plan))
    again.ranks = plan.ranks
    again.starting.ranks = plan.ranks
    assert [blame(again, 1, cut) for cut in (3, 4, 5)] == [2, 2, 2]
    assert set(again.gpus.lost) == {1}
    assert again.gpus.strikes.of[2] == [3, 4, 5], "counted all the same"
    assert not again.is_believed(1, 2)


def test_a_log_alone_takes_no_gpu_on_which_others_work() -> None:
    plan = audited(ranks=2, spares=1, on_one_gpu=True)
    assert [blame(plan, 1, cut) for cut in (1, 2, 3)] == [0, 0, 0]
    assert plan.gpus.lost == {}
    assert blame(plan, 0, 4) == 1, "two logs say so"
    assert set(plan.gpus.lost) == {0}


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_auditor_is_blamed_by_two_logs_or_by_the_only_one(ranks: int) -> None:
    plan = audited(ranks, spares=1)
    spare = ranks

    def enough(id: int, step: int) -> bool:
        word = plan.word_about(plan.ranks[id], spare)
        return plan.gpus.strikes.add(spare, step, word)

    assert not enough(0, 1)
    assert enough(0, 2) == (ranks == 1)
    if ranks > 1:
        assert not enough(0, 3)
        assert enough(1, 4)
        plan.gpus.add(spare)
        assert not enough(1, 5), "an operator takes it for well"
        plan.handle(events.ClientGone(0))
        assert enough(1, 6), "nobody else is left"


# ---- what is told, and what is refused -----------------------------------------------------------


def test_what_was_not_audited_is_told_by_reason() -> None:
    values = {
        "audits": 3,
        "audit_entries": 600,
        "audit_bytes": 5000,
        "audit_fresh": 2,
        "unaudited_first": 200,
        "unaudited_log": 100,
    }
    found = redundancy.audit_figures(lambda name: values.get(name, 0), 1000)
    assert found["unaudited_end"] == 100
    assert redundancy.audit_sentence(found) == (
        "600 of 1000 entries audited (60 %) in 3 intervals; wrong: this rank 0 times, its auditor "
        "0 times; not covered: 200 entries (before the first snapshot), 100 entries (the log was "
        "full), 100 entries (since the last snapshot), 2 fresh blocks"
    )
    assert redundancy.audit_figures(lambda _: 0, 1000) == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spares": 0}, "add --spares 1, or --dmr-where same"),
        ({"direct": True}, "needs servers"),
        ({"protect": "none"}, "needs --protect snapshot"),
        ({"real_gpus": ("GPU-1", "GPU-2")}, "needs soft GPUs"),
        ({"movable": True}, "does not work with --movable"),
        ({"dmr": "checkpoint", "dmr_where": "other"}, "compares what one GPU does"),
        ({"dmr": "off", "dmr_where": "other"}, "add --dmr audit"),
    ],
)
def test_audits_that_cannot_work_are_refused(change: dict, says: str) -> None:
    check_protection(JOB)
    assert replays_all(JOB)
    with pytest.raises(UsageError, match=says):
        check_protection(dataclasses.replace(JOB, **change))


def test_on_its_own_gpu_an_audit_needs_no_spare() -> None:
    check_protection(dataclasses.replace(JOB, spares=0, dmr_where="same"))


def test_ranks_that_are_replaced_alone_are_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFT_REPLAY", "one")
    with pytest.raises(UsageError, match="leave PYFT_REPLAY=one away"):
        check_protection(JOB)


def test_options_reach_the_agent() -> None:
    job = dataclasses.replace(JOB, dmr_where="same")
    arguments = [*job.to_arguments()]
    at = arguments.index("--")
    again, _ = JobOptions.from_arguments([*arguments[:at], "--supervisor-fd", "3", *arguments[at:]])
    assert (again.dmr, again.dmr_where) == ("audit", "same")
