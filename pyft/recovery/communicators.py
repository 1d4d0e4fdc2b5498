"""Communicators across a recovery: the agent carries what members have to tell each other.

    new server          agent                     living members
    WANT_EXPORT  ----->
                        DO_EXPORT  -------------> one of them
                 <----- EXPORT     <------------- EXPORTED (who cannot: the next one is asked)
    FRESH        ----->
                        DO_REPLACE -------------> all of them
                 <----- JOIN       <------------- REPLACED
    MADE         ----->

One repair per communicator at a time: the next dead member waits until the one before has its place,
since two steps to the same epoch exclude each other. A member that
dies in between is counted out; a new server that dies ends its repair, and the next one asks again.
Orders have the number of their repair, and answers repeat it: one to a repair that is over counts for nothing.
When all members are dead, the first one that asks takes its place alone, from its records (MADE),
and the others join it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyft.recovery.events import (
    NOBODY_LIVES,
    OTHERS_ENDED,
    Action,
    Message,
    Received,
    Send,
    Timer,
)

Server = tuple[int, int]  # id, epoch
Silent = Iterator[tuple[Server, str]]  # who did not do its part, and what that was


@dataclass
class Repair:
    """One new server that takes a place in one communicator."""

    number: int
    new: Server
    rank: int
    stage: str = "export"  # export, fresh, replace; join, alone: until it says MADE
    exporter: Server = (-1, 0)
    refused: list[Server] = field(default_factory=list)  # could not export
    pending: list[Server] = field(default_factory=list)


@dataclass
class Group:
    """A communicator: who made it, by rank, whether that server still lives or not."""

    members: dict[int, Server] = field(default_factory=dict)
    # The last repair that each member has taken part in: the newest knows the present epoch.
    repaired: dict[int, int] = field(default_factory=dict)
    queue: list[tuple[Server, int]] = field(default_factory=list)
    repair: Repair | None = None


class Communicators:
    """All communicators of a job, by key."""

    def __init__(self, lives: Callable[[int, int], bool]) -> None:
        self._lives = lives
        self.groups: dict[int, Group] = {}
        self.number = 0  # of the last repair

    def server_of(self, key: int, rank: int) -> Server | None:
        """Return the server that holds a place."""
        group = self.groups.get(key)
        return group.members.get(rank) if group else None

    def received(self, event: Received, actions: list[Action]) -> Silent:
        """Take a message of a living server; append what follows, yield who failed."""
        server = (event.id, event.epoch)
        group = self.groups.setdefault(event.key, Group())
        if event.kind is Message.MADE:
            group.members[event.rank] = server
            repair = group.repair
            if repair and repair.new == server and repair.stage in ("alone", "join"):
                group.repaired[repair.rank] = repair.number
                group.repair = None
        elif event.kind is Message.ENDED:
            if group.members.get(event.rank) == server:
                del group.members[event.rank]
        elif event.kind is Message.WANT_EXPORT:
            group.queue.append((server, event.rank))
        elif group.repair:
            yield from self._step(group, group.repair, event, actions)
        self._next(event.key, group, actions)

    def died(self, id: int, actions: list[Action]) -> None:
        """Note that the server of a rank is dead, or will be."""
        for key, group in list(self.groups.items()):
            group.queue = [entry for entry in group.queue if entry[0][0] != id]
            if repair := group.repair:
                if repair.new[0] == id:
                    group.repair = None
                elif repair.stage == "export" and repair.exporter[0] == id:
                    self._ask_for_export(key, group, repair, actions)
                elif repair.stage == "replace":
                    repair.pending = [server for server in repair.pending if server[0] != id]
                    self._join_if_ready(key, group, actions)
            self._next(key, group, actions)

    def due(self, what: tuple[int | str, ...]) -> Silent:
        """Yield who has kept a repair waiting for too long."""
        _, key, number, stage = what
        group = self.groups.get(int(key))
        repair = group.repair if group else None
        if repair is None or (repair.number, repair.stage) != (number, stage):
            return
        late = {"export": [repair.exporter], "replace": repair.pending}
        for server in list(late.get(repair.stage, [repair.new])):
            yield server, f"no answer in a repair of communicator [{key:#x}] ({stage})"

    # ---- one repair ---------------------------------------------------------------------------

    def _next(self, key: int, group: Group, actions: list[Action]) -> None:
        while group.queue and group.repair is None:
            server, rank = group.queue.pop(0)
            self.number += 1
            group.repair = Repair(self.number, server, rank)
            self._ask_for_export(key, group, group.repair, actions)

    def _candidates(self, group: Group, rank: int) -> list[Server]:
        """Return the living members but one: first who knows the present epoch, the oldest first."""
        ranks = [r for r, s in group.members.items() if r != rank and self._lives(*s)]
        ranks.sort(key=lambda r: (-group.repaired.get(r, 0), group.members[r][1]))
        return [group.members[r] for r in ranks]

    def _ask_for_export(
        self, key: int, group: Group, repair: Repair, actions: list[Action]
    ) -> None:
        living = self._candidates(group, repair.rank)
        # Who has refused is asked once more when nobody else lives any more.
        left = [server for server in living if server not in repair.refused] or living
        if left:
            repair.exporter = left[0]
            repair.refused = [server for server in repair.refused if server != left[0]]
            actions.append(Send(*left[0], Message.DO_EXPORT, key, repair.rank, repair.number))
            actions.append(Timer(("repair", key, repair.number, "export")))
            return
        others = [r for r in group.members if r != repair.rank]
        code = NOBODY_LIVES if others else OTHERS_ENDED
        actions.append(Send(*repair.new, Message.EXPORT, key, repair.rank, code))
        repair.stage = "alone"
        actions.append(Timer(("repair", key, repair.number, "alone")))

    def _step(self, group: Group, repair: Repair, event: Received, actions: list[Action]) -> Silent:
        server = (event.id, event.epoch)
        number, code = event.code >> 32, event.code & 0xFFFFFFFF
        mine = number == repair.number
        if event.kind is Message.EXPORTED and repair.stage == "export" and mine:
            if server == repair.exporter and code:
                yield from self._refused(group, repair, event, actions)
            elif server == repair.exporter:
                self._exported(repair, event, actions)
        elif event.kind is Message.FRESH and repair.stage == "fresh" and server == repair.new:
            self._replace(group, repair, event, actions)
        elif event.kind is Message.REPLACED and server in repair.pending and mine:
            repair.pending.remove(server)
            if code:
                # The new server knows less than this member, or is not there any more: it is begun
                # again with one that is. A member that is healthy is not to pay for that.
                yield repair.new, f"a repair of communicator [{event.key:#x}] failed [{code}]"
            self._join_if_ready(event.key, group, actions)

    def _refused(
        self, group: Group, repair: Repair, event: Received, actions: list[Action]
    ) -> Silent:
        """Ask the next one. When all have refused, it is theirs to begin again, with the new one."""
        repair.refused.append(repair.exporter)
        living = self._candidates(group, repair.rank)
        if any(server not in repair.refused for server in living):
            self._ask_for_export(event.key, group, repair, actions)
            return
        code = event.code & 0xFFFFFFFF
        for server in living:
            yield server, f"cannot export communicator [{event.key:#x}]: [{code}]"

    def _exported(self, repair: Repair, event: Received, actions: list[Action]) -> None:
        repair.stage = "fresh"
        info = event.payload
        actions.append(Send(*repair.new, Message.EXPORT, event.key, repair.rank, 0, info))
        actions.append(Timer(("repair", event.key, repair.number, "fresh")))

    def _replace(
        self, group: Group, repair: Repair, event: Received, actions: list[Action]
    ) -> None:
        repair.stage = "replace"
        repair.pending = self._candidates(group, repair.rank)
        # Asked later for an export, they have done this before: a server works in order.
        asked = set(repair.pending)
        group.repaired |= {r: repair.number for r, s in group.members.items() if s in asked}
        for server in repair.pending:
            actions.append(
                Send(
                    *server,
                    *(Message.DO_REPLACE, event.key, repair.rank, repair.number, event.payload),
                )
            )
        actions.append(Timer(("repair", event.key, repair.number, "replace")))
        self._join_if_ready(event.key, group, actions)

    def _join_if_ready(self, key: int, group: Group, actions: list[Action]) -> None:
        repair = group.repair
        if repair is None or repair.stage != "replace" or repair.pending:
            return
        repair.stage = "join"
        actions.append(Send(*repair.new, Message.JOIN, key, repair.rank))
        actions.append(Timer(("repair", key, repair.number, "join")))
