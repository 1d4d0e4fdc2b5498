"""Ranks that go back together, and to where: for communicators that cannot be repaired.

Where an abort leaves partial results (stock NCCL) no server can take a dead rank's place. All ranks
that share communicators, directly or by way of others, are a *rollback set*: when one fails all are
ended, restored at the same line, make their communicators anew, and repeat what came after it.

    server     PREPARED: a cut waits in its store, whole; LINE: how far each communicator was there
    agent      when all of the set hold a cut, and their lines fit: COMMIT, it is the line of all
               when another rank is past it: ABORT, there can be no such line
    new server WANT_ID: under which id is the communicator made now? The first that asks makes one

A line is decided here before any rank is told. One that dies before it has heard so hears it at its
next start, and has what it needs in its store. Without input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyft.recovery.line import ENDED, NOT_MADE, Line, Lines, lines_of, note_of
from pyft.recovery.orders import Abort, Audit, Commit, MadeAs, Order, Paced, Unaudited


class FalseCut(ValueError):
    """No server of ours says this of its cuts."""


@dataclass
class Shared:
    """A communicator."""

    members: dict[int, int] = field(default_factory=dict)  # rank in it -> id
    ended: set[int] = field(default_factory=set)  # ids that have ended it since the line
    made_as: str = ""  # the id under which it is made, as text; empty: not yet
    maker: int = -1  # the rank that has been asked for one
    waiting: list[int] = field(default_factory=list)  # for that


@dataclass
class RollbackRank:
    """A rank's cuts."""

    line: int = 0  # the step of the last cut that was decided,
    entry: int = 0  # and its entry
    prepared: int = 0  # the step whose cut waits to be decided
    prepared_entry: int = 0
    at: Lines = field(default_factory=dict)  # of the one that is held
    last: Lines | None = None  # of the last cut, held or passed over; None: more may come there
    coming: Lines = field(default_factory=dict)  # of the cut that is being told
    serial: bool = False  # replays entry by entry, until all of the set work again
    audited: int = 0  # the step whose cut may become the line, says an audit, or it has none
    disputed: int = 0  # the step about whose cut two replays have to agree
    hurried: int = 0  # the step whose cut it cannot wait with any longer


