"""Snapshots that ranks share: every order of events, and single situations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402
from model_jit import JitWorld  # noqa: E402
from model_shares import SharesWorld  # noqa: E402

from pyft.recovery.shares import Abort, Commit, Decision, Shares  # noqa: E402

A, B, SMALL = (0, 1 << 20), (1 << 20, 1 << 20), (1 << 21, 100)
TABLE = {A: b"a", B: b"b"}


@pytest.mark.parametrize(
    ("ranks", "cuts", "kills", "forced", "agents"),
    [
        (2, 2, 1, 0, 0),
        (2, 2, 0, 1, 0),
        (2, 2, 0, 0, 1),
        (2, 1, 1, 1, 0),
        (2, 1, 0, 1, 1),
        (2, 1, 2, 0, 1),
        (3, 1, 1, 0, 0),
    ],
)
def test_all_orders(ranks: int, cuts: int, kills: int, forced: int, agents: int) -> None:
    world = SharesWorld(ranks, cuts, kills, forced, agents)
    assert model.explore(world, limit=400_000) > 1000


@pytest.mark.parametrize(
    ("ranks", "cuts", "kills", "forced", "agents"),
    [  # two cuts with a death as well, (2, 2, 1, 0, 0), take 40 s
        (2, 1, 1, 0, 0),
        (2, 1, 0, 1, 0),
        (2, 1, 2, 0, 1),
        (2, 1, 1, 1, 0),
        (2, 1, 1, 1, 1),
        (3, 1, 1, 0, 0),
    ],
)
def test_all_orders_with_copies_in_gpus(
    ranks: int, cuts: int, kills: int, forced: int, agents: int
) -> None:
    world = JitWorld(ranks, cuts, kills, forced, agents)
    assert model.explore(world, limit=400_000) > 400


def test_the_model_finds_a_gate_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JitWorld, "moves", SharesWorld.moves)
    with pytest.raises(AssertionError, match="lost|nobody could restore"):
        model.explore(JitWorld(2, 2, 1, 0, 0), limit=100_000)


def test_the_model_finds_a_rank_that_goes_its_own_way_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(JitWorld, "snapshot_alone", SharesWorld.snapshot_alone)
    with pytest.raises(AssertionError, match="nobody could restore"):
        model.explore(JitWorld(2, 1, 1, 1, 0), limit=100_000)


def test_the_model_finds_a_point_that_one_rank_has_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(self: Shares, step: int, living: list[int]) -> list[Decision]:
        whole = [one for one in living if self.ranks[one].step == step and self.ranks[one].whole]
        return [self._commit(one) for one in whole]

    monkeypatch.setattr(Shares, "_judge_step", alone)
    with pytest.raises(AssertionError):
        model.explore(SharesWorld(2, 2), limit=100_000)


def test_the_model_finds_a_rank_that_takes_back_what_it_has_lent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgets(self: SharesWorld, id: int) -> None:
        snapshot_alone(self, id)
        self.stores[id].lent = {}

    snapshot_alone = SharesWorld.snapshot_alone
    monkeypatch.setattr(SharesWorld, "snapshot_alone", forgets)
    with pytest.raises(AssertionError, match="misses a block"):
        model.explore(SharesWorld(2, 1, forced=1), limit=100_000)


def test_the_model_finds_an_agent_that_forgets_what_it_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Shares, "entry", lambda self, id: 0)
    with pytest.raises(AssertionError):
        model.explore(SharesWorld(2, 1, kills=1), limit=100_000)


def shared(*ids: int) -> Shares:
    shares = Shares()
    shares.plan([(A, set(ids)), (B, set(ids))])
    return shares


def hold(shares: Shares, id: int, step: int) -> list[Decision]:
    """Let a rank come to a cut, and all be well with it."""
    decisions = shares.staged(id, step, 10 * step, TABLE, shares.rows.get(id))
    return decisions + shares.compared(id, step) + shares.prepared(id, step)


def test_bytes_are_divided_evenly_and_stay_where_they_are() -> None:
    shares = Shares(16 << 10)
    holders = [((at << 20, size), {0, 1, 2}) for at, size in enumerate([9 << 20, 3 << 20, 6 << 20])]
    holders += [((7 << 20, 5 << 20), {1, 2}), (SMALL, {0, 1})]
    changed = shares.plan(holders)
    kept = {
        id: sum(k[1] for k, ids in holders if id in ids and k not in changed[id]) for id in changed
    }
    assert kept == {0: (9 << 20) + 100, 1: (6 << 20) + 100, 2: (5 << 20) + (3 << 20)}
    assert shares.plan([*holders, ((8 << 20, 30 << 20), {0, 2})]).keys() == {2}, "only what is new"
    assert shares.plan([(key, ids - {0}) for key, ids in holders])[0] == {}


def test_blocks_of_different_contents_have_owners_of_their_own() -> None:
    shares = Shares()
    shares.plan([(A, {0, 1}), (A, {2, 3})])
    assert shares.rows == {1: {A: 0}, 3: {A: 2}}
    assert hold(shares, 0, 1) == []
    assert hold(shares, 2, 1) == []
    assert hold(shares, 3, 1) == [Commit(2, 1), Commit(3, 1)], "the others do not matter"


def test_points_of_a_group_move_together() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    assert shares.staged(1, 5, 50, TABLE, shares.rows[1]) == []
    assert shares.prepared(1, 5) == []
    assert shares.compared(1, 5) == [Commit(0, 5), Commit(1, 5)]
    assert (shares.entry(0), shares.entry(1)) == (50, 50)
    assert hold(shares, 0, 6) == [], "what is decided is decided once"


def test_a_cut_that_somebody_passes_over_is_nobodys() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    assert shares.staged(1, 5) == [Abort(0, 5)]
    assert hold(shares, 0, 6) == []
    assert hold(shares, 1, 6) == [Commit(0, 6), Commit(1, 6)]


def test_a_cut_that_has_changed_while_it_was_copied_is_nobodys() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    shares.staged(1, 5, 50, TABLE, shares.rows[1])
    assert shares.staged(1, 5) == [Abort(0, 5)]


def test_a_block_that_its_owner_has_not_is_not_shared_again() -> None:
    shares = shared(0, 1)
    assert shares.rows == {1: {A: 0}, 0: {B: 1}}
    assert hold(shares, 0, 5) == []
    shares.staged(1, 5, 50, {B: b"b", A: b"another"}, shares.rows[1])
    shares.compared(1, 5)
    assert shares.prepared(1, 5) == [Abort(0, 5), Abort(1, 5)]
    assert shares.plan([(A, {0, 1}), (B, {0, 1})]) == {1: {}}
    assert hold(shares, 0, 6) == []
    assert hold(shares, 1, 6) == [Commit(0, 6), Commit(1, 6)]


def test_a_rank_that_needs_room_does_not_wait() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    assert shares.decide_now(0, 5) == [Abort(0, 5)]
    assert shares.staged(1, 5, 50, TABLE, shares.rows[1]) == [Abort(1, 5)]
    assert hold(shares, 0, 6) + hold(shares, 1, 6) == [Commit(0, 6), Commit(1, 6)]
    assert shares.decide_now(0, 6) == [Commit(0, 6)], "it has been decided"


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    shares = shared(0, 1)
    assert hold(shares, 1, 5) == []
    assert hold(shares, 0, 6) == [Abort(1, 5)]
    assert shares.ended(1) == [Abort(0, 6)], "what it should have kept never came"
    assert hold(shares, 1, 7) == []
    shares = shared(0, 1)
    assert hold(shares, 1, 5) == []
    assert shares.ended(1) == []
    assert shares.named() == set()
    assert hold(shares, 0, 5) == [Commit(0, 5)], "it has kept its part"
    assert shares.named() == {1}
    assert shares.plan([]) == {0: {}, 1: {}}
    assert hold(shares, 0, 6) == [Commit(0, 6)]
    assert shares.named() == set(), "its store can go"


def test_what_a_rank_had_not_copied_when_it_ended_never_comes() -> None:
    shares = shared(0, 1)
    shares.staged(1, 5, 50, TABLE, shares.rows[1])
    shares.compared(1, 5)
    assert shares.ended(1) == []
    assert hold(shares, 0, 5) == [Abort(0, 5)]


def test_what_a_rank_has_kept_of_another_cut_is_of_no_use() -> None:
    shares = shared(0, 1)
    assert hold(shares, 1, 5) == []
    assert shares.ended(1) == []
    assert hold(shares, 0, 6) == [Abort(0, 6)], "although its contents are the same"


def test_when_all_of_a_group_have_ended_it_is_forgotten() -> None:
    shares = shared(0, 1)
    assert hold(shares, 2, 1) == [Commit(2, 1)]
    for id in (0, 1):
        assert shares.ranks.keys() == {0, 1, 2}
        shares.ended(id)
    assert shares.ranks.keys() == {2}


def test_a_rank_that_is_restarted_comes_to_the_same_cut_again() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    assert shares.restarted(0) == []
    assert hold(shares, 1, 5) == [], "the copies of before are not there any more"
    assert hold(shares, 0, 5) == [Commit(0, 5), Commit(1, 5)]


def test_a_later_cut_has_to_be_copied_as_the_one_before() -> None:
    shares = shared(0, 1)
    assert hold(shares, 0, 5) == []
    assert shares.staged(0, 6, 60, TABLE, shares.rows[0]) == []
    assert hold(shares, 1, 6) == []
    assert shares.compared(0, 6) == []
    assert shares.prepared(0, 6) == [Commit(0, 6), Commit(1, 6)]


def test_alone_nothing_waits_for_the_copies() -> None:
    shares = Shares()
    assert shares.staged(0, 1, 10, TABLE) == []
    assert shares.compared(0, 1) == [Commit(0, 1)]
    assert shares.prepared(0, 1) == []
    assert shares.entry(0) == 0


def test_the_next_agent_repeats_what_is_decided_and_drops_the_rest() -> None:
    shares = shared(0, 1)
    hold(shares, 0, 5), hold(shares, 1, 5)
    hold(shares, 0, 6)
    after = Shares()
    assert after.restore(json.loads(json.dumps(shares.note()))) == [Commit(0, 5), Commit(1, 5)]
    assert after.entry(0) == 50
    assert after.prepared(1, 6) == [Abort(1, 6)], "of which it has not heard"
    assert after.compared(0, 7) == [Abort(0, 7)]
    assert hold(after, 0, 8) == []
    assert hold(after, 1, 8) == [Commit(0, 8), Commit(1, 8)]


def test_the_next_agent_decides_as_the_one_before_what_it_hears_once_more() -> None:
    shares = shared(0, 1)
    hold(shares, 0, 5), hold(shares, 1, 5)
    after = Shares()
    after.restore(json.loads(json.dumps(shares.note())))
    assert after.prepared(1, 5) == [Commit(1, 5)]
    assert after.compared(2, 3) == [Commit(2, 3)], "it shares with nobody"


def test_the_next_agent_tells_nobody_of_a_cut_that_has_none_or_has_ended() -> None:
    shares = shared(0, 1)
    after = Shares()
    assert after.restore(json.loads(json.dumps(shares.note()))) == []
    hold(shares, 0, 5), hold(shares, 1, 5)
    shares.ended(1)
    after = Shares()
    assert after.restore(json.loads(json.dumps(shares.note()))) == [Commit(0, 5)]


def test_the_next_agent_tells_all_that_share_what_they_go_by() -> None:
    """It does not know what they were told last."""
    shares = shared(0, 1)
    hold(shares, 2, 1)
    shares.apart = {A}
    after = Shares()
    after.restore(json.loads(json.dumps(shares.note())))
    assert after.plan([(A, {0, 1})]) == {0: {}, 1: {}}, "and what is not the same is not shared"


def test_with_copies_in_gpus_each_names_the_next() -> None:
    shares = Shares(jit=True)
    shares.plan([(A, {0, 1, 2}), (B, {0, 2}), (SMALL, {1})])
    assert shares.rows == {0: {A: 1, B: 2}, 1: {A: 2}, 2: {A: 0, B: 0}}
    tables = {0: TABLE, 1: {A: b"a"}, 2: TABLE}
    for id, table in tables.items():
        assert shares.staged(id, 5, 50, table, shares.rows[id]) == []
        assert shares.compared(id, 5) == []
    assert shares.prepared(0, 5) == []
    assert shares.prepared(2, 5) == []
    assert shares.prepared(1, 5) == [Commit(id, 5) for id in (0, 1, 2)]
    assert (shares.line(2), shares.group(1)) == (5, {0, 1, 2})


def test_a_copy_in_another_gpu_must_be_the_same() -> None:
    shares = Shares(jit=True)
    shares.plan([(A, {0, 1})])
    for id, digest in ((0, b"a"), (1, b"other")):
        shares.staged(id, 5, 50, {A: digest}, shares.rows[id])
        shares.compared(id, 5)
    assert shares.prepared(0, 5) == []
    assert shares.prepared(1, 5) == [Abort(0, 5), Abort(1, 5)]
    assert shares.apart == {A}
