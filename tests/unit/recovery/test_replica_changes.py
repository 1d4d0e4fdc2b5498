"""What ranks have in common changes, and what the next agent knows of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_replicas import BAD, GOOD, OWN, SAME, cuts, table  # noqa: E402

from pyft.recovery.case import UNSETTLED, Contents  # noqa: E402
from pyft.recovery.replicas import (  # noqa: E402
    RECENT,
    STREAK,
    UNDECIDED,
    Agreed,
    ComparedRank,
    Disagree,
    Judged,
    Replicas,
)


def disputed() -> Replicas:
    """Return two ranks that disagree about cut 3, and have not replayed."""
    replicas = Replicas()
    cuts(replicas, 2, STREAK)
    replicas.staged(0, 3, table(0, 3, BAD))
    assert replicas.staged(1, 3, table(1, 3)) == [Disagree(3, SAME, (0, 1))]
    return replicas


def next_agent(replicas: Replicas) -> Replicas:
    after = Replicas()
    after.restore(json.loads(json.dumps(replicas.note())))
    return after


def test_a_new_plan_is_due_when_something_has_changed() -> None:
    replicas = Replicas()
    cuts(replicas, 2, STREAK - 1)
    assert replicas.version == 0
    cuts(replicas, 2, STREAK)
    found = replicas.version
    assert found > 0
    cuts(replicas, 2, STREAK + 3)
    assert replicas.version == found, "they still have the same"
    replicas.gone(1)
    assert replicas.version > found
    assert replicas.common() == []
    assert replicas.partners(0) == []


def test_a_new_plan_is_due_when_the_program_makes_them_differ() -> None:
    replicas = disputed()
    before = replicas.version
    for rank in (0, 1):
        replicas.restarted(rank)
        replicas.staged(rank, 3, table(rank, 3, bytes([rank])))
    assert replicas.own == {SAME}
    assert replicas.version > before
    assert replicas.common() == []


def test_what_differs_again_after_it_was_decided_is_the_programs() -> None:
    replicas = disputed()
    replicas.restarted(0)
    replicas.restarted(1)
    replicas.staged(0, 3, table(0, 3, BAD))
    before = replicas.version
    found = replicas.staged(1, 3, table(1, 3, b"other"))
    assert found == [Judged(3, SAME, (1,), (0, 1)), Agreed(0, 3), Agreed(1, 3)]
    assert replicas.own == {SAME}
    assert replicas.version > before


def test_partners_with_more_bytes_come_first() -> None:
    replicas = Replicas()
    large, small = (0, 4096), (8192, 1024)
    for cut in range(1, STREAK + 1):
        for rank, keys in ((0, (large, small)), (1, (small,)), (2, (large, small)), (3, (small,))):
            replicas.staged(rank, cut, {key: GOOD for key in keys})
    assert replicas.partners(0) == [2, 1, 3]
    assert replicas.partners(9) == [], "nobody has heard of that one"


def test_the_next_agent_has_the_same_case_decided() -> None:
    replicas = disputed()
    assert replicas.unheeded() == (0, 1)
    replicas.restarted(0)
    assert replicas.unheeded() == (1,)
    after = next_agent(replicas)
    assert after.unheeded() == (1,)
    assert (after.arbitrates(0), after.arbitrates(1)) == (3, 3)
    assert after.restarted(1) == []
    assert after.staged(0, 3, table(0, 3)) == []
    judged = Judged(3, SAME, (0,), (0, 1))
    assert after.staged(1, 3, table(1, 3)) == [judged, Agreed(1, 3), Agreed(0, 3)]


def test_the_next_agent_has_no_suspect_agreed_before_it_has_replayed() -> None:
    after = next_agent(disputed())
    assert after.staged(0, 3, table(0, 3, BAD)) == [], "of the server before"
    assert after.staged(0, 4, None) == []


def test_the_next_agent_knows_what_was_found() -> None:
    replicas = disputed()
    for rank in (0, 1):
        replicas.restarted(rank)
    for rank in (0, 1):
        replicas.staged(rank, 3, None)
    assert replicas.undecided == 1
    replicas.own = {OWN}
    after = next_agent(replicas)
    assert (after.own, after.judged, after.undecided) == ({OWN}, {3}, 1)
    assert after.case is None


def test_what_was_decided_in_time_does_not_count_as_undecided() -> None:
    replicas = disputed()
    for rank in (0, 1):
        replicas.restarted(rank)
        replicas.staged(rank, 3, table(rank, 3))
    assert replicas.undecided == 0 < UNDECIDED
    assert SAME not in replicas.own


# ---- what is compared ----------------------------------------------------------------------------


def first_to_come(replicas: Replicas, rank: int, cuts: tuple[bytes, ...]) -> None:
    """Let the messages of one rank be read before those of others: it waits for nobody."""
    for cut, same in enumerate(cuts, start=1):
        assert replicas.staged(rank, cut, table(rank, cut, same)) == [Agreed(rank, cut)]


def test_all_that_have_the_same_are_one_set() -> None:
    replicas = Replicas()
    for cut in range(1, STREAK + 1):
        for rank, same in enumerate((GOOD, GOOD, BAD, BAD, GOOD)):
            replicas.staged(rank, cut, table(rank, cut, same))
    assert replicas.common() == [(SAME, {0, 1, 4}), (SAME, {2, 3})]


def test_a_rank_may_be_four_cuts_ahead_when_another_one_is_read() -> None:
    for ahead, common in ((4, [(SAME, {0, 1})]), (5, [])):
        replicas = Replicas()
        first_to_come(replicas, 0, (GOOD,) * ahead)
        first_to_come(replicas, 1, (GOOD, GOOD))
        assert replicas.common() == common, ahead


def test_a_block_that_one_has_freed_is_not_compared() -> None:
    for freed in (0, 1):
        replicas = Replicas()
        cuts(replicas, 2, STREAK)
        tables = {rank: table(rank, 3, bytes([rank])) for rank in (0, 1)}
        del tables[freed][SAME]
        assert replicas.staged(0, 3, tables[0]) == []
        assert replicas.staged(1, 3, tables[1]) == [Agreed(0, 3), Agreed(1, 3)]


def test_a_cut_that_was_agreed_is_not_compared_once_more() -> None:
    """Its server has died before it heard of that; the snapshots of others go with it."""
    replicas = Replicas()
    cuts(replicas, 2, STREAK)
    assert replicas.restarted(1) == []
    assert replicas.staged(1, STREAK, table(1, STREAK, BAD)) == [Agreed(1, STREAK)]


def test_who_had_its_cut_agreed_before_cannot_replay_it() -> None:
    replicas = Replicas()
    first_to_come(replicas, 0, (GOOD, GOOD, BAD))
    first_to_come(replicas, 1, (GOOD, GOOD))
    assert replicas.staged(1, 3, table(1, 3)) == [Disagree(3, SAME, (1,))]
    assert (replicas.arbitrates(0), replicas.arbitrates(1)) == (0, 3)
    assert replicas.unheeded() == (1,)
    replicas.restarted(1)
    judged = Judged(3, SAME, (), (0, 1), told=False)
    assert replicas.staged(1, 3, table(1, 3)) == [judged, Agreed(1, 3)]


def test_where_no_suspect_can_replay_it_cannot_be_told() -> None:
    replicas = Replicas()
    first_to_come(replicas, 0, (GOOD, GOOD, BAD))
    first_to_come(replicas, 1, (GOOD, GOOD))
    first_to_come(replicas, 2, (GOOD, GOOD))
    assert replicas.staged(1, 3, table(1, 3)) == [], "rank 2 has not come there"
    found = replicas.staged(2, 3, table(2, 3))
    assert Judged(3, SAME, (), (0,), told=False) in found
    assert {one.id for one in found if isinstance(one, Agreed)} <= {1, 2}


# ---- what is kept --------------------------------------------------------------------------------


def test_of_a_new_rank_nothing_is_known() -> None:
    assert ComparedRank() == ComparedRank(cut=0, recent={}, passed=0, prepared=0)
    assert ComparedRank().prepared_contents == Contents({}, 0, {})


def test_without_an_entry_a_block_holds_what_it_always_did() -> None:
    replicas = Replicas()
    replicas.staged(0, 1, table(0, 1))
    assert replicas.ranks[0].at(1) == Contents(table(0, 1), entry=0, since={})


def test_nobody_decides_before_ranks_disagree() -> None:
    replicas = Replicas()
    cuts(replicas, 2, STREAK)
    assert (replicas.arbitrates(0), replicas.unheeded()) == (0, ())


def test_of_a_rank_that_has_ended_nothing_is_kept() -> None:
    replicas = Replicas()
    cuts(replicas, 2, STREAK)
    replicas.gone(1)
    (rank,) = replicas.ranks.values()
    assert rank.compared == rank.equal == rank.replicas == {}


def test_a_few_cuts_are_remembered() -> None:
    replicas = Replicas()
    cuts(replicas, 2, 3 * RECENT)
    assert list(replicas.ranks[0].recent) == list(range(2 * RECENT + 1, 3 * RECENT + 1))


def test_what_is_not_settled_is_shared_and_no_difference_in_it_counts() -> None:
    replicas, new = Replicas(), {SAME: UNSETTLED}
    for cut in range(1, STREAK + 1):
        for rank in (0, 1):
            replicas.staged(rank, cut, table(rank, cut), 10 * cut, new)
    assert replicas.common() == [(SAME, {0, 1})]
    replicas.staged(0, 3, table(0, 3, BAD), 30, new)
    assert replicas.staged(1, 3, table(1, 3), 30, new) == [Agreed(0, 3), Agreed(1, 3)]
    for rank in (0, 1):  # now it is: what it held before says nothing
        replicas.staged(rank, 4, table(rank, 4), 40, {SAME: 40})
    for cut in (5, 6):
        for rank in (0, 1):
            replicas.staged(rank, cut, table(rank, cut), 10 * cut, {SAME: 40})
    replicas.staged(0, 7, table(0, 7, BAD), 70, {SAME: 40})
    assert replicas.staged(1, 7, table(1, 7), 70, {SAME: 40}) == [Disagree(7, SAME, (0, 1))]
