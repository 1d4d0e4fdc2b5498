"""The same for jobs whose ranks are about to make their communicator: they meet, and may die there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from model import KEY, Server, World

from pyft.recovery import events as ev
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import State
from pyft.wire import messages as wire


@dataclass
class Guest(Server):
    """A server. `stage`: start, enter, meeting, entry, record, tell; and those of Server."""

    stage: str = "start"
    first: bool = True
    lost: bool = False
    later: dict[int, int] = field(default_factory=dict)  # whom it replaces when it has a view


@dataclass
class Room:
    """Where ranks meet, in a process. Closed when all have come; who was there is told one by one."""

    host: tuple[int, int]
    joined: dict[int, int] = field(default_factory=dict)  # rank -> epoch
    table: dict[int, int] | None = None
    first: bool = False  # of the job: nobody leaves it for another one


class MeetingWorld(World):
    """A job whose first server of rank 0 has a room, before anybody has come."""

    def __init__(
        self, ranks: int, spares: int, faults: int, kinds: tuple[str, ...], agents: int = 1
    ) -> None:
        self.agents, self.faults, self.kinds = agents, faults, kinds
        self.plan = Plan(Gpus(ranks, spares))
        self.servers, self.epochs, self.timers, self.gave_up = {}, set(), [], set()
        self.entries: dict[int, bool] = {}  # in the rank's table: whether it has records
        self.started: set[int] = set()
        self.rooms: list[Room] = []
        for id in range(ranks):
            self.apply(self.plan.handle(ev.Attached(id, id, id)))
        self.rooms.append(Room((0, self.servers[0].epoch), first=True))
        for server in self.servers.values():
            self.work(server)

    def new_server(self, id: int, epoch: int) -> Guest:
        """Start from records, if there are any."""
        first = id not in self.started
        self.started.add(id)
        return Guest(id, epoch, "want" if id in self.entries else "start", first=first)

    def is_there(self, server: tuple[int, int]) -> bool:
        """Say whether a process lives."""
        found = self.servers.get(server[0])
        return found is not None and found.epoch == server[1] and not found.dying

    def room_of(self, server: Guest) -> Room | None:
        """Return the room in which a server is."""
        for room in self.rooms:
            if room.joined.get(server.id) == server.epoch and self.is_there(room.host):
                return room
        return None

    def servers_steps(self) -> Iterator[tuple[str, int]]:
        """Return what may happen to servers and in rooms."""
        over = all(server.stage == "live" for server in self.servers.values())
        faults, self.faults = (
            self.faults,
            0 if over else self.faults,
        )  # test_model.py has the others
        steps = list(super().servers_steps())
        self.faults = faults
        yield from steps
        for number, room in enumerate(self.rooms):
            if not self.is_there(room.host) or room.table:
                continue
            known = all(
                r in self.servers and self.servers[r].epoch == e for r, e in room.joined.items()
            )
            if known and len(room.joined) == len(self.plan.ranks):
                yield "close", number  # who has just died may have been there still
        for id, server in self.servers.items():
            if not server.dying and not server.mute and self.would_ask(server):
                yield "ask", id

    def would_ask(self, server: Guest) -> bool:
        """Say whether the agent does not know that a server is lost. In truth it asks all the time."""
        asks = server.lost and server.stage in ("enter", "meeting") and not server.outbox
        return asks and not self.is_heard(server)

    def is_heard(self, server: Guest) -> bool:
        """Say whether the agent knows that a server asks, and has its question before it."""
        group = self.plan.communicators.groups.get(KEY)
        name = (server.id, server.epoch)
        if group is None or name not in group.lost:
            return False
        repaired = group.repair is not None and group.repair.new == name
        return repaired or any(entry[0] == name for entry in group.queue)

    def can_work(self, server: Guest) -> bool:
        """Say whether a server has something to do without a message."""
        if server.stage == "meeting":
            room = self.room_of(server)
            return room is None or room.table is not None
        if server.stage == "enter":
            open_room = any(self.is_there(r.host) and not r.table for r in self.rooms)
            return open_room or not server.lost or not self.has_room(server)
        return server.stage in ("start", "entry", "record", "tell", "taken") or super().can_work(
            server
        )

    def has_room(self, server: Guest) -> bool:
        """Say whether a server has opened a room that is there."""
        return any(r.host == (server.id, server.epoch) and not r.table for r in self.rooms)

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, number = step
        if kind == "close":
            self.rooms[number].table = dict(self.rooms[number].joined)
        elif kind == "ask":
            server = self.servers[number]
            self.say(server, wire.WantExport, reason=wire.ExportReason.LOST_MEETING)
        else:
            super().do(step)
        self.rooms = [room for room in self.rooms if self.is_there(room.host)]
        for room in self.rooms:
            if kind == "exit" and room.joined.get(number, 0) not in self.epochs_of(number):
                del room.joined[number]

    def epochs_of(self, id: int) -> tuple[int, ...]:
        """Return 0 and the epoch of the server of a rank."""
        return (0, self.servers[id].epoch) if id in self.servers else (0,)

    def work(self, server: Guest) -> None:
        """Let a server take a message or go one stage on."""
        if server.inbox or server.stage not in (
            *("start", "enter", "meeting", "entry", "record", "tell", "taken"),
        ):
            super().work(server)
        elif server.stage == "start":
            server.stage, server.lost = "enter", not server.first
            self.say_making(server)
            self.enter(server)
        elif server.stage == "enter":
            self.enter(server)
        elif server.stage == "meeting":
            self.meet(server)
        elif server.stage in ("entry", "taken"):
            server.stage = "record"
            self.entries[server.id] = False
        elif server.stage == "record":
            server.stage = "tell"
            self.entries[server.id] = True
        else:
            server.stage = "live" if server.first else "joined"
            self.say(server, wire.Made)

    def say_making(self, server: Guest) -> None:
        """Say that the communicator is being made. The agent hears it before what follows from it.

        For that it looks for this message with all servers before it acts on another one's
        (pyft/agent/lifecycle/router.py).
        """
        self.say(server, wire.Making)
        self.apply(self.plan.handle(server.outbox.pop()))

    def enter(self, server: Guest) -> None:
        """Go into the room that is open; open one if there is none."""
        for room in self.rooms:
            if not room.table:
                if not self.is_there((server.id, room.joined.get(server.id, 0))):
                    room.joined[server.id] = server.epoch
                    server.stage = "meeting"
                return
        server.lost = True
        self.rooms.append(Room((server.id, server.epoch)))

    def meet(self, server: Guest) -> None:
        """Learn who the others are, or that there is no room any more."""
        room = self.room_of(server)
        if room is None:
            server.lost, server.stage = True, "enter"
        else:
            self.leave(server, room)
            server.view = room.table | server.later
            server.view.pop(server.id)
            server.stage = "entry"

    def leave(self, server: Guest, room: Room | None) -> None:
        """Leave a room, and close one's own unless there are answers to be given."""
        if room and not room.table:
            room.joined.pop(server.id)
        name = (server.id, server.epoch)
        self.rooms = [r for r in self.rooms if r.host != name or r.table or r.first]

    def take(self, server: Guest, message: wire.Message) -> None:
        """Let a server act on a message of the agent."""
        before = server.stage in ("start", "enter", "meeting")
        if isinstance(message, wire.Export) and server.stage not in ("asked", "enter", "meeting"):
            return  # all have met meanwhile
        if isinstance(message, wire.DoReplace) and before:
            server.later[message.rank] = pickle.loads(message.payload)
        if isinstance(message, wire.Export) and before:
            self.leave(server, self.room_of(server))
        if isinstance(message, wire.Export) and message.answer:
            server.stage = "alone" if self.entries[server.id] else "start"
            if server.stage == "start":
                del self.entries[server.id]
            return
        super().take(server, message)
        if isinstance(message, wire.Join) and server.id not in self.entries:
            server.outbox.pop()  # not before it has records
            server.stage = "taken"

    def seen_state(self, id: int) -> State:
        """Return what the new agent sees of a rank."""
        server = self.servers.get(id)
        if server and server.first and id not in self.gave_up:
            return State.RUNNING
        return super().seen_state(id)
