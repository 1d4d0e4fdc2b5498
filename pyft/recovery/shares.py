"""Ranks with the same contents keep them once: which keeps what, and when that counts.

A block in which several ranks have had the same contents is snapshotted by one of them, its
*owner*; the points of the others name it (docs/concepts/sharing.md). Such ranks, directly or by way
of others, are a *group*, and their points move together:

    server     STAGED: digests of a cut, and which keeps what of it; PREPARED: its own part is whole
    agent      when all of the group hold the cut, and owners have what the others need of them:
               COMMIT for good, it is the committed snapshot of all
               when one of them has passed it over, or an owner has something else: ABORT for all

So the contents that a point names stay where they are for as long as it counts. What is settled is
kept before any rank is told; one that dies before it has heard is told at its next start, and has
what it needs in its store. A rank that makes a cut alone, for want of space, keeps what it has lent
(store.h).

Which rank owns what is decided by assignment.py. With `jit` no store keeps such a block: all ranks
that have it keep it in their GPUs, and each point names the next one of them (pre_images.h).
Without input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyft.recovery.assignment import Assignment, Rows
from pyft.recovery.case import Key, Table


@dataclass(frozen=True)
class Commit:
    """The cut of a rank becomes its committed snapshot."""

    id: int
    step: int


@dataclass(frozen=True)
class Abort:
    """The cut of a rank cannot become its committed snapshot; nothing of another rank's needs it."""

    id: int
    step: int


Decision = Commit | Abort


@dataclass
class SharingRank:
    """A rank's cuts."""

    group: set[int]  # shared with all in it
    passed: int = 0  # it has come to this step
    step: int = 0  # whose cut waits; 0: none does
    entry: int = 0  # of that cut
    own: dict[Key, bytes] = field(default_factory=dict)  # what it keeps itself of it
    needs: dict[Key, tuple[int, bytes]] = field(default_factory=dict)  # owner, digest
    compared: bool = False
    whole: bool = False
    line: int = 0  # the step of the last cut of the group, which is the point,
    line_entry: int = 0  # its entry,
    names: set[int] = field(default_factory=set)  # and whose contents it names
    gone: bool = False

    def has(self, step: int) -> bool:
        """Say whether it holds or may come to hold the cut of that step."""
        return step in (self.step, self.line)

    def forget(self) -> None:
        """No cut waits any more."""
        self.step, self.compared, self.whole = 0, False, False
        self.own, self.needs = {}, {}


