"""All that can happen where each rank is at a place of its own: agents, a head, and links that break.

Plans, tables and the head's part are the real ones; servers are those of the model of one host. What
goes between agents and the head waits in queues, and each order of taking it out is tried.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recovery"))
import model

from pyft.hosts.head import declared, repairs
from pyft.hosts.place.elsewhere import Elsewhere
from pyft.hosts.wire.servers import OF_SERVERS, TO_SERVERS, message_of
from pyft.recovery import events as ev
from pyft.recovery import facts
from pyft.recovery.classify import of_agent
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import Rank, State


class Place:
    """An agent and its link to the head. A place has one rank, of the place's number."""

    def __init__(self, number: int, spares: int) -> None:
        self.number = number
        self.plan = Plan(Gpus(number + 1, spares))
        self.elsewhere = Elsewhere(self.say)
        self.up: list[tuple[str, dict[str, Any]]] = []
        self.down: list[declared.Order] = []

    def say(self, kind: str, **values: Any) -> None:
        """Send it, as JSON has it."""
        self.up.append((kind, json.loads(json.dumps(values))))

    def handle(self, event: ev.Event) -> list[ev.Action]:
        """Take an event as an agent does."""
        if isinstance(event, ev.Received) and isinstance(event.message, OF_SERVERS):
            self.elsewhere.hear(event.id, event.epoch, event.message)
            return []
        actions = self.plan.handle(event)
        self.elsewhere.follow(self.plan.ranks.values(), self.plan.departures.left)
        return actions


class Places:
    """What the model of one host takes for its plan."""

    def __init__(self, ranks: int, spares: int) -> None:
        self.all = [Place(number, spares) for number in range(ranks)]

    @property
    def ranks(self) -> dict[int, Rank]:
        """Return all ranks of the job."""
        return {id: rank for place in self.all for id, rank in place.plan.ranks.items()}

    @property
    def gpus(self) -> Gpus:
        """Return all that are lost."""
        gpus = Gpus(1, 0)
        gpus.lost = {g: why for place in self.all for g, why in place.plan.gpus.lost.items()}
        return gpus

    def handle(self, event: ev.Event) -> list[ev.Action]:
        """Take what happens at a place."""
        number = int(event.what[1]) if isinstance(event, ev.Due) else event.id
        return self.all[number].handle(event)


