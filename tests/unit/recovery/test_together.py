"""What servers say, and what ranks that go back together are told: one row for each message."""

from __future__ import annotations

from typing import Any
from unittest.mock import create_autospec

import pytest

from pyft.recovery import events
from pyft.recovery.line import Line
from pyft.recovery.orders import Abort, Audit, Commit, MadeAs, Order, Paced, Unaudited
from pyft.recovery.rank import Rank, State
from pyft.recovery.rollback import RollbackSets
from pyft.recovery.together import Together, action_of, heard, line_of, order_of
from pyft.wire import messages as wire
from pyft.wire.layout import PAIR_COUNTERS

PAIR = PAIR_COUNTERS.pack(rank=3, sent=5, received=8)
ANSWERED = ("want_id", "came_to", "withdraw", "paced")  # all others return nothing


@pytest.mark.parametrize(
    ("said", "call", "arguments"),
    [
        (wire.WantId(7, 2, b"\xab\xcd"), "want_id", (7, 2, "abcd")),
        (wire.Made(7, 2, 4), "made", (7, 2)),
        (wire.Ended(7, 2), "ended", (7,)),
        (wire.Line(7, 2, 9, PAIR), "told", (7, Line(2, 9, {3: 5}, {3: 8}))),
        (wire.Prepared(6, True, 40), "came_to", (6, 40)),
        (wire.Prepared(6, False, 40), "came_to", (6, 0)),
        (wire.DecisionRequest(6), "withdraw", (6,)),
        (wire.Pace(12), "paced", (12,)),
        (wire.Live(), "", ()),
    ],
)
def test_each_message_has_one_meaning(
    said: wire.Message, call: str, arguments: tuple[Any, ...]
) -> None:
    sets = create_autospec(RollbackSets, instance=True)
    orders = [Commit(1, 6)]
    for name in ANSWERED:
        getattr(sets, name).return_value = orders
    got = heard(sets, events.Received(1, 2, said))
    assert got == (orders if call in ANSWERED else [])
    assert [one[0] for one in sets.method_calls] == ([call] if call else [])
    if call:
        getattr(sets, call).assert_called_once_with(1, *arguments)


def test_what_is_no_whole_pair_is_left_out() -> None:
    line = line_of(wire.Line(7, 2, 9, PAIR + PAIR[:-1]))
    assert (line.sent, line.received) == ({3: 5}, {3: 8})


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (MadeAs(1, 7, "abcd"), wire.MadeAs(7, b"\xab\xcd")),
        (Commit(1, 6), wire.Commit(6, final=True)),
        (Abort(1, 6), wire.Abort(6)),
        (Paced(1, 12), wire.PaceOfOthers(12)),
    ],
)
def test_each_order_is_one_message(order: Order, message: wire.Message) -> None:
    rank = Rank(1, 0, 0, 0, 2)
    assert order_of(order) == message
    assert action_of(rank, order) == events.Send(1, 2, message)


def test_audits_are_no_messages() -> None:
    rank = Rank(1, 0, 0, 0, 2)
    assert action_of(rank, Audit(1, 6, 40, 20)) == events.Audit(1, 2, 6, 40, 20)
    assert action_of(rank, Unaudited(1, 6)) == events.Unaudited(1, 6)


def ranks_in(*states: State) -> dict[int, Rank]:
    return {id: Rank(id, 10 + id, id, id, 2, state) for id, state in enumerate(states)}


def tied(ranks: dict[int, Rank], audits: bool = False) -> Together:
    """Return what knows that all of these have made one communicator."""
    sets = RollbackSets(audits)
    for id in ranks:
        sets.made(id, 7, id)
    return Together(sets, ranks)


def hold(together: Together, id: int, step: int) -> list[events.Action]:
    """Let a rank say that it holds a cut, at the place where all others come with this step."""
    assert together.received(events.Received(id, 2, wire.Line(7, id, step, b""))) == []
    return together.received(events.Received(id, 2, wire.Prepared(step, True, 100 + step)))


def test_without_sets_each_goes_back_alone() -> None:
    ranks = ranks_in(State.RUNNING, State.GIVEN_UP)
    alone = Together(None, ranks)
    assert alone.others(ranks[0]) == []
    assert alone.lacking(ranks[0]) == ""
    assert alone.go_back(ranks[0]) == alone.replay_serially(ranks[0]) == []
    assert alone.is_serial(ranks[0]) is False
    assert alone.received(events.Received(0, 2, wire.Made(7, 0, 2))) == []
    assert alone.audited(events.Audited(0, 2, 1)) == []
    assert alone.adopted() == []
    alone.lived(ranks[0])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.GIVEN_UP, "rank [11] has been given up, with which this one would have to replay"),
        (State.GONE, "rank [11] has ended, with which this one would have to replay"),
        (State.RUNNING, ""),
        (State.WAITING, ""),
    ],
)
def test_no_rank_repeats_collectives_with_one_that_is_gone(state: State, words: str) -> None:
    ranks = ranks_in(State.RECOVERING, state)
    assert tied(ranks).lacking(ranks[0]) == words


