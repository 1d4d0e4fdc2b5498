"""Ranks that go back together: every order of events, and single situations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402
from model_together import TogetherWorld  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery.gpus import Gpus  # noqa: E402
from pyft.recovery.plan import Plan  # noqa: E402
from pyft.recovery.rank import Rank, State  # noqa: E402
from pyft.recovery.rollback import (  # noqa: E402
    Abort,
    Commit,
    Line,
    MadeAs,
    Paced,
    RollbackSets,
)
from pyft.recovery.together import Together, heard  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402
from pyft.wire.layout import PAIR_COUNTERS  # noqa: E402


@pytest.mark.parametrize(
    ("ranks", "cuts", "spares", "faults", "kinds", "agents"),
    [
        (2, 0, 1, 2, ("kill", "lost"), 1),
        (2, 1, 0, 2, ("kill",), 1),
        (2, 3, 0, 1, ("kill",), 1),
        (2, 1, 0, 1, ("mute", "kill"), 1),
        (3, 0, 0, 1, ("kill",), 1),
        (2, 1, 0, 1, ("kill",), 2),
        (2, 0, 0, 2, ("stays", "lost"), 1),
        (2, 0, 0, 2, ("stays", "kill"), 1),
    ],
)
def test_all_orders(
    ranks: int, cuts: int, spares: int, faults: int, kinds: tuple[str, ...], agents: int
) -> None:
    world = TogetherWorld(ranks, cuts, spares, faults, kinds, agents)
    assert model.explore(world, limit=400_000) > 100


def test_the_model_finds_a_line_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(self: RollbackSets, id: int) -> list[object]:
        return [self._commit(id)] if self.ranks[id].prepared else []

    monkeypatch.setattr(RollbackSets, "_judge", alone)
    with pytest.raises(AssertionError, match="different lines"):
        model.explore(TogetherWorld(2, 1, 0, 1, ("kill",)), limit=10_000)


def test_the_model_finds_a_rank_that_was_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "_end_peers", lambda self, rank: [])
    with pytest.raises(AssertionError):
        model.explore(TogetherWorld(2, 0, 0, 1, ("kill",)), limit=10_000)


@pytest.mark.parametrize("left", ["RECOVERING", "WAITING"])
def test_the_model_finds_one_that_waits_for_a_rank_given_up(
    monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    def others(self: Together, rank: Rank) -> list[Rank]:
        found = original(self, rank)
        return [one for one in found if rank.state is not State.GIVEN_UP or one.state.name != left]

    original = Together.others
    monkeypatch.setattr(Together, "others", others)
    with pytest.raises(AssertionError):
        model.explore(TogetherWorld(2, 0, 0, 2, ("stays", "lost")), limit=10_000)


def pair() -> RollbackSets:
    sets = RollbackSets()
    for id in (0, 1):
        sets.made(id, 7, id)
    return sets


def cut(sets: RollbackSets, id: int, step: int, collectives: int, prepared: bool = True) -> list:
    sets.told(id, 7, Line(id, collectives))
    return sets.came_to(id, step, 100 + step if prepared else 0)


def test_a_line_is_where_all_have_come_equally_far() -> None:
    sets = pair()
    assert cut(sets, 0, 5, 10) == []
    assert cut(sets, 1, 3, 10) == [Commit(0, 5), Commit(1, 3)], "steps are a rank's own"
    assert (sets.line(0), sets.line(1)) == (5, 3)
    assert (sets.entry(0), sets.entry(1)) == (105, 103)


def test_who_is_behind_takes_a_later_cut() -> None:
    sets = pair()
    assert cut(sets, 0, 1, 10) == []
    assert cut(sets, 1, 1, 12) == [Abort(0, 1)]
    assert cut(sets, 0, 2, 12) == [Commit(0, 2), Commit(1, 1)]


def test_a_cut_that_another_rank_has_passed_over_is_dropped() -> None:
    sets = pair()
    assert cut(sets, 1, 2, 10, prepared=False) == []
    assert cut(sets, 0, 2, 10) == [Abort(0, 2)]
    assert cut(sets, 0, 3, 20) == []
    assert cut(sets, 1, 3, 20, prepared=False) == [Abort(0, 3)]


def test_after_a_line_there_may_be_another_one_at_the_same_place() -> None:
    """A cut for want of room, then that of the optimizer's step, which calls no other rank."""
    sets = pair()
    assert cut(sets, 0, 1, 10) == []
    assert cut(sets, 1, 1, 10) == [Commit(0, 1), Commit(1, 1)]
    assert cut(sets, 0, 2, 10) == [], "the other one may come there as well"
    assert cut(sets, 1, 2, 10) == [Commit(0, 2), Commit(1, 2)]
    assert cut(sets, 0, 3, 10) == []
    assert cut(sets, 1, 3, 20) == [Abort(0, 3)], "now it has not"


def test_a_cut_that_cannot_wait_is_a_line_already_or_never() -> None:
    sets = pair()
    assert cut(sets, 0, 5, 10) == []
    assert sets.withdraw(0, 5) == [Abort(0, 5)]
    assert cut(sets, 1, 3, 10) == [], "the other one may hold another cut of this place"
    assert cut(sets, 0, 6, 20) == [Abort(1, 3)], "it has none"
    assert cut(sets, 1, 4, 20) == [Commit(0, 6), Commit(1, 4)]
    assert sets.withdraw(0, 6) == [Commit(0, 6)], "it was decided meanwhile"
    assert cut(sets, 1, 7, 30) == []
    assert cut(sets, 0, 8, 30, prepared=False) == [Abort(1, 7)]


