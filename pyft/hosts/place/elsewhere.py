"""What the servers of this place say about communicators: the head decides about that, for all places.

The table is what the head needs to know of this place, whichever head it is and whenever it is
told: pyft.hosts.head.repairs. It is kept for the next agent, and goes with images. Without input or
output but `say`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from pyft.hosts.wire.servers import DEAD, ENDED, MADE, MAKING, RECOVERS, WORKS, as_text
from pyft.recovery.rank import Rank, State
from pyft.wire import messages as wire
from pyft.wire.message import Message

ENDED_KEPT = 1024  # communicators that ranks of this place have ended last
_STATES = {State.RUNNING: WORKS, State.RECOVERING: RECOVERS}


@dataclass
class Asked:
    """A place in a communicator that a server wants. `told`: it has heard something about that."""

    epoch: int
    rank: int
    reason: int
    told: bool = False
    repair: int = 0


class Elsewhere:
    """Of one agent. `say`: gives the head a message, which is lost where there is no connection."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._members: dict[tuple[int, int], list[int]] = {}  # key, rank: id, epoch, state, repair
        self._asked: dict[tuple[int, int], Asked] = {}  # id, key
        self._minted: dict[int, int] = {}  # key: id
        self._broken: set[tuple[int, int]] = set()  # key, rank
        self._stood: dict[int, tuple[int, int, int]] = {}  # id: epoch, state, left

    # ---- said here ----------------------------------------------------------------------------

    def hear(self, id: int, epoch: int, said: Message) -> None:
        """Note what a server has said, and pass it on."""
        if isinstance(said, wire.Making):
            self._members[said.key, said.rank] = [id, epoch, MAKING, 0]
        elif isinstance(said, wire.Made):
            asked = self._asked.pop((id, said.key), Asked(epoch, said.rank, 0))
            before = self._members.get((said.key, said.rank), [0, 0, 0, 0])
            repair = asked.repair if asked.epoch == epoch else 0
            self._members[said.key, said.rank] = [id, epoch, MADE, repair or before[3]]
        elif isinstance(said, wire.Ended):
            row = self._members.get((said.key, said.rank))
            if row and row[:2] == [id, epoch]:
                row[2] = ENDED
                self._forget_ended(said.key, said.rank)
        elif isinstance(said, wire.WantExport):
            before_asked = self._asked.get((id, said.key))
            if not before_asked or before_asked.epoch != epoch:
                self._asked[id, said.key] = Asked(epoch, said.rank, int(said.reason))
        elif isinstance(said, wire.Minted):
            self._minted[said.key] = id
        elif isinstance(said, wire.Broken):
            self._broken.add((said.key, said.rank))
        self._pass_on(id, epoch, said)

    def follow(self, ranks: Iterable[Rank], left: set[int]) -> None:
        """Pass on what has changed of the servers."""
        rows = []
        for rank in ranks:
            now = (rank.epoch, _STATES.get(rank.state, DEAD), int(rank.id in left))
            if self._stood.get(rank.id) != now:
                self._stood[rank.id] = now
                rows.append([rank.id, *now])
                self._forget_questions(rank.id, now)
        if rows:
            self._say("stands", servers=rows)

    def looked(self, number: int) -> None:
        """Say that all that servers had said before has been passed on."""
        self._say("looked", number=number)

    # ---- the head's words ---------------------------------------------------------------------

    def told(self, id: int, epoch: int, said: Message, repair: int) -> None:
        """Note what a server is about to be told."""
        if isinstance(said, wire.DoReplace):
            for (key, _), row in self._members.items():
                if key == said.key and row[:2] == [id, epoch]:
                    row[3] = said.repair
        elif isinstance(said, (wire.Export, wire.Join)):
            asked = self._asked.get((id, said.key))
            if asked and asked.epoch == epoch:
                asked.told, asked.repair = True, repair

    def declare(self) -> list[tuple[int, int]]:
        """Tell the head all of it; return the servers that have heard half of a repair.

        How that repair went on is not known: they have to be replaced.
        """
        stood = [[id, *row] for id, row in self._stood.items()]
        members = [[key, rank, *row] for (key, rank), row in self._members.items()]
        minted = [[key, id] for key, id in self._minted.items()]
        broken = [[key, rank] for key, rank in sorted(self._broken)]
        self._say("declare", servers=stood, members=members, minted=minted, broken=broken)
        half = []
        for (id, key), asked in self._asked.items():
            if asked.told:
                half.append((id, asked.epoch))
            else:
                reason = wire.ExportReason(asked.reason)
                self._pass_on(id, asked.epoch, wire.WantExport(key, asked.rank, reason))
        return half

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return all of it, in plain values."""
        asked = [
            [id, key, one.epoch, one.rank, one.reason, int(one.told), one.repair]
            for (id, key), one in self._asked.items()
        ]
        return {
            "members": [[key, rank, *row] for (key, rank), row in self._members.items()],
            "asked": asked,
            "minted": sorted(self._minted.items()),
            "broken": sorted(self._broken),
            "stood": [[id, *row] for id, row in self._stood.items()],
        }

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from the note of an agent before this one."""
        self._members = {(key, rank): row for key, rank, *row in note["members"]}
        self._asked = {
            (id, key): Asked(epoch, rank, reason, bool(told), repair)
            for id, key, epoch, rank, reason, told, repair in note["asked"]
        }
        self._minted = dict(note["minted"])
        self._broken = {(key, rank) for key, rank in note["broken"]}
        self._stood = {id: (epoch, state, left) for id, epoch, state, left in note["stood"]}

    def tidy(self, ids: Container[int]) -> None:
        """Forget servers that are not among these, and that no communicator is known to have had."""
        named = {row[0] for row in self._members.values()} | set(self._minted.values())
        kept = [id for id in self._stood if id in ids or id in named]
        self._stood = {id: self._stood[id] for id in kept}

    # ---- how that is done ---------------------------------------------------------------------

    def _forget_questions(self, id: int, now: tuple[int, int, int]) -> None:
        """A server that is dead, or not that one any more, asks for nothing."""
        gone = [at for at, one in self._asked.items() if at[0] == id and one.epoch != now[0]]
        if now[1] == DEAD:
            gone = [at for at in self._asked if at[0] == id]
        for at in gone:
            del self._asked[at]

    def _forget_ended(self, key: int, rank: int) -> None:
        """Put what has ended behind all else; no job has so many that others still wait in old ones."""
        self._members[key, rank] = self._members.pop((key, rank))
        ended = [at for at, row in self._members.items() if row[2] == ENDED]
        for at in ended[:-ENDED_KEPT]:
            del self._members[at]
            self._broken.discard(at)
            if not any(other == at[0] for other, _ in self._members):
                self._minted.pop(at[0], None)

    def _pass_on(self, id: int, epoch: int, said: Message) -> None:
        self._say("heard", client=id, epoch=epoch, data=as_text(said))
