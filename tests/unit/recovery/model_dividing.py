"""The same for jobs whose ranks divide a communicator: nobody meets, addresses come from the one that is divided."""

from __future__ import annotations

import pickle

from model import World
from model_meeting import Guest, MeetingWorld

from pyft.recovery import events as ev
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.wire import messages as wire

BEFORE = ("parent", "divide", "asking", "make")  # it has no view yet
AFTER = ("entry", "record", "tell", "taken")


class DividingWorld(MeetingWorld):
    """Ranks that know who is in the new communicator, and have not begun to make it.

    The one that is divided counts as repaired at once, when a new server begins.
    """

    def __init__(
        self, ranks: int, spares: int, faults: int, kinds: tuple[str, ...], agents: int = 1
    ) -> None:
        self.agents, self.faults, self.kinds = agents, faults, kinds
        self.plan = Plan(Gpus(ranks, spares))
        self.servers, self.epochs, self.timers, self.gave_up = {}, set(), [], set()
        self.entries: dict[int, bool] = {}
        self.started: set[int] = set()
        self.rooms = []
        self.parent: dict[int, int] = {}  # rank -> epoch
        for id in range(ranks):
            self.apply(self.plan.handle(ev.Attached(id, id, id)))
        self.parent = {id: server.epoch for id, server in self.servers.items()}

    def new_server(self, id: int, epoch: int) -> Guest:
        """Take the place in what is divided first."""
        first = id not in self.started
        self.started.add(id)
        return Guest(id, epoch, "divide" if first else "parent", first=first)

    def would_ask(self, server: Guest) -> bool:
        """Say whether the agent does not know that a server asks. In truth it asks all the time."""
        return server.stage == "asking" and not server.outbox and not self.is_heard(server)

    def can_work(self, server: Guest) -> bool:
        """Say whether a server has something to do without a message."""
        own = (*BEFORE, *AFTER)
        return (server.stage in own and server.stage != "asking") or World.can_work(self, server)

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, number = step
        if kind == "ask":
            self.say(self.servers[number], wire.WantExport, reason=wire.ExportReason.DIVIDING)
        else:
            World.do(self, step)

    def work(self, server: Guest) -> None:
        """Let a server take a message or go one stage on."""
        if server.inbox or server.stage not in (*BEFORE, *AFTER):
            World.work(self, server)
        elif server.stage == "parent":
            self.parent[server.id] = server.epoch
            server.stage = "want" if server.id in self.entries else "divide"
        elif server.stage == "divide":
            server.stage = "make" if server.first else "asking"
            self.say_making(server)
        elif server.stage == "make":
            server.view = self.parent | server.later
            server.view.pop(server.id)
            server.stage = "entry"
        elif server.stage in ("entry", "taken"):
            server.stage = "record"
            self.entries[server.id] = False
        elif server.stage == "record":
            server.stage = "tell"
            self.entries[server.id] = True
        else:
            server.stage = "live" if server.first else "joined"
            self.say(server, wire.Made)

    def take(self, server: Guest, message: wire.Message) -> None:
        """Let a server act on a message of the agent."""
        if isinstance(message, wire.Export) and server.stage not in ("asked", "asking"):
            return
        if isinstance(message, wire.DoReplace) and server.stage in BEFORE:
            server.later[message.rank] = pickle.loads(message.payload)
        if isinstance(message, wire.Export) and message.answer:
            self.make_alone(server)
            return
        World.take(self, server, message)
        if isinstance(message, wire.Join) and server.id not in self.entries:
            server.outbox.pop()  # not before it has records
            server.stage = "taken"

    def make_alone(self, server: Guest) -> None:
        """Let a server go on that nobody else can give a place."""
        if server.stage == "asking":
            server.stage = "make"
        elif self.entries[server.id]:
            server.view = self.parent | server.later  # asked for when it is used
            server.view.pop(server.id)
            server.stage = "alone"
        else:
            del self.entries[server.id]
            server.stage = "divide"
