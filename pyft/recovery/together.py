"""Ranks that go back together (rollback.py), in a plan's terms: its ranks, and messages.

WantId, MadeAs: the id under which a communicator is made, as the library has it. Line: the numbers
of one communicator, each followed by Prepared for the cut itself. DecisionRequest: that cut cannot
wait. Pace, PaceOfOthers: how many cuts may lie between two that are snapshotted.
"""

from __future__ import annotations

from pyft.recovery import events
from pyft.recovery.events import Action, Audited, Mode, Received, Send
from pyft.recovery.line import Line
from pyft.recovery.orders import Abort, Audit, Commit, MadeAs, Order, Unaudited
from pyft.recovery.rank import Rank, State
from pyft.recovery.rollback import RollbackSets
from pyft.wire import messages as wire
from pyft.wire.layout import PAIR_COUNTERS


def line_of(said: wire.Line) -> Line:
    """Return what a Line says; what is no whole pair at its end is left out."""
    line = Line(said.rank, said.collectives)
    whole = len(said.payload) // PAIR_COUNTERS.size * PAIR_COUNTERS.size
    for pair in PAIR_COUNTERS.each(said.payload[:whole]):
        line.sent[pair.rank], line.received[pair.rank] = pair.sent, pair.received
    return line


def heard(sets: RollbackSets, event: Received) -> list[Order]:
    """Take a message of a server that works or recovers."""
    id, said = event.id, event.message
    if isinstance(said, wire.WantId):
        return sets.want_id(id, said.key, said.rank, said.payload.hex())
    if isinstance(said, wire.Made):
        sets.made(id, said.key, said.rank)
    elif isinstance(said, wire.Ended):
        sets.ended(id, said.key)
    elif isinstance(said, wire.Line):
        sets.told(id, said.key, line_of(said))
    elif isinstance(said, wire.Prepared):
        return sets.came_to(id, said.step, said.entry if said.whole else 0)
    elif isinstance(said, wire.DecisionRequest):
        return sets.withdraw(id, said.step)
    elif isinstance(said, wire.Pace):
        return sets.paced(id, said.cuts)
    return []


def order_of(order: Order) -> wire.Message:
    """Return what an order is in a message."""
    if isinstance(order, MadeAs):
        return wire.MadeAs(order.key, bytes.fromhex(order.made_as))
    if isinstance(order, Commit):
        return wire.Commit(order.step, final=True)
    if isinstance(order, Abort):
        return wire.Abort(order.step)
    return wire.PaceOfOthers(order.cuts)


def action_of(rank: Rank, order: Order) -> Action:
    """Return what is done about an order."""
    if isinstance(order, Audit):
        return events.Audit(rank.id, rank.epoch, order.step, order.entry, order.since)
    if isinstance(order, Unaudited):
        return events.Unaudited(rank.id, order.step)
    return Send(rank.id, rank.epoch, order_of(order))


class Together:
    """Which ranks of a plan go back together. Without sets each goes back alone."""

    def __init__(self, sets: RollbackSets | None, ranks: dict[int, Rank]) -> None:
        self.sets = sets
        self._ranks = ranks

    def others(self, rank: Rank) -> list[Rank]:
        """Return the ranks that go back with one."""
        ids = self.sets.of(rank.id) - {rank.id} if self.sets else set()
        return [self._ranks[id] for id in sorted(ids)]

    def unneeded(self, gone: set[int]) -> set[int]:
        """Return which of these that have ended no other rank goes back with, and forget their cuts."""
        if self.sets is None:
            return gone
        found = {id for id in gone if self.sets.of(id) <= gone}
        self.sets.forget(found)
        return found

    def lacking(self, rank: Rank) -> str:
        """Say why there is no rank to repeat collectives with."""
        for other in self.others(rank):
            if other.state in (State.GIVEN_UP, State.GONE):
                words = "has ended" if other.state is State.GONE else "has been given up"
                return f"rank [{other.rank}] {words}, with which this one would have to replay"
        return ""

    def go_back(self, rank: Rank) -> list[Rank]:
        """Note that a rank has failed; return whose servers have to be ended because of it."""
        if self.sets is None:
            return []
        self.sets.go_back(self.sets.of(rank.id))
        ended = (State.RUNNING, State.RECOVERING)
        return [other for other in self.others(rank) if other.state in ended]

    def replay_serially(self, rank: Rank) -> list[Rank]:
        """Note that a rank replays entry by entry; return which have begun to replay otherwise."""
        if self.sets is None:
            return []
        self.sets.replay_serially(rank.id)
        recovering = [one for one in self.others(rank) if one.state is State.RECOVERING]
        if otherwise := [one for one in recovering if one.mode is Mode.NORMAL]:
            self.sets.go_back(self.sets.of(rank.id))
        return otherwise

    def is_serial(self, rank: Rank) -> bool:
        """Say whether a rank replays entry by entry with the others."""
        return self.sets is not None and self.sets.is_serial(rank.id)

    def lived(self, rank: Rank) -> None:
        """When all work that go back together, what happens next is another fault."""
        if self.sets and all(one.state is State.RUNNING for one in (rank, *self.others(rank))):
            self.sets.lived(rank.id)

    def received(self, event: Received) -> list[Action]:
        """Return what servers are told; one that is gone hears of its line when it is started anew."""
        if self.sets is None:
            return []
        return self._actions(heard(self.sets, event))

    def audited(self, event: Audited) -> list[Action]:
        """Return what follows from an audit that has ended well, or that is not made."""
        return self._actions(self.sets.audit_ended(event.id, event.step)) if self.sets else []

    def _actions(self, orders: list[Order]) -> list[Action]:
        told = ((self._ranks.get(one.id), one) for one in orders)
        return [action_of(rank, one) for rank, one in told if rank and rank.has_server]

    def adopted(self) -> list[Action]:
        """Return the lines once more, for servers that an agent before this one has not told."""
        lines = ((rank, self.sets.line(id)) for id, rank in self._ranks.items() if self.sets)
        again = self._actions(self.sets.unaudited()) if self.sets else []
        return [
            *again,
            *(
                Send(rank.id, rank.epoch, wire.Commit(line, final=True))
                for rank, line in lines
                if line and rank.state is State.RUNNING
            ),
        ]
