"""Who is told that a rank has left, and when."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402
from model_leaving import LeavingWorld  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery import facts  # noqa: E402
from pyft.recovery.classify import of_agent, of_exit  # noqa: E402
from pyft.recovery.departures import LEFT_KEPT, Departures, Told  # noqa: E402
from pyft.recovery.gpus import Gpus  # noqa: E402
from pyft.recovery.plan import Plan  # noqa: E402
from pyft.recovery.rank import Rank, State  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402

KEY = 7
KILLED = of_exit(9)


def started(ranks: int, **options: bool) -> Plan:
    plan = Plan(Gpus(ranks, 0), **options)
    for id in range(ranks):
        plan.handle(ev.Attached(id, id, id))
    return plan


def say(plan: Plan, id: int, kind: type[wire.Message], rank: int = -1) -> list[tuple[int, int]]:
    """Let a server say something; return who is told that which rank has left."""
    rank = id if rank < 0 else rank
    said = kind(KEY) if kind is wire.Minted else kind(KEY, rank)
    return told(plan.handle(ev.Received(id, plan.ranks[id].epoch, said)))


def told(actions: list[ev.Action]) -> list[tuple[int, int]]:
    sent = [(a.id, a.message) for a in actions if isinstance(a, ev.Send)]
    left = [(id, message) for id, message in sent if isinstance(message, wire.Left)]
    assert all(message.key == KEY for _, message in left)
    return [(id, message.rank) for id, message in left]


def leave(plan: Plan, id: int) -> list[tuple[int, int]]:
    assert told(plan.handle(ev.ClientGone(id))) == [], "its server may still send something"
    return told(plan.handle(ev.Left(id)))


def made(ranks: int, **options: bool) -> Plan:
    plan = started(ranks, **options)
    for id in range(ranks):
        say(plan, id, wire.Made)
    return plan


def next_agent(plan: Plan) -> tuple[Plan, list[ev.Action]]:
    again = Plan(Gpus(1, 0))
    facts.restore(again, json.loads(json.dumps(facts.of_plan(plan))))
    for rank in plan.ranks.values():
        if rank.state is not State.GONE:
            again.adopt(Rank(rank.id, rank.rank, rank.device, rank.gpu, rank.epoch))
    return again, again.adopted()


def test_the_other_members_are_told_when_its_server_has_ended() -> None:
    for options in ({}, {"replay_all": True}):
        plan = made(3, **options)
        assert leave(plan, 1) == [(0, 1), (2, 1)]
        assert leave(plan, 2) == [(0, 2)]
        assert leave(plan, 0) == []


def test_a_rank_of_another_communicator_is_not() -> None:
    plan = started(3)
    for id in (0, 1):
        say(plan, id, wire.Made)
    assert leave(plan, 2) == []


def test_a_dead_server_is_no_departure_until_it_is_given_up() -> None:
    plan = made(2)
    actions = plan.handle(ev.Exited(1, plan.ranks[1].epoch, KILLED))
    assert told(actions) == []
    for _ in range(20):
        actions = plan.handle(ev.Exited(1, plan.ranks[1].epoch, KILLED))
        if plan.ranks[1].state is State.GIVEN_UP:
            break
    assert told(actions) == [(0, 1)]


def test_a_server_that_is_replaced_hears_it_when_it_has_its_place() -> None:
    plan = made(3)
    fault = of_agent("heartbeat", "silent")
    plan.handle(ev.Suspected(0, plan.ranks[0].epoch, fault))
    assert leave(plan, 1) == [(2, 1)], "rank 0 is being ended"
    plan.handle(ev.Exited(0, plan.ranks[0].epoch, KILLED))
    assert say(plan, 0, wire.Made) == [(0, 1)]


def test_one_that_has_ended_its_communicator_leaves_it_all_the_same() -> None:
    plan = made(2)
    assert say(plan, 1, wire.Ended) == []
    assert leave(plan, 1) == [(0, 1)]


def test_one_whose_communicator_has_failed_takes_no_part_any_more() -> None:
    plan = made(3)
    assert say(plan, 1, wire.Broken) == [(0, 1), (2, 1)]


def test_a_server_that_takes_a_place_hears_whose_communicator_has_failed() -> None:
    plan = made(3)
    say(plan, 1, wire.Broken)
    plan.handle(ev.Exited(2, plan.ranks[2].epoch, KILLED))
    assert say(plan, 2, wire.Made) == [(2, 1)]


def test_one_that_has_ended_its_communicator_waits_for_nobody_there() -> None:
    plan = made(3)
    assert say(plan, 0, wire.Ended) == []
    assert leave(plan, 1) == [(2, 1)]


def test_what_a_server_says_of_its_cuts_is_about_no_departure() -> None:
    plan = made(2)
    assert plan.handle(ev.Received(0, plan.ranks[0].epoch, wire.DecisionRequest(3))) == []


def test_as_long_as_one_rank_lives_it_can_hear_who_has_left() -> None:
    """However many clients have come and gone since."""
    departures = Departures()
    for id in (0, 1):
        departures.heard(ev.Received(id, 1, wire.Made(KEY, id)))
    departures.leave(1)
    for id in range(2, 2 * LEFT_KEPT):
        departures.heard(ev.Received(id, 1, wire.Made(1000 + id, 0)))
        departures.leave(id)
        departures.tidy({0})
    assert departures.heard(ev.Received(0, 2, wire.Made(KEY, 0))) == [(0, KEY, 1)]


def test_who_makes_it_is_told_when_nobody_is_left_who_has_it() -> None:
    plan = started(3)
    for id in (0, 1, 2):
        assert say(plan, id, wire.Making) == []
    say(plan, 1, wire.Made)
    say(plan, 2, wire.Made)
    assert leave(plan, 1) == [(2, 1)], "rank 0 gets its place from rank 2"
    assert leave(plan, 2) == [(0, 1), (0, 2)]


def test_a_meeting_whose_maker_has_left() -> None:
    plan = started(2)
    assert say(plan, 1, wire.Minted) == []
    assert leave(plan, 1) == []
    assert say(plan, 0, wire.Making) == [(0, wire.MINTER)]


def test_a_stale_id_is_of_no_use_to_the_next_attempt() -> None:
    """All processes have ended, and new ones come with the id of before."""
    plan = made(2)
    leave(plan, 0)
    leave(plan, 1)
    plan.tidy(())
    assert plan.ranks == {}
    plan.handle(ev.Attached(2, 1, 1))
    assert say(plan, 2, wire.Making, 1) == [(2, 0), (2, 1)]


def test_the_next_agent_knows_it() -> None:
    plan = made(3)
    leave(plan, 1)
    again, actions = next_agent(plan)
    assert told(actions) == [(0, 1), (2, 1)], "the one before may have died before it said so"
    assert leave(again, 2) == [(0, 2)]
    plan = made(2)
    plan.handle(ev.ClientGone(1))
    again, actions = next_agent(plan)  # its server has ended meanwhile
    assert told(actions) == []
    assert told(again.handle(ev.Left(1))) == [(0, 1)]


def test_the_next_agent_knows_that_nobody_is_left_who_has_it() -> None:
    plan = started(3)
    say(plan, 0, wire.Making)
    for id in (1, 2):
        say(plan, id, wire.Made)
    leave(plan, 1)
    again, _ = next_agent(plan)
    assert leave(again, 2) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(("leavers", "ranks", "faults"), [(1, 2, 2), (1, 3, 1), (2, 3, 1)])
def test_all_orders(leavers: int, ranks: int, faults: int) -> None:
    world = LeavingWorld(leavers, ranks, 0, faults, ("kill",))
    assert model.explore(world, limit=200_000) > 100


def test_the_model_finds_a_replacement_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_when_it_leaves(self: Departures, event: ev.Received) -> list[Told]:
        heard(self, event)
        return []

    heard = Departures.heard
    monkeypatch.setattr(Departures, "heard", only_when_it_leaves)
    with pytest.raises(AssertionError):
        model.explore(LeavingWorld(1, 2, 0, 1, ("kill",)), limit=10_000)


def test_what_only_those_knew_that_have_left_is_bounded() -> None:
    plan = Plan(Gpus(1, 0))
    for id in range(3 * LEFT_KEPT):
        plan.handle(ev.Attached(id, 0, 0))
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(1000 + id, 0)))
        leave(plan, id)
        plan.tidy(())
    assert len(plan.departures.groups) == len(plan.departures.left) == LEFT_KEPT
    assert plan.communicators.groups == plan.ranks == {}
    plan.handle(ev.Attached(id + 1, 1, 0))
    late = wire.Making(1000 + id, 1)
    actions = plan.handle(ev.Received(id + 1, plan.ranks[id + 1].epoch, late))
    assert [a.message.rank for a in actions if isinstance(a, ev.Send)] == [0], "it does not wait"


def test_a_rank_counts_as_long_as_others_go_back_with_it() -> None:
    plan = made(2, replay_all=True)
    leave(plan, 1)
    plan.tidy({0})
    assert plan.ranks.keys() == {0, 1}
    again = Plan(Gpus(1, 0), replay_all=True)
    facts.restore(again, json.loads(json.dumps(facts.of_plan(plan))))
    again.adopt(Rank(0, 0, 0, 0, plan.ranks[0].epoch))
    for one in (again, plan):
        actions = one.handle(ev.Exited(0, one.ranks[0].epoch, KILLED))
        (given_up,) = [action for action in actions if isinstance(action, ev.GiveUp)]
        assert given_up.text == ("rank [1] has ended, with which this one would have to replay")
        leave(one, 0)
        one.tidy(())
        assert one.rollback
        assert one.ranks == one.rollback.groups == one.rollback.ranks == {}