def test_the_others_hear_how_many_cuts_fit() -> None:
    sets = pair()
    sets.made(2, 7, 2)
    assert sets.paced(1, 4) == [Paced(0, 4), Paced(2, 4)]
    assert sets.paced(9, 4) == []


def test_a_message_that_only_one_side_has_had_is_in_no_line() -> None:
    sets = pair()
    sets.told(0, 7, Line(0, 4, sent={1: 3}))
    sets.came_to(0, 1, 200)
    sets.told(1, 7, Line(1, 4, received={0: 2}))
    assert sets.came_to(1, 1, 200) == [Abort(1, 1)]


def test_a_communicator_that_one_has_ended_may_be_needed_again() -> None:
    sets = pair()
    sets.ended(0, 7)
    assert sets.of(1) == {0, 1}
    assert sets.came_to(0, 1, 200) == []
    assert cut(sets, 1, 1, 10) == [Abort(1, 1)]
    sets.ended(1, 7)
    assert sets.came_to(1, 2, 200) == [Commit(0, 1), Commit(1, 2)]
    assert sets.of(1) == {1}


def test_a_server_says_which_communicators_its_rank_has_ended() -> None:
    sets = pair()
    for id in (0, 1):
        assert heard(sets, ev.Received(id, 1, wire.Ended(7))) == []
    assert sets.groups[7].ended == {0, 1}


def test_a_server_says_what_each_communicator_has_done_up_to_a_cut() -> None:
    sets = pair()
    pairs = PAIR_COUNTERS.pack(1, 3, 2) + b"no whole pair"
    assert heard(sets, ev.Received(0, 1, wire.Line(7, 0, 4, pairs))) == []
    assert sets.ranks[0].coming == {7: Line(0, 4, {1: 3}, {1: 2})}


def test_a_server_says_that_it_holds_a_cut_or_not() -> None:
    sets = pair()
    assert heard(sets, ev.Received(0, 1, wire.Prepared(5, False, 10))) == []
    assert (sets.ranks[0].prepared, sets.ranks[0].prepared_entry) == (0, 0)
    assert heard(sets, ev.Received(0, 1, wire.Prepared(6, True, 20))) == []
    assert (sets.ranks[0].prepared, sets.ranks[0].prepared_entry) == (6, 20)


def test_sets_grow_by_way_of_others() -> None:
    sets = pair()
    for rank, id in enumerate((1, 2)):
        sets.made(id, 8, rank)
    sets.made(3, 9, 0)
    assert sets.of(0) == {0, 1, 2}
    assert sets.of(3) == {3}


def test_the_first_that_asks_makes_the_id() -> None:
    sets = RollbackSets()
    assert sets.want_id(1, 7, 1, "") == [MadeAs(1, 7, "")]
    assert sets.want_id(0, 7, 0, "") == []
    assert sets.want_id(1, 7, 1, "aa") == [MadeAs(0, 7, "aa")]
    assert sets.want_id(2, 7, 2, "") == [MadeAs(2, 7, "aa")]
    sets.go_back({0, 1, 2})
    assert sets.want_id(0, 7, 0, "") == [MadeAs(0, 7, "")], "nobody is there who made it"


def test_the_next_agent_knows_all_of_it() -> None:
    sets = pair()
    sets.told(0, 7, Line(0, 4, {1: 3}, {1: 2}))
    sets.came_to(0, 1, 200)
    sets.told(1, 7, Line(1, 5))
    sets.want_id(1, 8, 0, "")
    again = RollbackSets()
    again.restore(json.loads(json.dumps(sets.note())))
    assert (again.groups, again.ranks) == (sets.groups, sets.ranks)


def test_the_next_agent_tells_each_server_its_line_once_more() -> None:
    """The one before has decided it, and written that down, but has told nobody."""
    world = TogetherWorld(2, 1, 0, 0, (), agents=2)
    for id in (0, 1):
        world.do(("cut", id))
    for server in world.servers.values():
        while server.outbox:
            world.plan.handle(server.outbox.pop(0))
    assert [world.plan.rollback.line(id) for id in (0, 1)] == [1, 1]
    assert [store.point for store in world.stores.values()] == [0, 0]
    world.next_agent()
    for server in world.servers.values():
        assert server.inbox == [wire.Commit(1, final=True)]
        world.work(server)
    assert [store.point for store in world.stores.values()] == [1, 1]


def test_who_has_no_server_that_works_is_not_told_of_its_line() -> None:
    """A server that is being ended or replaced begins at the line."""
    plan = Plan(Gpus(2, 0), replay_all=True)
    assert plan.rollback
    for id in (0, 1):
        plan.rollback.made(id, 7, id)
    cut(plan.rollback, 0, 4, 10)
    assert cut(plan.rollback, 1, 4, 10) == [Commit(0, 4), Commit(1, 4)]
    for id, state in ((0, State.FENCING), (1, State.RUNNING)):
        plan.adopt(Rank(id, id, id, id, 1 + id, state, ev.Mode.NORMAL))
    assert plan.together.adopted() == [ev.Send(1, 2, wire.Commit(4, final=True))]


def test_nobody_waits_for_a_rank_that_is_given_up() -> None:
    world = TogetherWorld(2, 0, 0, 0, ())
    plan = world.plan
    unfit = model.Fault(model.row_of("exit", 72), "broken")
    actions = plan.handle(ev.Exited(0, plan.ranks[0].epoch, unfit))
    assert {type(action) for action in actions} == {ev.Kill, ev.Timer, ev.GiveUp}
    actions = plan.handle(ev.Exited(1, plan.ranks[1].epoch, model.KILLED))
    (gives_up,) = [action for action in actions if isinstance(action, ev.GiveUp)]
    assert "rank [0] has been given up" in gives_up.text
