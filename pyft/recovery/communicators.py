"""Communicators across a recovery: the agent carries what members have to tell each other.

    new server          agent                     living members
    WANT_EXPORT  ----->
                        DO_EXPORT  -------------> one of them
                 <----- EXPORT     <------------- EXPORTED (if it cannot: the next one is asked)
    FRESH        ----->
                        DO_REPLACE -------------> all of them
                 <----- JOIN       <------------- REPLACED
    MADE         ----->

One repair per communicator at a time: the next dead member waits until the one before has its
place, since two steps to the same epoch exclude each other. A member that dies in between is
counted out; a new server that dies ends its repair, and the next one asks again. Orders have the
number of their repair, and answers repeat it: one to a repair that is over counts for nothing. When
all members are dead, the first one that asks takes its place alone, from its records (MADE), and
the others join it.

A rank that makes a communicator for the first time says so (MAKING) before it goes to meet the
others, and MADE when it has records of it. Between the two lies the exchange of addresses, of which
nothing here knows whether it has come about. MAKING has to be heard before what others say later,
for which the router looks ahead (pyft/agent/lifecycle/router.py). One that dies afterwards leaves
its address with the others: its new server finds that there is no meeting any more, as does a
living one whose meeting ended before it had an answer. They are *lost* and say so again and again
(WANT_EXPORT, LOST_MEETING), while they try to meet anew, which takes all ranks. As soon as a living
member has MADE, they get their places from there, as any dead one's successor. So one exchange
counts, or another one among all ranks, never two. One that comes from records of a communicator
that no living rank has MADE waits for those that are making it, until each has or has said, after
that question, that it is lost.

A part of another communicator takes no meeting, but addresses from there. One that has said MAKING
takes them afterwards: those of all new servers that have said it before, since these have their
places there first. A new server asks (DIVIDING, again and again) and is answered as if it came from
records: others may have the part already, or be making it, with the address of its predecessor. Two
that ask at the same time do not wait for each other: they count as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from pyft.recovery.events import Action, Received, Send, Timer
from pyft.wire import messages as wire
from pyft.wire.messages import ExportAnswer, ExportReason

Server = tuple[int, int]  # id, epoch
Step = wire.Exported | wire.Fresh | wire.Replaced  # of a repair
HEARD = (
    *(wire.Made, wire.Making, wire.Ended, wire.WantExport),
    *(wire.Exported, wire.Fresh, wire.Replaced, wire.Minted, wire.Broken),
)
Silent = Iterator[tuple[Server, str]]  # one that did not do its part, and what that was


@dataclass
class Repair:
    """One new server that takes a place in one communicator."""

    number: int
    new: Server
    rank: int
    lost: bool  # it has never had a place
    # wait: for those that are making it; export, fresh, replace; join, alone: until it says MADE
    stage: str = "export"
    exporter: Server = (-1, 0)
    refused: list[Server] = field(default_factory=list)  # could not export
    pending: list[Server] = field(default_factory=list)
    questions: int = 0  # so far: each has a deadline of its own

    def timer(self, key: int) -> Timer:
        """Return the deadline of what is asked now."""
        self.questions += 1
        return Timer(("repair", key, self.number, self.stage, self.questions))


@dataclass
class Group:
    """A communicator: which servers made it, by rank, whether that server still lives or not."""

    members: dict[int, Server] = field(default_factory=dict)
    # The last repair that each member has taken part in: the newest knows the present epoch.
    repaired: dict[int, int] = field(default_factory=dict)
    queue: list[tuple[Server, int, bool]] = field(default_factory=list)  # with `lost`, as below
    repair: Repair | None = None
    making: dict[int, Server] = field(default_factory=dict)  # by rank
    lost: set[Server] = field(default_factory=set)  # of these, and sure of it since the last repair


class Communicators:
    """All communicators of a job, by key."""

    def __init__(self, lives: Callable[[int, int], bool]) -> None:
        self._lives = lives
        self.groups: dict[int, Group] = {}
        self.number = 0  # of the last repair
        # These were getting their places when the agent before died.
        self.interrupted: list[Server] = []

    def server_of(self, key: int, rank: int) -> Server | None:
        """Return the server that holds a place."""
        group = self.groups.get(key)
        return group.members.get(rank) if group else None

    def received(self, event: Received, actions: list[Action]) -> Silent:
        """Take a message of a living server; append what follows, yield the servers that failed."""
        server = (event.id, event.epoch)
        said = event.message
        if not isinstance(said, HEARD):
            return
        group = self.groups.setdefault(said.key, Group())
        if isinstance(said, wire.Made):
            yield from self._made(group, server, said.rank, said.key)
        elif isinstance(said, wire.Making):
            group.making[said.rank] = server
            if group.repair and group.repair.new == server and group.repair.stage == "alone":
                group.repair = None  # its predecessor had left no records
        elif isinstance(said, wire.Ended):
            if group.members.get(said.rank) == server:
                del group.members[said.rank]
        elif isinstance(said, wire.WantExport):
            self._wanted(group, server, said)
        elif group.repair and isinstance(said, Step):
            yield from self._step(group, group.repair, server, said, actions)
        self._go_on(said.key, group, actions)
        if not (group.members or group.making or group.queue or group.repair):
            del self.groups[said.key]  # all have ended it

    def died(self, id: int, actions: list[Action]) -> None:
        """Note that the server of a rank is dead, or will be."""
        for key, group in list(self.groups.items()):
            group.queue = [entry for entry in group.queue if entry[0][0] != id]
            group.making = {r: s for r, s in group.making.items() if s[0] != id}
            group.lost = {server for server in group.lost if server[0] != id}
            if repair := group.repair:
                if repair.new[0] == id:
                    group.repair = None
                elif repair.stage == "export" and repair.exporter[0] == id:
                    self._ask_for_export(key, group, repair, actions)
                elif repair.stage == "replace":
                    repair.pending = [server for server in repair.pending if server[0] != id]
                    self._join_if_ready(key, group, actions)
            self._go_on(key, group, actions)

    def due(self, what: tuple[int | str, ...]) -> Silent:
        """Yield the servers that have kept a repair waiting for too long."""
        _, key, number, stage, question = what
        group = self.groups.get(int(key))
        repair = group.repair if group else None
        if repair is None or (repair.number, repair.questions) != (number, question):
            return  # what it asked for has come
        late = {
            "wait": self._on_the_way(group, repair.rank),
            "export": [repair.exporter],
            "replace": repair.pending,
        }
        for server in list(late.get(repair.stage, [repair.new])):
            yield server, f"no answer in a repair of communicator [{key:#x}] ({stage})"

    def go_on(self, actions: list[Action]) -> None:
        """Begin what waits, after groups were changed from outside."""
        for key, group in list(self.groups.items()):
            self._go_on(key, group, actions)

    def tidy(self, ids: Container[int]) -> None:
        """Forget communicators of which none of these ranks is a member, or will be."""
        for key, group in list(self.groups.items()):
            servers = [*group.members.values(), *group.making.values()]
            if not (group.queue or group.repair or any(id in ids for id, _ in servers)):
                del self.groups[key]

    # ---- one repair ---------------------------------------------------------------------------

    def _made(self, group: Group, server: Server, rank: int, key: int) -> Silent:
        repair = group.repair
        group.members[rank] = server
        group.making.pop(rank, None)
        group.queue = [entry for entry in group.queue if entry[0] != server]
        in_place = repair and repair.new == server and repair.stage in ("alone", "join")
        if repair and repair.new == server:
            # Otherwise all ranks have met anew, and none has been told anything else.
            group.repaired |= {rank: repair.number} if in_place else {}
            group.repair = None
        repair = group.repair
        others_went_on = group.repaired or (repair and repair.stage != "wait")
        if server in group.lost and others_went_on and not in_place:
            yield (
                server,
                f"it has met others of communicator [{key:#x}] that are not there any more",
            )
        group.lost.discard(server)

    def _wanted(self, group: Group, server: Server, said: wire.WantExport) -> None:
        if said.reason is not ExportReason.FROM_RECORDS:
            group.lost.add(server)
        repair = group.repair
        asked = any(entry[0] == server for entry in group.queue)
        if not asked and not (repair and repair.new == server):
            group.queue.append((server, said.rank, said.reason is ExportReason.LOST_MEETING))

    def _go_on(self, key: int, group: Group, actions: list[Action]) -> None:
        if group.repair and group.repair.stage == "wait":
            self._ask_for_export(key, group, group.repair, actions)
        while group.repair is None:
            able = (e for e in group.queue if not e[2] or self._candidates(group, e[1]))
            entry = next(able, None)
            if entry is None:
                return
            group.queue.remove(entry)
            self.number += 1
            group.repair = Repair(self.number, *entry)
            self._ask_for_export(key, group, group.repair, actions)

    def _on_the_way(self, group: Group, rank: int) -> list[Server]:
        """Return the living servers but one that may have met the others, and will say so."""
        making = [server for r, server in group.making.items() if r != rank]
        return [server for server in making if self._lives(*server) and server not in group.lost]

    def _candidates(self, group: Group, rank: int) -> list[Server]:
        """Return the living members but one: those of the present epoch first, the oldest first."""
        ranks = [r for r, s in group.members.items() if r != rank and self._lives(*s)]
        ranks.sort(key=lambda r: (-group.repaired.get(r, 0), group.members[r][1]))
        return [group.members[r] for r in ranks]

    def _ask_for_export(
        self, key: int, group: Group, repair: Repair, actions: list[Action]
    ) -> None:
        living = self._candidates(group, repair.rank)
        # One that has refused is asked once more when no other lives any more.
        left = [server for server in living if server not in repair.refused] or living
        if left:
            repair.exporter = left[0]
            actions.append(Send(*left[0], wire.DoExport(key, repair.rank, repair.number)))
            repair.stage = "export"
            actions.append(repair.timer(key))
            return
        if repair.lost:
            group.queue.append((repair.new, repair.rank, True))
            group.repair = None
            return
        if repair.stage != "wait":
            group.lost.clear()
            repair.stage = "wait"
            actions.append(repair.timer(key))
        if self._on_the_way(group, repair.rank):
            return
        others = [r for r in group.members if r != repair.rank]
        answer = ExportAnswer.NONE_LIVES if others else ExportAnswer.OTHERS_ENDED
        actions.append(Send(*repair.new, wire.Export(key, repair.rank, answer)))
        repair.stage = "alone"
        actions.append(repair.timer(key))

    def _step(
        self, group: Group, repair: Repair, server: Server, said: Step, actions: list[Action]
    ) -> Silent:
        if isinstance(said, wire.Fresh):
            if repair.stage == "fresh" and server == repair.new:
                self._replace(group, repair, said, actions)
        elif said.repair != repair.number:
            return
        elif isinstance(said, wire.Exported):
            if repair.stage != "export" or server != repair.exporter:
                return
            if said.result:
                yield from self._refused(group, repair, said, actions)
            else:
                self._exported(repair, said, actions)
        elif server in repair.pending:
            repair.pending.remove(server)
            if said.result:
                # The new server knows less than this member, or is not there any more: it is begun
                # again with one that is. A member that is healthy is not to pay for that.
                why = f"a repair of communicator [{said.key:#x}] failed [{said.result}]"
                yield repair.new, why
            self._join_if_ready(said.key, group, actions)

    def _refused(
        self, group: Group, repair: Repair, said: wire.Exported, actions: list[Action]
    ) -> Silent:
        """Ask the next one. When all have refused, it is theirs to begin again, with the new one."""
        repair.refused.append(repair.exporter)
        living = self._candidates(group, repair.rank)
        if any(server not in repair.refused for server in living):
            self._ask_for_export(said.key, group, repair, actions)
            return
        for server in living:
            yield server, f"cannot export communicator [{said.key:#x}]: [{said.result}]"

    def _exported(self, repair: Repair, said: wire.Exported, actions: list[Action]) -> None:
        repair.stage = "fresh"
        answer = wire.Export(said.key, repair.rank, ExportAnswer.HAVE_IT, said.payload)
        actions.append(Send(*repair.new, answer))
        actions.append(repair.timer(said.key))

    def _replace(
        self, group: Group, repair: Repair, said: wire.Fresh, actions: list[Action]
    ) -> None:
        repair.stage = "replace"
        repair.pending = self._candidates(group, repair.rank)
        repair.pending += self._on_the_way(group, repair.rank)
        # Asked later for an export, they have done this before: a server works in order.
        asked = set(repair.pending)
        group.repaired |= {r: repair.number for r, s in group.members.items() if s in asked}
        order = wire.DoReplace(said.key, repair.rank, repair.number, said.payload)
        actions += [Send(*server, order) for server in repair.pending]
        actions.append(repair.timer(said.key))
        self._join_if_ready(said.key, group, actions)

    def _join_if_ready(self, key: int, group: Group, actions: list[Action]) -> None:
        repair = group.repair
        if repair is None or repair.stage != "replace" or repair.pending:
            return
        repair.stage = "join"
        actions.append(Send(*repair.new, wire.Join(key, repair.rank)))
        actions.append(repair.timer(key))
