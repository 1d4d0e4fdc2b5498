"""Communicators whose members are at several places: the head carries what they tell each other.

What decides is pyft.recovery.communicators and departures, as on one host; here are the places. An
agent *declares* the servers of its place and what they have said, at each connection. From then on
it passes on all that they say. Nothing is decided before all places have declared, and none of it
is in the ledger: another head is told again.

    new server's agent      head                       agents of all places
    heard: WANT_EXPORT -->  look n  ---------------->  what their servers have said is passed on,
                                   <----------------   then: looked n
                            from here on as on one host, with `tell` for each message

If a connection breaks, what was under way with that place begins again: a server that may have been
told the half of it is replaced (`doubt`). Without input or output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyft.hosts.head.declared import Declared, Doubt, Look, Order, Tell
from pyft.hosts.wire.servers import DEAD, IDS, MADE, MAKING, WORKS
from pyft.recovery.communicators import HEARD, Communicators, Group, Server
from pyft.recovery.departures import Departures, Known, Told
from pyft.recovery.events import Action, Received, Send, Timer
from pyft.wire import messages as wire
from pyft.wire.message import Message

REPAIR_S = 30.0  # for one step of a repair, as on one host
_TERMS, _REPAIRS = 4096, 1 << 20  # numbers of repairs are of one head
_FOLLOWS = (wire.WantExport, wire.Fresh)  # from what others have said just before


@dataclass
class Asked:
    """What waits until all places have looked."""

    event: Received
    number: int
    places: set[int]
    until: float


class Repairs:
    """All communicators of a job on several hosts."""

    def __init__(self, places: int, term: int = 0) -> None:
        self._places = set(range(places))
        self._number = term % _TERMS * _REPAIRS  # of the last repair, or look
        self._orders: list[Order] = []
        self.clear()

    def clear(self) -> None:
        """All go back: servers and communicators of now are none any more."""
        number = getattr(self, "communicators", None)
        self._number = max(self._number, number.number if number else 0)
        self._declared: set[int] = set()
        self._over: set[int] = set()
        self._servers: dict[int, tuple[int, int]] = {}  # epoch and state
        self._left: set[int] = set()
        self._made: set[int] = set()  # keys of communicators that some rank has had
        self._inbox: list[tuple[int, str, tuple[Any, ...]]] = []  # place, what is done, with what
        self._asked: list[Asked] = []
        self._timers: list[tuple[float, tuple[int | str, ...]]] = []
        self._now = 0.0
        self._orders = []
        self.communicators = Communicators(self._lives)
        self.communicators.number = self._number
        self.departures = Departures()

    def taken(self) -> list[Order]:
        """Return what is to be said since the last time."""
        taken, self._orders = self._orders, []
        return taken

    # ---- what places say ----------------------------------------------------------------------

    def declare(self, now: float, place: int, said: Declared) -> None:
        """Take all of a place anew; what is said of it from now on comes after that."""
        self._now = now
        self._forget(place)
        self._declared.add(place)
        for id, epoch, state, left in said.servers:
            self._servers[place * IDS + id] = (epoch, state)
            if left:
                self._left.add(place * IDS + id)
        for row in said.members:
            self._declare_member(place, *row)
        for key, id in said.minted:
            self.departures.groups.setdefault(key, Known()).minter = place * IDS + id
        for key, rank in said.broken:
            self.departures.groups.setdefault(key, Known()).gone.add(rank)
        for asked in self._asked:
            asked.places.discard(place)
        if self.is_complete:
            self._resume()

    def gone(self, place: int) -> None:
        """Note that nothing is heard of a place until it declares again."""
        if place not in self._over:
            self._declared.discard(place)
            self._inbox = [one for one in self._inbox if one[0] != place]

    def ended(self, now: float, place: int) -> None:
        """Note that a place's command has ended: nothing of it comes any more."""
        if place in self._over:
            return
        self._now = now
        self._over.add(place)
        self._declared.add(place)
        self._inbox = [one for one in self._inbox if one[0] != place]
        self._do(place, "leave", place)

    def stands(self, now: float, place: int, rows: Iterable[list[int]]) -> None:
        """Note what servers of a place are now: id, epoch, state, whether it has left."""
        self._now = now
        for id, epoch, state, left in rows:
            self._do(place, "stand", place * IDS + id, epoch, state, bool(left))

    def heard(self, now: float, place: int, id: int, epoch: int, message: Message) -> None:
        """Take what a server has said."""
        self._now = now
        self._do(place, "hear", Received(place * IDS + id, epoch, message))

    def looked(self, now: float, place: int, number: int) -> None:
        """Note that a place has passed on all that its servers had said when it was asked."""
        self._now = now
        self._do(place, "look", place, number)

    def tick(self, now: float) -> None:
        """Look at deadlines."""
        self._now = now
        if not self.is_complete:
            return
        for asked in [one for one in self._asked if one.until <= now]:
            self._asked.remove(asked)
            late = f"places {sorted(asked.places)} do not say what their servers have said"
            self._doubt((asked.event.id, asked.event.epoch), late)
        due = [what for when, what in self._timers if when <= now]
        self._timers = [one for one in self._timers if one[0] > now]
        for what in due:
            for silent, why in self.communicators.due(what):
                self._doubt(silent, why)

    # ---- asked by the coordinator -------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Say whether all places have declared."""
        return self._declared == self._places

    @property
    def is_under_way(self) -> bool:
        """Say whether a server of any place recovers, or is dead and is to be replaced."""
        return any(
            state != WORKS and id not in self._left for id, (_, state) in self._servers.items()
        )

    def why_not_alone(self, place: int, id: int) -> str:
        """Return why a server cannot be replaced while all others go on; nothing if it can."""
        number = place * IDS + id
        for key, group in self.communicators.groups.items():
            if any(server[0] == number for server in group.making.values()):
                return "it was making a communicator"
            known = self.departures.groups.get(key)
            if group.making and known and known.minter == number:
                return "others were meeting at it, to make a communicator"
        for key, known in self.departures.groups.items():
            if known.minter == number and key not in self._made:
                return "a communicator was to be made at it"
        return ""

    # ---- how that is done ---------------------------------------------------------------------

    def _do(self, place: int, what: str, *values: Any) -> None:
        """Do it in its turn, when all have declared."""
        if place not in self._declared:
            return  # it declares this as well
        self._inbox.append((place, what, values))
        self._empty_inbox()

    def _empty_inbox(self) -> None:
        does: dict[str, Callable[..., None]] = {
            "leave": self._leave,
            "stand": self._stand,
            "hear": self._hear,
            "look": self._look,
        }
        while self._inbox and self.is_complete:
            _, what, values = self._inbox.pop(0)
            does[what](*values)

    def _leave(self, place: int) -> None:
        """Of a place whose command has ended all servers are gone, and no other ones come."""
        for id in [id for id in self._servers if id // IDS == place]:
            self._stand(id, self._servers[id][0], DEAD, True)
        self._look(place, self._number)

    def _look(self, place: int, number: int) -> None:
        for asked in self._asked:
            if asked.number <= number:
                asked.places.discard(place)
        self._go_on()

    def _forget(self, place: int) -> None:
        """Forget what a place has said. What may have been half done with it begins again."""
        self._over.discard(place)
        self._inbox = [one for one in self._inbox if one[0] != place]
        self._asked = [one for one in self._asked if one.event.id // IDS != place]
        self._servers = {id: s for id, s in self._servers.items() if id // IDS != place}
        self._left = {id for id in self._left if id // IDS != place}
        for group in self.communicators.groups.values():
            self._interrupt(group, place)
        for known in self.departures.groups.values():
            known.made = {id for id in known.made if id // IDS != place}

    def _interrupt(self, group: Group, place: int) -> None:
        def is_elsewhere(server: Server) -> bool:
            return server[0] // IDS != place

        repair, group.repair = group.repair, None
        if repair and is_elsewhere(repair.new):
            if repair.stage in ("wait", "export"):
                group.queue.insert(0, (repair.new, repair.rank, repair.lost))
            else:
                why = f"place [{place}] was cut off while it got its place"
                self._doubt(repair.new, why, "adopted")
        group.queue = [one for one in group.queue if is_elsewhere(one[0])]
        group.lost = {one for one in group.lost if is_elsewhere(one)}
        group.making = {r: s for r, s in group.making.items() if is_elsewhere(s)}
        here = [r for r, s in group.members.items() if not is_elsewhere(s)]
        for rank in here:
            del group.members[rank]
            group.repaired.pop(rank, None)

    def _declare_member(
        self, place: int, key: int, rank: int, id: int, epoch: int, state: int, repaired: int
    ) -> None:
        group = self.communicators.groups.setdefault(key, Group())
        known = self.departures.groups.setdefault(key, Known())
        server = (place * IDS + id, epoch)
        known.ranks[rank] = server[0]
        if state != MAKING:
            self._made.add(key)
        if state == MAKING:
            group.making[rank] = server
        elif state == MADE:
            known.made.add(server[0])
            group.members[rank] = server
            if repaired:
                group.repaired[rank] = repaired
        self.communicators.number = max(self.communicators.number, repaired)

    def _resume(self) -> None:
        """All places have declared: go on, and say once more which have left."""
        for id in sorted(self._left - self.departures.left):
            self.departures.leave(id)
        self._tell(self.departures.all_told())
        self._empty_inbox()
        actions: list[Action] = []
        self.communicators.go_on(actions)
        self._perform(actions)
        self._go_on()

    def _lives(self, id: int, epoch: int) -> bool:
        known, state = self._servers.get(id, (0, DEAD))
        return state != DEAD and known == epoch

    def _stand(self, id: int, epoch: int, state: int, left: bool) -> None:
        before = self._servers.get(id)
        self._servers[id] = (epoch, state)
        actions: list[Action] = []
        if before and before[1] != DEAD and (state == DEAD or epoch != before[0]):
            self._asked = [one for one in self._asked if one.event.id != id]
            self.communicators.died(id, actions)
        if left and id not in self._left:
            self._left.add(id)
            self._tell(self.departures.leave(id))
        self._perform(actions)

    def _hear(self, event: Received) -> None:
        if not self._lives(event.id, event.epoch):
            return
        said = event.message
        if isinstance(said, wire.Suspect):
            if server := self.communicators.server_of(said.key, said.rank):
                self._doubt(server, f"the links of member [{said.rank}] are broken")
        elif isinstance(said, _FOLLOWS):
            self._ask(event)
        elif isinstance(said, HEARD):
            self._decide(event)

    def _ask(self, event: Received) -> None:
        """Decide when what it may follow from has been heard. One that repeats itself waits already."""
        if any(one.event == event for one in self._asked):
            return
        self._number += 1
        places = self._places - self._over
        self._asked.append(Asked(event, self._number, set(places), self._now + REPAIR_S))
        self._orders += [Look(place, self._number) for place in sorted(places)]

    def _go_on(self) -> None:
        while ready := next((one for one in self._asked if not one.places), None):
            self._asked.remove(ready)
            if self._lives(ready.event.id, ready.event.epoch):
                self._decide(ready.event)

    def _decide(self, event: Received) -> None:
        actions: list[Action] = []
        if isinstance(event.message, wire.Made):
            self._made.add(event.message.key)
        self._tell(self.departures.heard(event))
        silent = list(self.communicators.received(event, actions))
        self._perform(actions)
        for server, why in silent:
            self._doubt(server, why)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Timer):
                self._timers.append((self._now + REPAIR_S, action.what))

    def _send(self, action: Send) -> None:
        message = action.message
        group = self.communicators.groups.get(getattr(message, "key", -1))
        repair = group.repair if group else None
        own = repair and repair.new == (action.id, action.epoch)
        where = (action.id // IDS, action.id % IDS, action.epoch)
        self._orders.append(Tell(*where, message, repair.number if own and repair else 0))

    def _tell(self, told: Iterable[Told]) -> None:
        """Tell servers which have left; a rank without one is told when the next one has its place."""
        for id, key, rank in told:
            epoch, state = self._servers.get(id, (0, DEAD))
            if state != DEAD:
                self._orders.append(Tell(id // IDS, id % IDS, epoch, wire.Left(key, rank)))

    def _doubt(self, server: Server, why: str, sign: str = "communicator") -> None:
        if self._lives(*server):
            id, epoch = server
            self._orders.append(Doubt(id // IDS, id % IDS, epoch, sign, why))