class Shares:
    """All ranks of a job, by id."""

    def __init__(self, least_bytes: int = 1, jit: bool = False) -> None:
        self.least_bytes = least_bytes
        self.jit = jit
        self.ranks: dict[int, SharingRank] = {}
        self.assignment = Assignment(least_bytes, jit)
        self.apart: set[Key] = set()  # blocks that have turned out not to be the same

    def _of(self, id: int) -> SharingRank:
        return self.ranks.setdefault(id, SharingRank({id}))

    def is_grouped(self, id: int) -> bool:
        """Say whether a rank's points depend on other ranks, or did."""
        return len(self._of(id).group) > 1

    def entry(self, id: int) -> int:
        """Return the entry of the cut at which the next server of a rank has to begin; 0: any."""
        return self._of(id).line_entry

    def line(self, id: int) -> int:
        """Return the step of a rank's point that other ranks' points go with; 0: it has none."""
        return self._of(id).line

    def group(self, id: int) -> set[int]:
        """Return the ranks that share with one, itself included."""
        return self._of(id).group

    def named(self) -> set[int]:
        """Return whose stores are named by points of other ranks, or by cuts that wait."""
        living = [rank for rank in self.ranks.values() if not rank.gone]
        waiting = {owner for rank in living for owner, _ in rank.needs.values()}
        return waiting.union(*(rank.names for rank in living))

    # ---- groups -------------------------------------------------------------------------------

    @property
    def rows(self) -> dict[int, Rows]:
        """Return the rows that ranks go by."""
        return self.assignment.rows

    def plan(self, holders: Iterable[tuple[Key, set[int]]]) -> dict[int, Rows]:
        """Divide the blocks among their holders, which become groups; return the rows that change."""
        shared = self.assignment.shared(holders, self.apart)
        for _, ids in shared:
            self._join(ids)
        return self.assignment.divide(shared)

    def _join(self, ids: set[int]) -> None:
        group = set().union(*(self._of(id).group for id in ids))
        if self._of(next(iter(ids))).group != group:  # then that of no other one is
            for id in group:
                self._of(id).group = group

    # ---- cuts ---------------------------------------------------------------------------------

    def staged(
        self,
        id: int,
        step: int,
        entry: int = 0,
        table: Table | None = None,
        rows: Rows | None = None,
    ) -> list[Decision]:
        """Take note of a cut. No table: the rank has passed it over.

        `rows`: which of its blocks are not in the rank's own store, and which rank keeps them.
        """
        rank = self._of(id)
        rank.passed = max(rank.passed, step)
        if table is not None:
            rows = rows or {}
            rank.forget()
            rank.step, rank.entry = step, entry
            rank.own = {key: digest for key, digest in table.items() if key not in rows}
            rank.needs = {key: (owner, table[key]) for key, owner in rows.items()}
        elif rank.step == step:
            rank.forget()  # it has changed while it was copied
        return self._judge(id)

    def compared(self, id: int, step: int) -> list[Decision]:
        """Note that nothing speaks against a cut as far as its contents are concerned."""
        rank = self._of(id)
        if rank.step == step:
            rank.compared = True
            return self._judge(id)
        # It waits, and an agent before this one was told of it.
        return [self._forgotten(id, step)] if not rank.step else []

    def prepared(self, id: int, step: int) -> list[Decision]:
        """Note that all that a rank itself keeps of a cut is in its store."""
        rank = self._of(id)
        if rank.step == step:
            rank.whole = True
            return self._judge(id)
        return [self._forgotten(id, step)] if not rank.step and self.is_grouped(id) else []

    def _forgotten(self, id: int, step: int) -> Decision:
        rank = self._of(id)
        if not self.is_grouped(id) or rank.line == step:
            return Commit(id, step)
        return Abort(id, step)

    def decide_now(self, id: int, step: int) -> list[Decision]:
        """Decide about a cut now: its rank needs room."""
        rank = self._of(id)
        if rank.line == step:
            return [Commit(id, step)]
        if rank.step == step:
            rank.forget()
        return [Abort(id, step), *self._judge(id)]

    def restarted(self, id: int) -> list[Decision]:
        """Note that a rank's server has ended: the next one begins at its committed snapshot."""
        rank = self._of(id)
        rank.forget()
        rank.passed = rank.line
        return self._judge(id)

    def ended(self, id: int) -> list[Decision]:
        """Note that a rank makes no cut any more. What it has kept stays while others share with it."""
        self._of(id).gone = True
        decisions, group = self._judge(id), self._of(id).group
        if all(self._of(one).gone for one in group):
            self.ranks = {one: rank for one, rank in self.ranks.items() if one not in group}
        return decisions

    def _judge(self, id: int) -> list[Decision]:
        decisions: list[Decision] = []
        group = self._of(id).group
        living = [one for one in sorted(group) if not self._of(one).gone]
        for step in sorted({self._of(one).step for one in living} - {0}):
            decisions += self._judge_step(step, living)
        return decisions

    def _judge_step(self, step: int, living: list[int]) -> list[Decision]:
        holding = [one for one in living if self._of(one).step == step]
        if len(self._of(living[0]).group) == 1:  # its server knows when it is whole
            (one,) = holding
            if not self._of(one).compared:
                return []
            self._of(one).forget()
            return [Commit(one, step)]
        ready = True
        for one in living:
            rank = self._of(one)
            if rank.passed >= step and not rank.has(step):
                return self._drop(holding)
            ready &= rank.line == step or (rank.step == step and rank.compared and rank.whole)
        if not ready:
            return []
        if missing := self._missing(step, holding):
            self.apart |= missing
            return self._drop(holding)
        return [self._commit(one) for one in holding]

    def _missing(self, step: int, holding: list[int]) -> set[Key]:
        """Return the blocks that are not where a rank needs them."""
        return {
            key
            for one in holding
            for key, (owner, digest) in self._of(one).needs.items()
            if self._kept(owner, step).get(key) != digest
        }

    def _kept(self, owner: int, step: int) -> dict[Key, bytes]:
        rank = self._of(owner)
        if rank.step != step or not rank.whole:
            return {}
        in_gpu = {key: digest for key, (_, digest) in rank.needs.items()} if self.jit else {}
        return rank.own | in_gpu

    def _drop(self, holding: list[int]) -> list[Decision]:
        decisions: list[Decision] = []
        for one in holding:
            decisions.append(Abort(one, self._of(one).step))
            self._of(one).forget()
        return decisions

    def _commit(self, id: int) -> Decision:
        rank = self._of(id)
        rank.line, rank.line_entry = rank.step, rank.entry
        rank.names = {owner for owner, _ in rank.needs.values()}
        rank.forget()
        return Commit(id, rank.line)

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return what is settled. Cuts that wait are dropped by the next agent, plans made anew."""
        ranks = [
            [id, sorted(r.group), r.line, r.line_entry, sorted(r.names), r.gone]
            for id, r in sorted(self.ranks.items())
        ]
        return {"ranks": ranks, "apart": sorted(self.apart)}

    def restore(self, note: Mapping[str, Any]) -> list[Decision]:
        """Go on from the note of an agent before this one; return what servers may not have heard."""
        groups: dict[tuple[int, ...], set[int]] = {}
        for id, group, line, entry, names, gone in note["ranks"]:
            shared = groups.setdefault(tuple(group), set(group))
            rank = SharingRank(
                shared, line, line=line, line_entry=entry, names=set(names), gone=gone
            )
            self.ranks[id] = rank
        self.apart = {(offset, size) for offset, size in note["apart"]}
        self.assignment.stale = {id for id, one in self.ranks.items() if len(one.group) > 1}
        return [Commit(id, r.line) for id, r in self.ranks.items() if r.line and not r.gone]