def test_whose_servers_are_ended_when_one_goes_back() -> None:
    ranks = ranks_in(*State)
    together = tied(ranks)
    for id in ranks:
        together.sets.came_to(id, 5, 100)
    wanted = [State.RUNNING, State.RECOVERING]
    waiting = next(rank for rank in ranks.values() if rank.state is State.WAITING)
    assert [rank.state for rank in together.go_back(waiting)] == wanted
    # Held cuts of before are forgotten, the line is not.
    together.sets.came_to(0, 6, 200)
    together.go_back(waiting)
    assert together.sets.ranks[0].prepared == 0
    assert together.sets.line(0) == 5


def test_who_has_begun_to_replay_otherwise() -> None:
    ranks = ranks_in(State.RECOVERING, State.RECOVERING, State.RECOVERING, State.RUNNING)
    ranks[0].mode = ranks[2].mode = events.Mode.SERIAL
    together = tied(ranks)
    together.sets.came_to(3, 6, 200)
    assert together.replay_serially(ranks[0]) == [ranks[1]]
    assert together.sets.ranks[3].prepared == 0, "all of the set go back"
    assert all(together.is_serial(rank) for rank in ranks.values())


def test_who_replays_alike_already_goes_on() -> None:
    ranks = ranks_in(State.RECOVERING, State.RECOVERING, State.WAITING)
    ranks[1].mode = events.Mode.SERIAL
    together = tied(ranks)
    together.sets.came_to(1, 6, 200)
    assert together.replay_serially(ranks[0]) == []
    assert together.sets.ranks[1].prepared == 6


@pytest.mark.parametrize(("other", "again"), [(State.RUNNING, False), (State.RECOVERING, True)])
def test_the_next_fault_is_another_one_when_all_work_again(other: State, again: bool) -> None:
    ranks = ranks_in(State.RUNNING, other)
    together = tied(ranks)
    together.replay_serially(ranks[0])
    together.lived(ranks[0])
    assert together.is_serial(ranks[0]) is again
    ranks[0].state = ranks[1].state = State.RECOVERING
    together.replay_serially(ranks[0])
    together.lived(ranks[1])
    assert together.is_serial(ranks[0]), "none works yet"


def test_only_servers_that_may_live_are_told() -> None:
    for state in State:
        ranks = ranks_in(State.RUNNING, state)
        together = tied(ranks)
        assert hold(together, 0, 4) == []
        told = hold(together, 1, 4)
        wanted = [0, 1] if ranks[1].has_server else [0]
        assert told == [events.Send(id, 2, wire.Commit(4, final=True)) for id in wanted]
    ranks = ranks_in(State.RUNNING, State.RUNNING)
    together = tied(ranks)
    hold(together, 0, 4)
    del ranks[0]  # the agent has never seen its client
    assert [one.id for one in hold(together, 1, 4)] == [1]


def test_a_cut_becomes_the_line_when_its_audit_has_ended_well() -> None:
    ranks = ranks_in(State.RUNNING, State.RUNNING)
    together = tied(ranks, audits=True)
    hold(together, 0, 4)
    audits = [events.Audit(id, 2, 4, 104, 0) for id in (0, 1)]
    assert hold(together, 1, 4) == audits
    assert together.audited(events.Audited(0, 2, 4)) == audits[1:]
    assert together.adopted() == audits[1:], "the agent that was told so may have died"
    commits = together.audited(events.Audited(1, 2, 4))
    assert commits == [events.Send(id, 2, wire.Commit(4, final=True)) for id in (0, 1)]
    assert together.adopted() == commits


def test_the_next_agent_tells_lines_to_servers_that_work() -> None:
    for state in State:
        ranks = ranks_in(State.RUNNING, state)
        together = tied(ranks)
        hold(together, 0, 4)
        hold(together, 1, 4)
        wanted = [0, 1] if state is State.RUNNING else [0]
        assert together.adopted() == [
            events.Send(id, 2, wire.Commit(4, final=True)) for id in wanted
        ]
    assert tied(ranks_in(State.RUNNING)).adopted() == [], "there is no line yet"
