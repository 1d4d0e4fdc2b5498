"""What servers say, and what ranks that go back together are told: one row for each message."""

from __future__ import annotations

from typing import Any
from unittest.mock import create_autospec

import pytest

from pyft.recovery import events
from pyft.recovery.line import Line
from pyft.recovery.orders import Abort, Audit, Commit, MadeAs, Order, Paced, Unaudited
from pyft.recovery.rank import Rank
from pyft.recovery.rollback import RollbackSets
from pyft.recovery.together import action_of, heard, line_of, order_of
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