class RollbackSets:
    """All ranks of a job, by id, and their communicators, by key."""

    def __init__(self, audits: bool = False) -> None:
        self.audits = audits  # a cut is no line before it is audited
        self.groups: dict[int, Shared] = {}
        self.ranks: dict[int, RollbackRank] = {}

    def of(self, id: int) -> set[int]:
        """Return the ranks that go back when one does, itself included."""
        found, todo = {id}, [id]
        while todo:
            one = todo.pop()
            for group in self.groups.values():
                if one in group.members.values():
                    todo += set(group.members.values()) - found
                    found |= set(group.members.values())
        return found

    def line(self, id: int) -> int:
        """Return the step whose cut is the line of a rank."""
        return self.ranks[id].line if id in self.ranks else 0

    def entry(self, id: int) -> int:
        """Return the entry of that cut, after which the next server starts; 0: from the start."""
        return self.ranks[id].entry if id in self.ranks else 0

    # ---- communicators ------------------------------------------------------------------------

    def want_id(self, id: int, key: int, rank: int, made_as: str) -> list[Order]:
        """Take a question for a communicator's id, or the answer of the rank that was to make it."""
        group = self.groups.setdefault(key, Shared())
        group.members[rank] = id
        group.ended.discard(id)
        if made_as and group.maker == id:
            group.made_as, waiting, group.waiting = made_as, group.waiting, []
            return [MadeAs(one, key, made_as) for one in waiting]
        if group.made_as:
            return [MadeAs(id, key, group.made_as)]
        if group.maker in (-1, id):
            group.maker = id
            return [MadeAs(id, key, "")]
        group.waiting.append(id)
        return []

    def made(self, id: int, key: int, rank: int) -> None:
        """Note that a rank is in a communicator."""
        group = self.groups.setdefault(key, Shared())
        group.members[rank] = id
        group.ended.discard(id)

    def ended(self, id: int, key: int) -> None:
        """Note that a rank has ended a communicator. Up to the next line it may be needed again."""
        if group := self.groups.get(key):
            group.ended.add(id)

    def go_back(self, ids: Iterable[int]) -> None:
        """Forget what the servers of a set have done since its line: they are ended."""
        ids = set(ids)
        for group in self.groups.values():
            if ids & set(group.members.values()):
                group.made_as, group.maker, group.waiting = "", -1, []
                group.ended.clear()
        for id in ids & set(self.ranks):
            before = self.ranks[id]
            self.ranks[id] = RollbackRank(before.line, before.entry, serial=before.serial)

    def forget(self, ids: set[int]) -> None:
        """Do without whole sets of ranks, which have ended."""
        for key, group in list(self.groups.items()):
            if ids & set(group.members.values()):
                del self.groups[key]
        for id in ids:
            self.ranks.pop(id, None)

    # ---- how they replay ----------------------------------------------------------------------

    def replay_serially(self, id: int) -> None:
        """Note that all of a set replay entry by entry, since one of them has to.

        With a mode of its own for each rank, one that goes back because of another one would be in
        the first mode again, find there what it had found before, and send the others back: for ever.
        """
        for one in self.of(id):
            self.ranks.setdefault(one, RollbackRank()).serial = True

    def is_serial(self, id: int) -> bool:
        """Say whether a rank replays entry by entry with the others of its set."""
        return any(self.ranks[one].serial for one in self.of(id) if one in self.ranks)

    def lived(self, id: int) -> None:
        """Note that all of a set work again: what happens next is another fault."""
        for one in self.of(id) & set(self.ranks):
            self.ranks[one].serial = False

    # ---- lines --------------------------------------------------------------------------------

    def told(self, id: int, key: int, line: Line) -> None:
        """Take one line of the cut that follows."""
        self.ranks.setdefault(id, RollbackRank()).coming[key] = line

    def came_to(self, id: int, step: int, entry: int) -> list[Order]:
        """Note that a rank holds a cut, or (no entry) has passed it over; its lines were told."""
        rank = self.ranks.setdefault(id, RollbackRank())
        if 0 < entry < rank.entry:
            rank.coming = {}
            raise FalseCut(
                f"cut [{step}] at entry [{entry}], before its line at entry [{rank.entry}]"
            )
        rank.last, rank.coming = rank.coming | self._untold(id, rank.coming), {}
        if entry:
            rank.prepared, rank.prepared_entry, rank.at = step, entry, rank.last
        return self._judge(id)

    def withdraw(self, id: int, step: int) -> list[Order]:
        """Decide at once about a cut that a rank holds and cannot wait for any longer."""
        rank = self.ranks.setdefault(id, RollbackRank())
        if rank.line >= step:
            return [Commit(id, rank.line)]
        if self._waits(id):
            rank.hurried = step
            return self._without_audit(id)
        rank.prepared, rank.last = 0, None  # it may hold a better one of the same place
        return [Abort(id, step), *self._judge(id)]

    def dispute(self, id: int, step: int) -> None:
        """Note that an audit has found something else: a rank that cannot wait does, for the vote."""
        if id in self.ranks and self.ranks[id].prepared == step:
            self.ranks[id].disputed = step

    def audit_ended(self, id: int, step: int) -> list[Order]:
        """Note that the cut of a rank may become its line, as far as audits go."""
        rank = self.ranks.get(id)
        if rank is None or rank.prepared != step:
            return []  # the set has gone back meanwhile
        rank.audited = step
        ids = self.of(id) if self._waits(id) else set()
        if any(self.ranks[one].hurried == self.ranks[one].prepared for one in ids):
            return self._without_audit(id)  # one had to wait for a vote, which may be over
        return self._judge(id)

    def unaudited(self) -> list[Order]:
        """Return what is to be audited, once more: the agent that was told so before has died."""
        return [audit for id in self.ranks for audit in self._audits({id}) if self._waits(id)]

    def _waits(self, id: int) -> bool:
        return self.audits and self._all_prepared(self.of(id))

    def _all_prepared(self, ids: set[int]) -> bool:
        return all(one in self.ranks and self.ranks[one].prepared for one in ids)

    def _audits(self, ids: set[int]) -> list[Order]:
        ranks = {one: self.ranks[one] for one in sorted(ids)}
        return [
            Audit(one, rank.prepared, rank.prepared_entry, rank.entry)
            for one, rank in ranks.items()
            if rank.audited != rank.prepared
        ]

    def _without_audit(self, id: int) -> list[Order]:
        """Let the cuts of a set become their line now. Not while a vote may say that one is wrong."""
        ids = self.of(id)
        ranks = [self.ranks[one] for one in ids]
        if any(rank.disputed == rank.prepared != rank.audited for rank in ranks):
            return []
        late = [Unaudited(one, self.ranks[one].prepared) for one in sorted(ids)]
        late = [one for one in late if self.ranks[one.id].audited != one.step]
        for one in ids:
            self.ranks[one].audited = self.ranks[one].prepared
        return [*late, *self._judge(id)]

    def paced(self, id: int, cuts: int) -> list[Order]:
        """Tell the others of a set how many cuts may lie between two that all hold."""
        return [Paced(one, cuts) for one in sorted(self.of(id) - {id})]

    def _untold(self, id: int, told: Lines) -> Lines:
        """Return the lines of communicators of which a rank has told nothing."""
        untold = ((key, rank) for key, rank in self._member_of(id) if key not in told)
        ended = {key for key, group in self.groups.items() if id in group.ended}
        return {key: Line(rank, ENDED if key in ended else NOT_MADE) for key, rank in untold}

    def _with_new(self, id: int, lines: Lines | None) -> Lines:
        """Return the lines of a cut, with those of communicators that were made since."""
        if lines is None:
            return {}
        new = {key: Line(rank, NOT_MADE) for key, rank in self._member_of(id)}
        return new | lines

    def _member_of(self, id: int) -> Iterator[tuple[int, int]]:
        """Return the communicators of a rank, and its rank in each."""
        for key, group in self.groups.items():
            yield from ((key, rank) for rank, member in group.members.items() if member == id)

    def _judge(self, id: int) -> list[Order]:
        """Decide, as far as that is possible, about the cuts of a set."""
        ids = self.of(id)
        orders: list[Order] = []
        while late := [one for one in ids if self._is_late(one, ids)]:
            for one in late:
                rank = self.ranks[one]
                orders.append(Abort(one, rank.prepared))
                rank.prepared = 0
        if not self._all_prepared(ids):
            return orders
        if self.audits and (todo := self._audits(ids)):
            return [*orders, *todo]
        return [*orders, *(self._commit(one) for one in sorted(ids))]

    def _is_late(self, id: int, ids: set[int]) -> bool:
        """Say whether another rank will have no cut any more that fits the one of this rank."""
        rank = self.ranks.get(id)
        if rank is None or not rank.prepared:
            return False
        own = self._with_new(id, rank.at)
        for one in ids - {id}:
            other = self.ranks.get(one, RollbackRank())
            lines = self._with_new(one, other.at if other.prepared else other.last)
            shared = own.keys() & lines.keys()
            if any(own[key].is_behind(lines[key]) for key in shared):
                return True
            waits = any(lines[key].is_behind(own[key]) for key in shared)
            if shared and not other.prepared and not waits:
                return True  # it has passed over this very place
        return False

    def _commit(self, id: int) -> Order:
        rank = self.ranks[id]
        rank.line, rank.entry, rank.prepared = rank.prepared, rank.prepared_entry, 0
        for key, line in rank.at.items():
            if line.collectives == ENDED and key in self.groups:
                self._forget(key, id)
        rank.last = None  # an optimizer's step calls no rank: its cut may be of the same place
        return Commit(id, rank.line)

    def _forget(self, key: int, id: int) -> None:
        group = self.groups[key]
        group.members = {rank: one for rank, one in group.members.items() if one != id}
        if not group.members:
            del self.groups[key]

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return all of it, in plain values."""
        groups = [
            [key, sorted(g.members.items()), sorted(g.ended), g.made_as, g.maker, g.waiting]
            for key, g in self.groups.items()
        ]
        ranks = [
            [
                id,
                r.line,
                r.entry,
                r.prepared,
                r.prepared_entry,
                *(note_of(lines) for lines in (r.at, r.last, r.coming)),
                *(r.serial, r.audited, r.disputed, r.hurried),
            ]
            for id, r in self.ranks.items()
        ]
        return {"groups": groups, "ranks": ranks}

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from the note of an agent before this one."""
        for key, members, ended, made_as, maker, waiting in note["groups"]:
            self.groups[key] = Shared(dict(members), set(ended), made_as, maker, list(waiting))
        for id, line, entry, prepared, prepared_entry, at, last, coming, *more in note["ranks"]:
            told = (lines_of(at) or {}, lines_of(last), lines_of(coming) or {})
            self.ranks[id] = RollbackRank(line, entry, prepared, prepared_entry, *told, *more)