class World(model.World):
    """A job in which each rank has one communicator with all others, and each is elsewhere.

    `cuts`: how often a link may break; `heads`: how often the head may die; `deaths`: how often agents.
    """

    plan: Places

    def __init__(
        self,
        ranks: int,
        faults: int,
        kinds: tuple[str, ...] = ("kill",),
        cuts: int = 0,
        heads: int = 0,
        deaths: int = 0,
    ) -> None:
        self.plan = Places(ranks, 1)
        self.servers: dict[int, model.Server] = {}
        self.epochs: set[int] = set()
        self.timers: list[ev.Timer] = []
        self.gave_up: set[int] = set()
        self.faults, self.kinds, self.cuts, self.heads = faults, kinds, cuts, heads
        self.agents, self.dues, self.term, self.deaths = 1, 0, 1, deaths
        self.head = repairs.Repairs(ranks, self.term)
        for id in range(ranks):
            self.apply(self.plan.handle(ev.Attached(id, id, id)))
        for id, server in self.servers.items():
            server.stage, server.outbox = "live", []
            server.view = {r: s.epoch for r, s in self.servers.items() if r != id}
            self.say(server, model.wire.Made)
            self.plan.handle(server.outbox.pop())
        for place in self.plan.all:
            place.up = []
            self.connect(place)
        self.settle()

    def settle(self) -> None:
        """Let all that is on its way arrive."""
        while any(place.up or place.down for place in self.plan.all):
            for place in self.plan.all:
                while place.up:
                    self.upwards(place)
                while place.down:
                    self.downwards(place)

    # ---- what can happen next -----------------------------------------------------------------

    def next_steps(self) -> Iterator[tuple[str, int]]:
        """Return the names of everything that may happen now."""
        happens = list(self.servers_steps())
        for place in self.plan.all:
            happens += [("up", place.number)] if place.up else []
            happens += [("down", place.number)] if place.down else []
        yield from happens
        works = any(kind not in self.kinds for kind, _ in happens)
        if works and self.cuts:
            yield from (("cut", place.number) for place in self.plan.all)
        if works and self.heads:
            yield "head", -1
        if works and self.deaths:
            yield from (("agent", place.number) for place in self.plan.all)
        if not works and (self.timers or self.waits_at_head()):
            yield "late", -1

    def waits_at_head(self) -> bool:
        """Say whether a deadline of the head is not over."""
        groups = self.head.communicators.groups.values()
        return any(group.repair for group in groups) or bool(self.head._asked)

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, number = step
        if kind == "up":
            self.upwards(self.plan.all[number])
        elif kind == "down":
            self.downwards(self.plan.all[number])
        elif kind == "cut":
            self.cuts -= 1
            self.cut(self.plan.all[number])
        elif kind == "head":
            self.heads -= 1
            self.term += 1
            self.head = repairs.Repairs(len(self.plan.all), self.term)
            for place in self.plan.all:
                self.cut(place)
        elif kind == "agent":
            self.deaths -= 1
            self.replace_agent(self.plan.all[number])
        elif kind == "late":
            timers, self.timers = self.timers, []
            for timer in timers:
                self.apply(self.plan.handle(ev.Due(timer.what)))
            self.head.tick(1e9)
            self.spread()
        else:
            super().do(step)

    def apply(self, actions: list[ev.Action]) -> None:
        """Carry out actions. Epochs are a place's own."""
        self.epochs = set()
        super().apply(actions)

    # ---- between agents and the head ----------------------------------------------------------

    def cut(self, place: Place) -> None:
        """Lose all that is on its way."""
        place.up, place.down = [], []
        self.head.gone(place.number)
        self.connect(place)

    def connect(self, place: Place) -> None:
        """Let an agent be welcome."""
        self.look_ahead(place)
        place.up = []  # what is said before it has declared counts for nothing
        for id, epoch in place.elsewhere.declare():
            fault = of_agent("adopted", "the connection broke")
            self.apply(self.plan.handle(ev.Suspected(id, epoch, fault)))

    def replace_agent(self, place: Place) -> None:
        """Let an agent die, and another one take over what was kept and what can be seen."""
        id, before, notes = place.number, place.plan, place.elsewhere.note()
        place.plan = Plan(Gpus(1, 0))
        facts.restore(place.plan, json.loads(json.dumps(facts.of_plan(before))))
        place.elsewhere = Elsewhere(place.say)
        place.elsewhere.restore(json.loads(json.dumps(notes)))
        self.timers = [timer for timer in self.timers if timer.what[1] != id]
        self.head.gone(id)
        rank, server = before.ranks[id], self.servers.get(id)
        epoch = server.epoch if server else rank.epoch
        where = (id, rank.rank, rank.device, rank.gpu)
        seen = Rank(*where, epoch, self.seen_state(id), rank.mode)
        seen.fault = of_agent("adopted", "")
        self.apply(place.plan.adopt(seen))
        self.apply(place.plan.adopted())
        self.look_ahead(place)
        if server is None and id not in self.gave_up:
            self.apply(self.plan.handle(ev.Exited(id, epoch, model.KILLED)))
        place.up, place.down = [], []
        self.connect(place)

    def look_ahead(self, place: Place) -> None:
        """Hear all that the servers of a place have said."""
        server = self.servers.get(place.number)
        while server and server.outbox:
            self.apply(self.plan.handle(server.outbox.pop(0)))

    def upwards(self, place: Place) -> None:
        """Let the head take a message."""
        kind, said = place.up.pop(0)
        number, now = place.number, 0.0
        if kind == "declare":
            self.head.declare(now, number, declared.Declared(**said))
        elif kind == "stands":
            self.head.stands(now, number, said["servers"])
        elif kind == "looked":
            self.head.looked(now, number, said["number"])
        else:
            message = message_of(said, OF_SERVERS)
            self.head.heard(now, number, said["client"], said["epoch"], message)
        self.spread()

    def spread(self) -> None:
        """Send what the head has decided."""
        for order in self.head.taken():
            self.plan.all[order.place].down.append(order)

    def downwards(self, place: Place) -> None:
        """Let an agent take a message."""
        order = place.down.pop(0)
        if isinstance(order, declared.Look):
            self.look_ahead(place)
            place.elsewhere.looked(order.number)
        elif isinstance(order, declared.Doubt):
            fault = of_agent(order.sign, order.why)
            self.apply(self.plan.handle(ev.Suspected(order.id, order.epoch, fault)))
        else:
            assert isinstance(order.message, TO_SERVERS)
            place.elsewhere.told(order.id, order.epoch, order.message, order.repair)
            self.apply([ev.Send(order.id, order.epoch, order.message)])

    def freeze(self) -> bytes:
        """Return everything that decides what can happen."""
        self.forget_deadlines()
        return model.pickle.dumps(self.__dict__)

    def forget_deadlines(self) -> None:
        """Forget those that are over."""
        self.timers = [one for one in self.timers if not self.is_over(one)]

    # ---- what must hold -----------------------------------------------------------------------

    def check_end(self) -> None:
        """All live and agree; nobody waits, at any place or at the head."""
        super().check_end()
        assert not any(place.up or place.down for place in self.plan.all)
        assert self.head.is_complete
        works = all(rank.state is State.RUNNING for rank in self.plan.ranks.values())
        assert works != self.head.is_under_way  # one that waits for a GPU may come back
        assert not self.waits_at_head()
