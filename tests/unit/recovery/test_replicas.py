"""Who is suspected of silent corruption, who is found guilty, and that nobody waits for ever."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import dataclass, field

from pyft.recovery.replicas import (
    SMALL_BYTES,
    STREAK,
    Agreed,
    Disagree,
    Finding,
    Judged,
    Replicas,
)

SAME, OWN = (0, 64), (64, 64)  # a block that all have, and one in which they differ
GOOD, BAD = b"good", b"bad"


def table(rank: int, cut: int, same: bytes = GOOD) -> dict:
    return {SAME: same + bytes([cut]), OWN: b"own" + bytes([rank, cut])}


def cuts(replicas: Replicas, ranks: int, last: int) -> None:
    """Let all ranks come to cuts 1 to `last` in good order."""
    for cut, rank in itertools.product(range(1, last + 1), range(ranks)):
        replicas.staged(rank, cut, table(rank, cut))
    assert all(standing.cut == last for standing in replicas.ranks.values())


def test_ranks_without_replicas_wait_for_nobody() -> None:
    replicas = Replicas()
    for cut in range(1, 5):
        assert replicas.staged(0, cut, table(0, cut)) == [Agreed(0, cut)]
    own = {OWN: b"another"}
    assert replicas.staged(1, 4, own) == [Agreed(1, 4)]
    assert replicas.staged(0, 5, table(0, 5)) == [Agreed(0, 5)]


def test_replicas_are_settled_together() -> None:
    replicas = Replicas()
    cuts(replicas, 2, STREAK)
    cut = STREAK + 1
    assert replicas.staged(0, cut, table(0, cut)) == []
    assert replicas.staged(1, cut, table(1, cut)) == [Agreed(0, cut), Agreed(1, cut)]
    assert replicas.staged(1, cut + 1, table(1, cut + 1)) == []
    passed_over = replicas.staged(0, cut + 1, None)
    assert passed_over == [Agreed(0, cut + 1), Agreed(1, cut + 1)]
    cut += 2
    assert replicas.staged(0, cut, table(0, cut)) == [], "they still are replicas"
    assert replicas.staged(1, cut, table(1, cut)) == [Agreed(0, cut), Agreed(1, cut)]


def test_replicas_are_found_when_messages_of_one_rank_are_read_first() -> None:
    replicas = Replicas()
    for rank in (0, 1):
        for cut in range(1, STREAK + 1):
            assert replicas.staged(rank, cut, table(rank, cut)) == [Agreed(rank, cut)]
    cut = STREAK + 1
    replicas.staged(0, cut, table(0, cut))
    assert replicas.staged(1, cut, table(1, cut, BAD)) == [Disagree(cut, SAME, (0, 1))]


def test_one_cut_is_not_counted_twice() -> None:
    replicas = Replicas()
    cuts(replicas, 2, 1)
    replicas.restarted(1)  # before it has heard that its cut is agreed
    assert replicas.staged(1, 1, table(1, 1)) == [Agreed(1, 1)]
    assert replicas.staged(0, 2, table(0, 2)) == [Agreed(0, 2)], "no replica yet"


def test_a_cut_that_is_forgotten_waits_no_longer() -> None:
    replicas = Replicas()  # of a new agent
    assert replicas.staged(0, 8, None) == [Agreed(0, 8)]
    cuts(replicas, 2, STREAK)
    cut = STREAK + 1
    replicas.staged(0, cut, table(0, cut))
    assert replicas.staged(0, cut + 1, None) == [], "one that is held does wait"


def test_who_is_not_in_the_majority_is_suspected() -> None:
    replicas = Replicas()
    cuts(replicas, 3, 3)
    replicas.staged(0, 4, table(0, 4))
    replicas.staged(2, 4, table(2, 4))
    assert replicas.staged(1, 4, table(1, 4, BAD)) == [Disagree(4, SAME, (1,))]
    assert (replicas.arbitrates(1), replicas.arbitrates(0)) == (4, 0)
    assert replicas.restarted(1) == []
    agreed = replicas.staged(1, 4, table(1, 4))
    judged = Judged(4, SAME, (1,), (1,))
    assert agreed == [judged, Agreed(0, 4), Agreed(1, 4), Agreed(2, 4)]


def test_of_two_both_are_suspected() -> None:
    for guilty in (0, 1):
        replicas = Replicas()
        cuts(replicas, 2, 2)
        replicas.staged(guilty, 3, table(guilty, 3, BAD))
        assert replicas.staged(1 - guilty, 3, table(1 - guilty, 3)) == [Disagree(3, SAME, (0, 1))]
        for rank in (0, 1):
            assert replicas.restarted(rank) == []
        assert replicas.staged(0, 3, table(0, 3)) == [], "the other one has not replayed"
        judged = Judged(3, SAME, (guilty,), (0, 1))
        assert replicas.staged(1, 3, table(1, 3)) == [judged, Agreed(0, 3), Agreed(1, 3)]


def test_a_program_that_makes_them_differ_is_left_alone() -> None:
    replicas = Replicas()
    cuts(replicas, 2, 2)
    for rank in (0, 1):
        replicas.staged(rank, 3, table(rank, 3, bytes([rank])))
    for rank in (0, 1):
        replicas.restarted(rank)
        found = replicas.staged(rank, 3, table(rank, 3, bytes([rank])))
    assert found == [Judged(3, SAME, (), (0, 1)), Agreed(0, 3), Agreed(1, 3)]
    for cut in (4, 5, 6, 7):  # the same for a while, as with averages now and then
        same = GOOD if cut in (4, 5, 6) else None
        for rank in (0, 1):
            found = replicas.staged(rank, cut, table(rank, cut, same or bytes([rank])))
            assert found == [Agreed(rank, cut)]


def test_nobody_is_guilty_where_no_replay_gives_what_was_there() -> None:
    replicas = Replicas()
    cuts(replicas, 2, 2)
    for rank in (0, 1):
        replicas.staged(rank, 3, table(rank, 3, bytes([rank])))
    for rank in (0, 1):
        replicas.restarted(rank)
        found = replicas.staged(rank, 3, table(rank, 3, b"third" + bytes([rank])))
    assert found[0] == Judged(3, SAME, (), (0, 1))
    assert replicas.staged(0, 4, table(0, 4)) == [Agreed(0, 4)]


def test_blocks_that_once_differed_are_no_replicas() -> None:
    replicas = Replicas()
    for cut in range(1, 6):
        for rank in (0, 1):
            same = bytes([rank]) if cut in (1, 5) else GOOD
            assert replicas.staged(rank, cut, table(rank, cut, same)) == [Agreed(rank, cut)]


def test_a_place_that_another_tensor_gets_begins_anew() -> None:
    """A gradient that all have is freed, and one of which each rank has its own is there then."""
    replicas = Replicas()
    for cut, rank in itertools.product((1, 2), (0, 1)):
        replicas.staged(rank, cut, table(rank, cut), 10 * cut, {SAME: 10})
    for rank in (0, 1):
        found = replicas.staged(rank, 3, table(rank, 3, bytes([rank])), 30, {SAME: 21})
    assert found == [Agreed(0, 3), Agreed(1, 3)]
    assert replicas.common() == []
    for cut, rank in itertools.product((4, 5), (0, 1)):  # what all have is back
        replicas.staged(rank, cut, table(rank, cut), 10 * cut, {SAME: 40})
        assert replicas.common() == ([(SAME, {0, 1})] if (cut, rank) == (5, 1) else [])
    replicas.staged(0, 6, table(0, 6), 60, {SAME: 40})
    found = replicas.staged(1, 6, table(1, 6, BAD), 60, {SAME: 40})
    assert found == [Disagree(6, SAME, (0, 1))], "the same tensor at both cuts: corruption"


def test_another_tensor_at_one_rank_is_enough() -> None:
    for moved in (0, 1):
        replicas = Replicas()
        cuts(replicas, 2, 2)
        for rank in (1, 0):
            since = {SAME: 3} if rank == moved else {}
            found = replicas.staged(rank, 3, table(rank, 3, bytes([rank])), 3, since)
        assert found == [Agreed(0, 3), Agreed(1, 3)]
        for rank in (0, 1):  # it differed from the beginning
            since = {SAME: 3} if rank == moved else {}
            found = replicas.staged(rank, 4, table(rank, 4), 4, since)
            assert found == [Agreed(rank, 4)]


def test_what_one_rank_gets_anew_may_be_what_the_other_has() -> None:
    for moved in (0, 1):
        replicas = Replicas()
        for rank in (0, 1):
            replicas.staged(rank, 1, table(rank, 1, bytes([rank])), 10)
        for cut in range(2, STREAK + 2):
            assert replicas.common() == []
            for rank in (0, 1):
                since = {SAME: 20} if rank == moved else {}
                replicas.staged(rank, cut, table(rank, cut), 10 * cut, since)
        assert replicas.common() == [(SAME, {0, 1})]


def test_of_three_those_that_still_have_it_are_compared() -> None:
    replicas = Replicas()
    cuts(replicas, 3, 2)
    replicas.staged(0, 3, table(0, 3, b"another"), 30, {SAME: 30})
    replicas.staged(1, 3, table(1, 3, BAD), 30)
    found = replicas.staged(2, 3, table(2, 3), 30)
    assert [one.suspects for one in found if isinstance(one, Disagree)] == [(1, 2)]
    assert replicas.case
    assert set(replicas.case.first) == {1, 2}


def test_a_small_block_may_be_the_same_for_a_while() -> None:
    small, replicas = (128, SMALL_BYTES - 1), Replicas()
    for cut, rank in itertools.product(range(1, 10), (0, 1)):
        replicas.staged(rank, cut, {small: b"zero"})
        is_sure = cut > 8 or (cut == 8 and rank == 1)
        assert replicas.common() == ([(small, {0, 1})] if is_sure else [])


def test_a_suspect_that_ends_or_says_nothing_is_not_waited_for() -> None:
    for end in ("gone", "silent"):
        replicas = Replicas()
        cuts(replicas, 2, 2)
        replicas.staged(0, 3, table(0, 3, BAD))
        replicas.staged(1, 3, table(1, 3))
        replicas.restarted(0)
        replicas.staged(0, 3, table(0, 3))
        assert replicas.case
        replicas.staged(1, 4, None)
        assert replicas.case.answers == {0: True}, "it was the server before that has said this"
        replicas.restarted(1)
        found = replicas.gone(1) if end == "gone" else replicas.staged(1, 4, None)
        assert Judged(3, SAME, (0,), (0, 1)) in found


def test_what_cannot_be_told_is_not_blamed_on_the_program_at_once() -> None:
    replicas = Replicas()
    cuts(replicas, 2, 2)
    for cut in (3, 4, 5):
        assert SAME not in replicas.own
        for rank in (0, 1):
            found = replicas.staged(rank, cut, table(rank, cut, bytes([rank])))
        assert found == [Disagree(cut, SAME, (0, 1))]
        for rank in (0, 1):
            replicas.restarted(rank)
        for rank in (0, 1):
            found = replicas.staged(rank, cut, None)
        assert Judged(cut, SAME, (), (0, 1), told=False) in found
    assert SAME in replicas.own


@dataclass
class World:
    """Two or three ranks, one of which is corrupted at one cut, and servers that die."""

    ranks: int
    last: int
    guilty: int
    bad_cut: int
    deaths: int
    replicas: Replicas = field(default_factory=Replicas)
    at: list[int] = field(default_factory=list)  # cut that waits in each rank's store
    point: list[int] = field(default_factory=list)  # committed snapshot
    first: list[bool] = field(default_factory=list)  # it has not replayed the bad cut yet
    found: list[Judged] = field(default_factory=list)
    doomed: set[int] = field(default_factory=set)

    def steps(self) -> list[tuple[str, int]]:
        """Return all that can happen."""
        able = [r for r in range(self.ranks) if r not in self.doomed]
        found = [("cut", r) for r in able if self.at[r] == self.point[r] < self.last]
        found += [("die", r) for r in (range(self.ranks) if self.deaths else ())]
        return found + [("exit", r) for r in sorted(self.doomed)]

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, rank = step
        if kind == "cut":
            self.at[rank] += 1
            cut = self.at[rank]
            bad = (rank, cut) == (self.guilty, self.bad_cut) and self.first[rank]
            self.act(self.replicas.staged(rank, cut, table(rank, cut, BAD if bad else GOOD)))
            return
        self.deaths -= kind == "die"
        self.doomed.discard(rank)
        self.first[rank] &= self.at[rank] < self.bad_cut
        self.at[rank] = self.point[rank]
        self.act(self.replicas.restarted(rank))

    def act(self, findings: list[Finding]) -> None:
        """Do what the agent does."""
        for finding in findings:
            if isinstance(finding, Agreed):
                if finding.id not in self.doomed and self.at[finding.id] == finding.cut:
                    self.point[finding.id] = finding.cut
            elif isinstance(finding, Disagree):
                self.doomed |= set(finding.suspects)
            else:
                self.found.append(finding)

    def check(self) -> None:
        """Nothing can happen any more."""
        assert self.point == [self.last] * self.ranks, self
        assert {one for judged in self.found for one in judged.culprits} <= {self.guilty}


def explore(world: World, limit: int) -> tuple[int, int]:
    """Visit every state; return their number, and how many ends named the culprit."""
    todo, seen, named = [pickle.dumps(world)], set(), 0
    while todo:
        state = todo.pop()
        now: World = pickle.loads(state)
        steps = now.steps()
        if not [step for step in steps if step[0] != "die"]:
            now.check()
            named += any(judged.culprits for judged in now.found)
        for step in steps:
            after: World = pickle.loads(state)
            after.do(step)
            frozen = pickle.dumps(after)
            if hash(frozen) not in seen:
                seen.add(hash(frozen))
                assert len(seen) < limit
                todo.append(frozen)
    return len(seen), named


def world(ranks: int, last: int, guilty: int, bad_cut: int, deaths: int) -> World:
    made = World(ranks, last, guilty, bad_cut, deaths)
    made.at, made.point, made.first = [0] * ranks, [0] * ranks, [True] * ranks
    return made


def test_every_order_ends_with_all_cuts_settled() -> None:
    states, named = explore(world(2, 4, 1, 3, 0), 100_000)
    assert named
    more, _ = explore(world(2, 4, 0, 3, 1), 400_000)
    assert more > states


def test_random_orders_of_three_ranks() -> None:
    for seed in range(300):
        choose = random.Random(seed)
        now = world(3, 5, choose.randrange(3), choose.choice((3, 4, 9)), choose.randrange(3))
        while steps := [s for s in now.steps() if s[0] != "die" or choose.random() < 0.1]:
            now.do(choose.choice(steps))
        now.check()
        if now.bad_cut == 9:
            assert not now.found
