"""Ranks that have left: which of the others still count on them, in which communicators.

Others wait for a dead rank, since a new server takes its place. Not so when its program has ended,
or it was given up: then a rank that needs more of it has to get an error. LEFT tells the other
members, each server once, and a new one when it has its place (MADE).

A rank that still makes a communicator (MAKING, WANT_ID) is told only when none is left that has it:
from such a one it would get its place, and perhaps needs nothing of the rank that has left.

A communicator that has failed for good (BROKEN) takes no part any more either. Without input or
output.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyft.recovery.events import Received
from pyft.wire import messages as wire

LEFT_KEPT = 256  # communicators of which all that have spoken have left
Heard = wire.Making | wire.WantId | wire.Made | wire.Ended | wire.Minted | wire.Broken
# The id of the rank that is told; of the one that has left the communicator, and its rank in that.
Told = tuple[int, int, int]


@dataclass
class Known:
    """One communicator, as far as ranks have spoken of it."""

    ranks: dict[int, int] = field(default_factory=dict)  # rank -> id
    made: set[int] = field(default_factory=set)  # ids that have it
    minter: int = -1  # the id of the rank that has made its unique id
    gone: set[int] = field(default_factory=set)  # ranks that have left it for good

    def ids(self) -> set[int]:
        """Return the ids of all that have spoken of it."""
        return {*self.ranks.values(), *self.made, self.minter}

    def is_of(self, ids: Container[int]) -> bool:
        """Say whether one of these has spoken of it."""
        return any(id in ids for id in self.ids())


class Departures:
    """All communicators of a job, by key."""

    def __init__(self) -> None:
        self.groups: dict[int, Known] = {}
        self.left: set[int] = set()  # ids

    def heard(self, event: Received) -> list[Told]:
        """Take what a server says of a communicator."""
        said = event.message
        if not isinstance(said, Heard):
            return []
        group = self.groups.setdefault(said.key, Known())
        if isinstance(said, wire.Minted):
            group.minter = event.id
        elif isinstance(said, wire.Broken):
            group.gone.add(said.rank)
            return self._tell(said.key, self._waiting(group) - {event.id}, {said.rank})
        elif isinstance(said, (wire.Making, wire.WantId)):
            group.ranks[said.rank] = event.id
        elif isinstance(said, wire.Made):
            group.ranks[said.rank] = event.id
            group.made.add(event.id)
        else:
            group.made.discard(event.id)
            return []
        return self._tell(said.key, self._waiting(group) & {event.id}, group.gone)

    def leave(self, id: int) -> list[Told]:
        """Note that a rank has left."""
        self.left.add(id)
        told: list[Told] = []
        for key, group in self.groups.items():
            new = {rank for rank, member in group.ranks.items() if member == id}
            new |= {wire.MINTER} if group.minter == id else set()
            group.gone |= new
            # Those that make it may only now have none left that has it: they hear of all.
            ranks = new if group.made - self.left or not new else group.gone
            told += self._tell(key, self._waiting(group), ranks)
        return told

    def all_told(self) -> list[Told]:
        """Return everything once more, for those that an agent before this one has not told."""
        return [
            one
            for key, group in self.groups.items()
            for one in self._tell(key, self._waiting(group), group.gone)
        ]

    def tidy(self, ids: Container[int]) -> None:
        """Forget what only ranks know that are not among these; of the last ones others may come.

        Such a late one has to hear that the others have left.
        """
        kept = {key: group for key, group in self.groups.items() if group.is_of(ids)}
        others = [key for key in self.groups if key not in kept]
        for key in others[:-LEFT_KEPT]:
            del self.groups[key]
        known = {id for group in self.groups.values() for id in group.ids()}
        self.left = {id for id in self.left if id in known or id in ids}

    def _waiting(self, group: Known) -> set[int]:
        """Return the ranks that may wait for others that have left."""
        have_it = group.made - self.left
        return have_it or set(group.ranks.values()) - self.left

    def _tell(self, key: int, ids: Iterable[int], ranks: Iterable[int]) -> list[Told]:
        return [(id, key, rank) for id in sorted(ids) for rank in sorted(ranks)]

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return all of it, in plain values."""
        groups = [
            [key, sorted(g.ranks.items()), sorted(g.made), g.minter, sorted(g.gone)]
            for key, g in self.groups.items()
        ]
        return {"groups": groups, "left": sorted(self.left)}

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from the note of an agent before this one."""
        self.left = set(note["left"])
        for key, ranks, made, minter, gone in note["groups"]:
            self.groups[key] = Known(dict(ranks), set(made), minter, set(gone))
