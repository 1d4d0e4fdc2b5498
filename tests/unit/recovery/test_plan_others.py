"""What the coordinator does about other ranks when one is in trouble, and what it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_plan import device, die, killed, live, met, one, said, started, tied  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery.blame import ATTEMPTS  # noqa: E402
from pyft.recovery.classify import of_agent, of_exit  # noqa: E402
from pyft.recovery.gpus import Gpus, Word  # noqa: E402
from pyft.recovery.plan import Plan  # noqa: E402
from pyft.recovery.rank import Rank, State  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402
from pyft.wire.layout import DIVERGED_EXIT, NO_PLACE_EXIT, PROTOCOL_EXIT  # noqa: E402

SILENT = of_agent("heartbeat", "silent")


def kills(actions: list[ev.Action]) -> list[tuple[int, int]]:
    return [(one.id, one.epoch) for one in actions if isinstance(one, ev.Kill)]


def suspect(plan: Plan, id: int) -> list[ev.Action]:
    return plan.handle(ev.Suspected(id, plan.ranks[id].epoch, SILENT))


def test_what_no_rank_of_the_job_has_said_counts_for_nothing() -> None:
    plan = started()
    assert plan.handle(ev.Exited(9, 1, killed())) == []
    assert plan.handle(ev.ClientGone(9)) == []
    assert said(plan, 0, wire.Suspect(key=99, rank=1)) == []
    assert plan.handle(ev.Disputed(0, 1, 2)) == []


def test_the_first_server_of_a_rank_launches_as_it_is_told() -> None:
    plan = Plan(Gpus(1, 0))
    assert one(ev.Start, plan.handle(ev.Attached(4, 0, 0))) == ev.Start(4, 1, 0, ev.Mode.NORMAL)


def test_a_server_is_ended_once() -> None:
    plan = started()
    assert kills(suspect(plan, 0)) == [(0, 1)]
    assert suspect(plan, 0) == []


def test_why_a_server_was_ended_says_nothing_about_the_next_one() -> None:
    plan = started()
    suspect(plan, 0)
    die(plan, killed())
    live(plan)
    die(plan, killed(seq=900, cut=2))
    times = {name: one.times for name, one in plan.ranks[0].history.positions.items()}
    assert times == {"silent": 1, "server-killed": 1}


def test_a_gpu_that_is_lost_is_nothing_to_ranks_on_others() -> None:
    plan = started(devices=3, spares=1)
    assert kills(die(plan, device(999), 1)) == []
    assert [plan.ranks[id].state for id in (0, 2)] == [State.RUNNING] * 2


def test_as_many_spares_are_needed_as_devices_stand_on_a_gpu() -> None:
    plan = started(devices=3, spares=1)
    assert kills(plan.handle(ev.Drain(0))) == [(0, 1)]
    plan = Plan(Gpus(2, 0))
    plan.gpus.behind = {0: 0, 1: 0}
    for id in (0, 1):
        plan.handle(ev.Attached(id, id, id))
    assert "no spare is left" in one(ev.Refuse, plan.handle(ev.Drain(0))).text
    plan.handle(ev.AddSpare(7))
    assert kills(plan.handle(ev.Drain(0))) == [(0, 1), (1, 2)]


def test_who_has_its_place_exports_while_it_still_replays() -> None:
    plan = met(2)
    die(plan, killed(), 0)
    said(plan, 0, wire.WantExport(7, 0))
    said(plan, 1, wire.Exported(7, 0, 0, 1))
    said(plan, 0, wire.Fresh(7, 0))
    said(plan, 1, wire.Replaced(7, 0, 0, 1))
    said(plan, 0, wire.Made(7, 0))
    assert plan.ranks[0].state is State.RECOVERING
    die(plan, killed(), 1)
    sent = one(ev.Send, said(plan, 1, wire.WantExport(7, 1)))
    assert (sent.id, type(sent.message)) == (0, wire.DoExport)


def test_whose_word_about_a_gpu_counts() -> None:
    assert started().word_about(Rank(0, 0, 0, 0, 1), 0) is None
    plan = tied()  # without audits
    assert plan.word_about(plan.ranks[0], 0) is None
    plan = Plan(Gpus(3, 0), replay_all=True, audits=True)
    plan.gpus.behind[1] = 0
    for id in range(3):
        plan.handle(ev.Attached(id, id, id))
    assert plan.word_about(plan.ranks[0], 0) == Word(0, own=False, only=False), "rank 1 is on it"
    assert plan.word_about(plan.ranks[2], 2) == Word(2, own=True, only=False)
    assert not plan.is_believed(0, 0)
    assert plan.is_believed(2, 2) is True
    for id in (0, 1):
        plan.handle(ev.ClientGone(id))
    assert plan.word_about(plan.ranks[2], 0) == Word(2, own=False, only=True)


# ---- ranks that go back together -----------------------------------------------------------------


def test_a_peer_is_not_blamed_for_what_has_ended_it() -> None:
    plan = tied()
    assert kills(die(plan, killed(), 0)) == [(1, 2)]
    assert plan.ranks[1].fault
    assert plan.ranks[1].fault.evidence.startswith("rank [0] has failed")
    die(plan, killed(), 1)
    assert list(plan.ranks[1].history.positions) == ["peer-failed"]


def test_who_replays_otherwise_already_is_ended_once_more() -> None:
    plan = tied()
    assert kills(suspect(plan, 0)) == [(0, 1), (1, 2)]
    assert one(ev.Start, die(plan, killed(), 1)).mode is ev.Mode.NORMAL
    differs = of_exit(DIVERGED_EXIT << 8, 3, 0, "digits", 5, 1)
    actions = die(plan, differs, 0)
    assert one(ev.Start, actions).mode is ev.Mode.SERIAL
    assert kills(actions) == [(1, 3)]
    assert plan.ranks[1].state is State.FENCING
    assert one(ev.Start, die(plan, killed(), 1)).mode is ev.Mode.SERIAL


def test_who_waits_for_a_gpu_is_given_up_with_the_rank_it_needs() -> None:
    plan = tied()
    die(plan, device(999), 1)
    die(plan, killed(), 0)
    assert [plan.ranks[id].state for id in (0, 1)] == [State.RECOVERING, State.WAITING]
    ends = [a for a in die(plan, of_exit(PROTOCOL_EXIT << 8), 0) if isinstance(a, ev.GiveUp)]
    assert [end.id for end in ends] == [0, 1]
    assert "rank [0] has been given up" in ends[1].text


# ---- the next agent ------------------------------------------------------------------------------


def adopted(*states: State, interrupted: tuple[tuple[int, int], ...] = ()) -> list[ev.Action]:
    """Return what an agent does that has taken over ranks of one communicator in these states."""
    plan = Plan(Gpus(len(states), 0), replay_all=True)
    assert plan.rollback
    for id, state in enumerate(states):
        plan.rollback.made(id, 7, id)
        plan.adopt(Rank(id, id, id, id, 1 + id, state))
    plan.communicators.interrupted += interrupted
    return plan.adopted()


def test_the_next_agent_ends_those_that_go_back_with_one_that_is_being_ended() -> None:
    assert kills(adopted(State.FENCING, State.RUNNING, State.RECOVERING)) == [(1, 2), (2, 3)]
    for state in (State.RUNNING, State.WAITING, State.GIVEN_UP, State.GONE):
        assert kills(adopted(state, State.RUNNING)) == []


def test_who_waits_goes_on_where_it_was_if_it_can() -> None:
    plan = Plan(Gpus(1, 1))
    plan.adopt(Rank(0, 0, 0, 0, 1, State.WAITING))
    assert one(ev.Start, plan.handle(ev.AddSpare(7))).gpu == 0


def test_the_next_agent_ends_who_was_getting_its_place() -> None:
    assert kills(adopted(State.RUNNING, interrupted=((0, 1),))) == [(0, 1)]
    # It has been replaced since, or its client has ended.
    assert adopted(State.RUNNING, interrupted=((0, 5), (9, 1))) == []


def test_who_waits_gets_the_gpu_that_another_rank_has_left() -> None:
    plan = started(devices=2, spares=1)
    plan.handle(ev.Replace(1, 2))
    assert "waiting for `pyft spare" in one(ev.Wait, die(plan, device(46))).text
    starts = [(one.id, one.gpu) for one in die(plan, killed(), 1) if isinstance(one, ev.Start)]
    assert starts == [(1, 2), (0, 1)]


def test_a_rank_waits_as_long_as_another_one_of_its_set_waits_for_a_gpu() -> None:
    """Its servers give up one after the other, since they do not meet that rank."""
    plan = tied()
    no_place = of_exit(NO_PLACE_EXIT << 8)
    die(plan, device(46))
    die(plan, killed(), 1)
    for _ in range(3 * ATTEMPTS):
        assert plan.ranks[0].state is State.WAITING
        assert [one.id for one in die(plan, no_place, 1) if isinstance(one, ev.Start)] == [1]
    plan.handle(ev.AddSpare(5))
    for _ in range(ATTEMPTS):
        last = die(plan, no_place, 1)
    assert "replacements in a row have failed" in one(ev.GiveUp, last[:1]).text, "now it is a fault"


def test_one_rank_that_waits_for_a_gpu_is_enough_for_another_to_meet_nobody() -> None:
    plan = started(devices=3, replay_all=True)
    for id in range(3):
        said(plan, id, wire.Made(7, id))
    die(plan, device(46))
    for id in (1, 2):
        die(plan, killed(), id)
    assert [plan.ranks[id].state is State.WAITING for id in range(3)] == [True, False, False]
    no_place = of_exit(NO_PLACE_EXIT << 8)
    for _ in range(3 * ATTEMPTS):
        assert [one.id for one in die(plan, no_place, 1) if isinstance(one, ev.Start)] == [1]


def test_only_ranks_that_have_ended_and_are_done_with_are_forgotten() -> None:
    plan = started(devices=3)
    for id in (1, 2):
        plan.handle(ev.ClientGone(id))
    plan.tidy({2})
    assert set(plan.ranks) == {0, 2}
    plan.tidy(set())
    assert set(plan.ranks) == {0}
