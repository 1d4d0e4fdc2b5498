"""All that can happen to a small job: its servers, what they say, and faults at any instant."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyft.recovery import events as ev
from pyft.recovery import facts
from pyft.recovery.classify import Fault, of_agent, of_exit, row_of
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import Rank, State
from pyft.wire import messages as wire

KILLED = of_exit(9)
LOST = Fault(row_of("api", 999), "API code [999]")
KEY = 7


@dataclass
class Server:
    """A process. `stage`: want, asked, export, joining, alone, joined, live."""

    id: int
    epoch: int
    stage: str = "want"
    view: dict[int, int] = field(default_factory=dict)  # rank -> epoch of whom it is linked to
    dying: Fault | None = None  # dead, and the agent does not know it yet
    mute: bool = False  # it does nothing any more
    deaf: bool = False  # it takes no message any more, and nobody sees that but by a deadline
    stays: bool = False  # it cannot be ended
    refuses: bool = False  # it cannot export its communicator
    inbox: list[wire.Message] = field(default_factory=list)
    outbox: list[ev.Received] = field(default_factory=list)


class World:
    """A job in which each rank has one communicator with all others."""

    together = False  # it cannot be repaired
    dues = 0

    def __init__(
        self,
        ranks: int,
        spares: int,
        faults: int,
        kinds: tuple[str, ...],
        agents: int = 1,
        dues: int = 0,
    ) -> None:
        """Let up to `dues` deadlines pass early. They pass anyhow when nothing else can happen."""
        self.agents = agents
        self.plan = Plan(Gpus(ranks, spares), replay_all=self.together)
        self.servers: dict[int, Server] = {}
        self.epochs: set[int] = set()
        self.timers: list[ev.Timer] = []
        self.gave_up: set[int] = set()
        self.faults = faults
        self.kinds = kinds
        self.dues = dues
        for id in range(ranks):
            self.apply(self.plan.handle(ev.Attached(id, id, id)))
        for id, server in self.servers.items():
            server.stage, server.outbox = "live", []
            server.view = {r: s.epoch for r, s in self.servers.items() if r != id}
            self.say(server, wire.Made)
        for server in self.servers.values():
            self.plan.handle(server.outbox.pop())

    def new_server(self, id: int, epoch: int) -> Server:
        """Return the process that is started for a rank."""
        return Server(id, epoch)

    # ---- what the agent does ------------------------------------------------------------------

    def apply(self, actions: list[ev.Action]) -> None:
        """Carry out actions; fail when one breaks an invariant."""
        for action in actions:
            if isinstance(action, ev.Start):
                assert action.id not in self.servers, "two servers of one rank"
                assert action.epoch > max(self.epochs, default=0), "epochs grow"
                self.epochs.add(action.epoch)
                self.servers[action.id] = self.new_server(action.id, action.epoch)
            elif isinstance(action, ev.Kill):
                if self.together and action.id not in self.servers:
                    continue  # the agent before knew of its death
                server = self.servers[action.id]
                assert server.epoch == action.epoch
                if not server.stays:
                    server.dying = server.dying or KILLED
            elif isinstance(action, ev.Send):
                server = self.servers.get(action.id)
                if server and server.epoch == action.epoch:
                    server.inbox.append(action.message)
            elif isinstance(action, ev.Timer):
                if action not in self.timers:
                    self.timers.append(action)
            elif isinstance(action, ev.GiveUp):
                assert action.text
                self.gave_up.add(action.id)
            elif isinstance(action, ev.Refuse):
                raise AssertionError(action.text)

    def say(self, server: Server, kind: type[wire.Message], **more: int | bytes) -> None:
        """Put a message on its way to the agent."""
        about = {} if kind is wire.Live else {"key": KEY, "rank": server.id}
        said = kind(**(about | more))
        server.outbox.append(ev.Received(server.id, server.epoch, said))

    # ---- what can happen next -----------------------------------------------------------------

    def next_steps(self) -> Iterator[tuple[str, int]]:
        """Return the names of everything that may happen now."""
        happens = list(self.servers_steps())
        yield from happens
        if self.agents > 1 and happens:
            yield "agent", -1
            for kind, id in happens:
                if kind in ("deliver", "exit"):  # it dies after so many actions that follow
                    yield from ((f"{kind}/{done}", id) for done in range(3))
        if all(kind in self.kinds for kind, _ in happens):
            yield from (("due", number) for number in range(len(self.timers)))
        elif self.dues:
            yield from (("early", number) for number in range(len(self.timers)))

    def servers_steps(self) -> Iterator[tuple[str, int]]:
        """Return what may happen to servers."""
        for id, server in self.servers.items():
            if server.outbox:
                yield "deliver", id
            if server.dying:
                yield "exit", id
                continue
            if server.mute:
                if self.plan.ranks[id].state in (State.RUNNING, State.RECOVERING):
                    yield "suspect", id
            elif (server.inbox and not server.deaf) or self.can_work(server):
                yield "work", id
            if self.faults and not server.mute:
                for kind in self.kinds:
                    yield kind, id

    def can_work(self, server: Server) -> bool:
        """Say whether a server has something to do without a message."""
        return server.stage in ("want", "export", "alone", "joined")

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, id = step
        if kind == "agent":
            self.next_agent()
            return
        if "/" in kind:
            self.interrupted(kind, id)
            return
        if kind in ("due", "early"):
            self.dues -= kind == "early"
            self.apply(self.plan.handle(ev.Due(self.timers.pop(id).what)))
            return
        server = self.servers[id]
        if kind == "deliver":
            self.apply(self.plan.handle(server.outbox.pop(0)))
        elif kind == "exit":
            del self.servers[id]
            self.apply(self.plan.handle(ev.Exited(id, server.epoch, server.dying or KILLED)))
        elif kind == "suspect":
            fault = of_agent("heartbeat", "silent")
            self.apply(self.plan.handle(ev.Suspected(id, server.epoch, fault)))
        elif kind == "work":
            self.work(server)
        else:
            self.faults -= 1
            if kind in ("mute", "refuses", "deaf"):
                setattr(server, kind, True)
            elif kind == "stays":
                server.mute = server.stays = True
            else:
                server.dying = {"kill": KILLED, "lost": LOST}[kind]

    # ---- the agent dies -----------------------------------------------------------------------

    def interrupted(self, step: str, id: int) -> None:
        """Let the agent decide something, and die when it has done a part of it."""
        kind, _, done = step.partition("/")
        server = self.servers[id]
        if kind == "deliver":
            event = server.outbox[0]  # it is taken out when all is done
        else:
            event = ev.Exited(id, server.epoch, server.dying or KILLED)
            del self.servers[id]
        self.apply(self.plan.handle(event)[: int(done)])
        self.next_agent()

    def next_agent(self) -> None:
        """Let the agent die, and another one take over."""
        self.agents -= 1
        self.timers = []
        before, self.plan = self.plan, Plan(Gpus(1, 0), replay_all=self.together)
        facts.restore(self.plan, json.loads(json.dumps(facts.of_plan(before))))
        dead = []
        for id, rank in before.ranks.items():
            server = self.servers.get(id)
            epoch = server.epoch if server else rank.epoch
            gpu = rank.gpu
            seen = Rank(id, rank.rank, rank.device, gpu, epoch, self.seen_state(id), rank.mode)
            seen.fault = of_agent("adopted", "")
            self.apply(self.plan.adopt(seen))
            if server is None and id not in self.gave_up:
                dead.append((id, epoch))
        self.apply(self.plan.adopted())
        for server in list(self.servers.values()):  # what they said comes before who has died
            while server.outbox:
                self.apply(self.plan.handle(server.outbox.pop(0)))
        for id, epoch in dead:
            self.apply(self.plan.handle(ev.Exited(id, epoch, KILLED)))

    def seen_state(self, id: int) -> State:
        """Return what the new agent sees of a rank."""
        server = self.servers.get(id)
        if id in self.gave_up:
            return State.GIVEN_UP
        if server and server.stage != "live":
            return State.FENCING
        waits = server and any(isinstance(m.message, wire.Live) for m in server.outbox)
        return State.RECOVERING if waits else State.RUNNING

    def work(self, server: Server) -> None:
        """Let a server take a message or go one stage on."""
        if server.inbox and not server.deaf:
            self.take(server, server.inbox.pop(0))
        elif server.stage == "want":
            server.stage = "asked"
            self.say(server, wire.WantExport)
        elif server.stage == "export":
            server.stage = "joining"
            self.say(server, wire.Fresh, payload=pickle.dumps(server.epoch))
        elif server.stage == "alone":
            server.stage = "joined"
            self.say(server, wire.Made)
        elif server.stage == "joined":
            server.stage = "live"
            self.say(server, wire.Live)

    def take(self, server: Server, message: wire.Message) -> None:
        """Let a server act on a message of the agent."""
        if isinstance(message, wire.DoExport):
            view = pickle.dumps(server.view | {server.id: server.epoch})
            answer = {"result": int(server.refuses), "repair": message.repair, "payload": view}
            self.say(server, wire.Exported, rank=message.rank, **answer)
        elif isinstance(message, wire.DoReplace):
            server.view[message.rank] = pickle.loads(message.payload)
            self.say(server, wire.Replaced, rank=message.rank, repair=message.repair)
        elif isinstance(message, wire.Export) and not message.answer:
            server.view = pickle.loads(message.payload)
            server.view.pop(server.id, None)
            server.stage = "export"
        elif isinstance(message, wire.Export):
            assert message.answer is wire.ExportAnswer.NONE_LIVES
            server.stage = "alone"
        elif isinstance(message, wire.Join):
            assert server.stage == "joining"
            server.stage = "joined"
            self.say(server, wire.Made)

    # ---- what must hold -----------------------------------------------------------------------

    def check_end(self) -> None:
        """Nothing can happen any more but faults: all ranks that have not stopped live and agree."""
        states = {id: rank.state for id, rank in self.plan.ranks.items()}
        stopped = {id for id, state in states.items() if state in (State.GIVEN_UP, State.WAITING)}
        assert stopped >= self.gave_up
        for id in stopped & self.servers.keys():
            assert self.servers[id].stays, "the server of a rank that has stopped"
            assert states[id] is State.GIVEN_UP
            assert self.plan.ranks[id].gpu in self.plan.gpus.lost, "a server is there still"
        for id, server in self.servers.items():
            if id not in stopped and not self.waits(server):
                assert states[id] is State.RUNNING, (states, server)
                assert server.stage == "live", server
        self.check_views(stopped)

    def waits(self, server: Server) -> bool:
        """Say whether a server is right to wait for a rank that has stopped."""
        return False

    def check_views(self, stopped: set[int]) -> None:
        """Each knows the others' newest servers."""
        present = {id: s.epoch for id, s in self.servers.items() if id not in stopped}
        for id in present:
            view = {r: e for r, e in self.servers[id].view.items() if r not in stopped}
            others = {r: e for r, e in present.items() if r != id}
            assert view == others, (self.servers[id], present)

    def freeze(self) -> bytes:
        """Return everything that decides what can happen. Deadlines that are over change nothing."""
        over = [] if self.dues else [timer for timer in self.timers if self.is_over(timer)]
        for timer in over:
            assert not self.plan.handle(ev.Due(timer.what)), "a deadline that is over"
            self.timers.remove(timer)
        return pickle.dumps(self.__dict__)

    def is_over(self, timer: ev.Timer) -> bool:
        """Say whether what had to be done until then is done."""
        if timer.what[0] == "fence":
            rank = self.plan.ranks[int(timer.what[1])]
            return (rank.epoch, rank.state) != (timer.what[2], State.FENCING)
        _, key, number, _, question = timer.what
        repair = self.plan.communicators.groups[int(key)].repair
        return repair is None or (repair.number, repair.questions) != (number, question)


def explore(world: World, limit: int) -> int:
    """Visit every state that can be reached; return their number."""
    seen = set()
    todo = [world.freeze()]
    while todo:
        state = todo.pop()
        now = type(world).__new__(type(world))
        now.__dict__ = pickle.loads(state)
        steps = list(now.next_steps())
        if all(kind in getattr(now, "kinds", ()) for kind, _ in steps):
            now.check_end()  # it may be that no further fault comes
        for number, step in enumerate(steps):
            if number:
                now.__dict__ = pickle.loads(state)
            now.do(step)
            after = now.freeze()
            digest = hash(after)
            if digest not in seen:
                seen.add(digest)
                assert len(seen) < limit, "more states than expected"
                todo.append(after)
    return len(seen)
