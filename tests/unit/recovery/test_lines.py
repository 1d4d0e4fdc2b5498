"""Where ranks that share communicators can go back to together, one situation at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_audits import hold, sets_of  # noqa: E402
from test_rollback import cut, pair  # noqa: E402

from pyft.recovery.line import Line  # noqa: E402
from pyft.recovery.orders import (  # noqa: E402
    Abort,
    Audit,
    Commit,
    MadeAs,
    Order,
    Unaudited,
)
from pyft.recovery.rollback import FalseCut, RollbackSets  # noqa: E402


def told(sets: RollbackSets, id: int, step: int, holds: bool = True, **places: int) -> list[Order]:
    """Let a rank come to a cut, at these places of communicators `c7`, `c8`."""
    for name, collectives in places.items():
        key = int(name[1:])
        rank = next(rank for rank, one in sets.groups[key].members.items() if one == id)
        sets.told(id, key, Line(rank, collectives))
    return sets.came_to(id, step, 100 + step if holds else 0)


def twice_tied() -> RollbackSets:
    """Return two ranks that share two communicators."""
    sets = pair()
    for id in (0, 1):
        sets.made(id, 8, id)
    return sets


def test_ranks_begin_at_the_start_before_their_first_line() -> None:
    sets = pair()
    assert (sets.line(0), sets.entry(0)) == (0, 0)
    assert cut(sets, 0, 1, 10) == []
    assert (sets.line(0), sets.entry(0)) == (0, 0)
    assert not sets.is_serial(0)


def test_who_is_behind_in_one_communicator_takes_a_later_cut() -> None:
    sets = twice_tied()
    assert told(sets, 0, 1, c7=10, c8=5) == []
    assert told(sets, 1, 1, c7=12, c8=5) == [Abort(0, 1)]


def test_who_has_passed_over_an_earlier_place_may_come_to_this_one() -> None:
    sets = twice_tied()
    assert told(sets, 1, 1, holds=False, c7=8, c8=5) == []
    assert told(sets, 0, 1, c7=10, c8=5) == []
    assert told(sets, 1, 2, c7=10, c8=5) == [Commit(0, 1), Commit(1, 2)]


def test_ranks_that_share_nothing_directly_have_a_line_by_way_of_others() -> None:
    sets = pair()
    for rank, id in enumerate((1, 2)):
        sets.made(id, 8, rank)
    assert told(sets, 0, 1, c7=10) == []
    assert told(sets, 2, 1, c8=4) == []
    assert told(sets, 1, 1, c7=10, c8=4) == [Commit(id, 1) for id in (0, 1, 2)]


def test_a_communicator_that_all_have_ended_is_forgotten_at_the_line() -> None:
    sets = pair()
    for id in (0, 1):
        sets.ended(id, 7)
    sets.ended(0, 99)  # of which nobody has spoken
    assert sets.came_to(0, 1, 200) == []
    assert sets.came_to(1, 1, 200) == [Commit(0, 1), Commit(1, 1)]
    assert sets.groups == {}


def test_who_has_not_made_a_communicator_is_behind_one_that_has() -> None:
    sets = pair()
    assert told(sets, 0, 1, c7=0) == []
    assert sets.came_to(1, 1, 200) == [Abort(1, 1)]


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "has ended"])
def test_a_cut_before_a_communicator_was_made_fits_none_after_it(ends: bool) -> None:
    sets = pair()
    assert told(sets, 0, 1, c7=10) == []
    for id in (0, 1):
        sets.made(id, 8, id)
    if ends:
        sets.ended(1, 8)
        assert told(sets, 1, 1, c7=10) == [Abort(0, 1)]
    else:
        assert told(sets, 1, 1, c7=10, c8=0) == [Abort(0, 1)]


def test_cuts_before_a_communicator_was_made_fit_each_other() -> None:
    sets = pair()
    assert told(sets, 0, 1, c7=10) == []
    sets.want_id(0, 8, 0, "")
    assert told(sets, 1, 1, c7=10) == [Commit(0, 1), Commit(1, 1)]


def test_who_has_come_to_no_cut_says_nothing_about_a_new_communicator() -> None:
    sets = sets_of(0, 1)
    assert hold(sets, 0, 2, 20) == []
    sets.made(0, 8, 0)
    sets.made(1, 8, 1)
    assert sets.audit_ended(0, 2) == []


@pytest.mark.parametrize("again", ["made", "wanted"])
def test_who_makes_a_communicator_again_has_not_ended_it(again: str) -> None:
    sets = pair()
    for id in (0, 1):
        sets.ended(id, 7)
    if again == "made":
        sets.made(0, 7, 0)
    else:
        sets.want_id(0, 7, 0, "")
    assert sets.came_to(0, 1, 200) == []
    assert sets.came_to(1, 1, 200) == [Abort(0, 1)], "it may need the other one for that"


def test_who_goes_back_has_not_ended_what_it_ended_since() -> None:
    sets = pair()
    sets.ended(0, 7)
    sets.go_back({0, 1})
    assert sets.came_to(0, 1, 200) == []
    assert sets.came_to(1, 1, 200) == [Commit(0, 1), Commit(1, 1)], "neither has made it yet"


@pytest.mark.parametrize("entry", [1, 9])
def test_what_was_told_of_a_cut_before_the_line_is_forgotten(entry: int) -> None:
    sets = sets_of(0, 1)
    sets.told(0, 9, Line(0, 77))
    with pytest.raises(FalseCut):
        sets.came_to(0, 2, entry)
    assert sets.ranks[0].coming == {}


# ---- ids of communicators ------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, 1])
def test_any_rank_may_be_the_first_that_asks(id: int) -> None:
    sets = RollbackSets()
    assert sets.want_id(id, 7, id, "") == [MadeAs(id, 7, "")]
    assert sets.want_id(id, 7, id, "") == [MadeAs(id, 7, "")], "its next server asks again"
    assert sets.want_id(1 - id, 7, 1 - id, "bb") == [], "it was not asked for one"
    assert sets.want_id(id, 7, id, "aa") == [MadeAs(1 - id, 7, "aa")]


def test_ids_of_those_that_do_not_go_back_stay() -> None:
    sets = RollbackSets()
    for id in (0, 2):
        sets.want_id(id, 7 + id, 0, "")
        sets.want_id(id, 7 + id, 0, "aa")
    sets.go_back({0})
    assert sets.want_id(3, 9, 1, "") == [MadeAs(3, 9, "aa")]
    assert sets.want_id(1, 7, 1, "") == [MadeAs(1, 7, "")]


def test_only_those_that_have_ended_are_forgotten() -> None:
    sets = pair()
    for id in (2, 3):
        sets.made(id, 8, id)
    for id in range(4):
        sets.told(id, 7 + id // 2, Line(id, 1))
    sets.forget({0, 1})
    assert sets.groups.keys() == {8}
    assert sets.ranks.keys() == {2, 3}


# ---- how they replay -----------------------------------------------------------------------------


def test_who_joins_a_set_replays_as_the_others() -> None:
    sets = pair()
    sets.lived(0)
    assert not sets.is_serial(0)
    sets.replay_serially(0)
    sets.made(2, 7, 2)
    assert cut(sets, 2, 1, 10) == []
    assert sets.is_serial(2)
    sets.lived(2)
    assert not sets.is_serial(0)


# ---- audits --------------------------------------------------------------------------------------


def first_cuts() -> RollbackSets:
    """Return two ranks that hold the first cut of all, which is not audited yet."""
    sets = RollbackSets(audits=True)
    for id in (0, 1):
        sets.made(id, 9, id)
    assert hold(sets, 0, 1, 10) == []
    assert hold(sets, 1, 1, 11) == [Audit(0, 1, 10, 0), Audit(1, 1, 11, 0)]
    return sets


def test_the_first_cut_is_audited_as_any_other() -> None:
    sets = first_cuts()
    assert sets.audit_ended(0, 1) == [Audit(1, 1, 11, 0)]
    assert sets.audit_ended(1, 1) == [Commit(0, 1), Commit(1, 1)]


def test_the_first_cut_is_disputed_by_nobody_before_an_audit_has_found_something() -> None:
    late = [Unaudited(0, 1), Unaudited(1, 1)]
    assert first_cuts().withdraw(0, 1) == [*late, Commit(0, 1), Commit(1, 1)]


def test_what_is_said_of_another_cut_is_no_dispute_about_this_one() -> None:
    sets = sets_of(0, 1)
    hold(sets, 0, 2, 20)
    hold(sets, 1, 2, 21)
    sets.dispute(1, 3)  # to which it has not come
    sets.dispute(9, 2)  # of a rank that nobody knows
    assert sets.audit_ended(9, 2) == []
    for id in (0, 1):
        sets.audit_ended(id, 2)
    hold(sets, 0, 3, 30)
    hold(sets, 1, 3, 31)
    assert Commit(0, 3) in sets.withdraw(0, 3)
