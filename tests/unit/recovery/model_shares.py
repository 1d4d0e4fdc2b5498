"""All that can happen to ranks that share snapshots: cuts, deaths, agents, and messages in any order.

Stores as proxy/checkpoint/store has them, servers as proxy/server/recovery/snapshotter, the agent as
pyft/agent/{comparison,sharing} puts it together. Whatever happens, a rank that would have to start
anew finds each content of its point.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyft.recovery.replicas import Agreed, Key, Replicas
from pyft.recovery.shares import Commit, Decision, Shares

BLOCKS: list[Key] = [(0, 1 << 20), (1 << 20, 1 << 20)]
FIRST = 3  # the step at which everything may begin to happen; before, all goes well


@dataclass
class Point:
    step: int  # 0: of this rank alone
    seq: int
    resume: int  # the step that comes next
    own: dict[Key, bytes]
    names: dict[Key, tuple[int, bytes]]


@dataclass
class Store:
    current: Point
    waiting: Point | None = None
    whole: bool = False
    lent: dict[Key, bytes] = field(default_factory=dict)
    rows: dict[Key, int] = field(default_factory=dict)
    seq: int = 0

    def is_copying(self) -> bool:
        """Say whether the cut in the room is not whole yet."""
        return self.waiting is not None and not self.whole

    def has(self, key: Key, digest: bytes) -> bool:
        kept = [self.current.own, self.lent]
        if self.waiting and self.whole:
            kept.append(self.waiting.own)
        return any(one.get(key) == digest for one in kept)


@dataclass
class Server:
    next: int  # step
    asked: int = 0
    prepared: int = 0
    committed: int = 0
    dropped: int = 0
    forcing: bool = False
    dead: bool = False
    inbox: list[Decision] = field(default_factory=list)
    outbox: list[tuple[str, int, int]] = field(default_factory=list)


class SharesWorld:
    jit = False

    def __init__(
        self, ranks: int, cuts: int, kills: int = 0, forced: int = 0, agents: int = 0
    ) -> None:
        self.last = FIRST + cuts - 1
        self.kills, self.forced, self.agents = kills, forced, agents
        self.forgotten = False  # what a cut waits for may be known to nobody
        self.stores = {id: Store(Point(0, 0, 1, {}, {})) for id in range(ranks)}
        self.servers = {id: Server(1) for id in range(ranks)}
        self.replicas, self.shares, self.planned = Replicas(), Shares(jit=self.jit), 0
        self.kept = json.dumps(self.shares.note())
        for _ in range(1, FIRST):
            for kind in ("cut", "copied", "hear", "hear", "told", "turn"):
                for id in self.servers:
                    while (kind, id) in list(self.moves(id)):
                        self.do((kind, id))
                        if kind == "cut":
                            break
        assert all(store.rows for store in self.stores.values()), "everybody leaves something"

    def freeze(self) -> bytes:
        return pickle.dumps(self.__dict__)

    def moves(self, id: int) -> Iterator[tuple[str, int]]:
        server, store = self.servers[id], self.stores[id]
        if server.outbox:
            yield "hear", id
            if self.agents:
                yield "die", id
        if server.dead:
            yield "exited", id
            return
        if server.inbox:
            yield "told", id
        if store.waiting and not store.whole:
            yield "copied", id
        if not store.is_copying() and self.is_decided(id):
            yield "turn", id
        if store.is_copying():
            return  # the next cut comes when the copies of this one have been made
        if server.next <= self.last and not server.forcing and server.next < self.horizon():
            yield "cut", id

    def is_decided(self, id: int) -> bool:
        """Say whether the agent has said what becomes of the cut that waits."""
        server = self.servers[id]
        waits = self.stores[id].waiting is not None
        return waits and max(server.committed, server.dropped) >= server.asked

    def horizon(self) -> int:
        """Ranks exchange gradients: nobody is two steps ahead. Before FIRST, all go together."""
        slowest = min(server.next for server in self.servers.values())
        return slowest + 1 if slowest < FIRST else slowest + 2

    def next_steps(self) -> Iterator[tuple[str, int]]:
        for id, server in self.servers.items():
            yield from self.moves(id)
            if self.kills and not server.dead and self.may_die():
                yield "kill", id
            can_cut = not server.forcing and not self.stores[id].is_copying()
            if self.forced and not server.dead and can_cut:
                yield "force", id

    def may_die(self) -> bool:
        return True

    def do(self, move: tuple[str, int]) -> None:
        kind, id = move
        getattr(self, kind)(id)
        for one in self.servers:
            self.check(one)

    # ---- servers ------------------------------------------------------------------------------

    def turn(self, id: int) -> None:
        """Do what the agent has decided about the cut that waits."""
        server, store = self.servers[id], self.stores[id]
        if store.waiting and server.committed >= server.asked:
            assert store.whole, "a cut that is not whole"
            self.promote(store)
        elif store.waiting and server.dropped >= server.asked:
            store.waiting, store.whole = None, False
        if server.forcing and not store.waiting:
            server.forcing = False
            self.snapshot_alone(id)

    def promote(self, store: Store) -> None:
        assert store.waiting
        store.current, store.waiting, store.whole = store.waiting, None, False
        store.lent = {}

    def cut(self, id: int) -> None:
        server, store = self.servers[id], self.stores[id]
        self.turn(id)
        step, server.next = server.next, server.next + 1
        if store.waiting:
            server.outbox.append(("staged", step, 0))
            return
        store.seq += 1
        digests = {key: b"%d at step %d" % (key[0], step) for key in BLOCKS}
        names = {key: (by, digests[key]) for key, by in store.rows.items()}
        own = {key: digest for key, digest in digests.items() if key not in names}
        store.waiting = Point(step, store.seq, server.next, own, names)
        server.asked = step
        server.outbox.append(("staged", step, store.seq))

    def copied(self, id: int) -> None:
        server = self.servers[id]
        self.stores[id].whole = True
        if server.dropped < server.asked:  # or nobody waits for it any more
            server.outbox.append(("prepared", server.asked, 1))

    def force(self, id: int) -> None:
        """Let a rank need room in its log."""
        self.forced -= 1
        server = self.servers[id]
        if self.stores[id].waiting:
            server.forcing = True
            server.outbox.append(("decision-request", server.asked, 0))
        else:
            self.snapshot_alone(id)

    def snapshot_alone(self, id: int) -> None:
        server, store = self.servers[id], self.stores[id]
        store.seq += 1
        if store.current.step:
            store.lent = dict(store.current.own)
        own = {key: b"%d of rank %d" % (store.seq, id) for key in BLOCKS}
        store.current = Point(0, store.seq, server.next, own, {})

    def kill(self, id: int) -> None:
        self.kills -= 1
        self.servers[id].dead, self.servers[id].inbox = True, []

    def told(self, id: int) -> None:
        decision, server = self.servers[id].inbox.pop(0), self.servers[id]
        if isinstance(decision, Commit):
            server.committed = max(server.committed, decision.step)
        else:
            server.dropped = max(server.dropped, decision.step)
        if server.forcing:
            self.turn(id)

    # ---- the agent ----------------------------------------------------------------------------

    def hear(self, id: int) -> None:
        kind, step, what = self.servers[id].outbox.pop(0)
        self.act(self.decisions(id, kind, step, what))
        if self.planned != self.replicas.version:
            self.planned = self.replicas.version
            for one, rows in self.shares.plan(self.replicas.common()).items():
                self.stores[one].rows = rows
            self.kept = json.dumps(self.shares.note())

    def decisions(self, id: int, kind: str, step: int, what: int) -> list[Decision]:
        if kind != "staged":
            return (self.shares.prepared if kind == "prepared" else self.shares.decide_now)(
                id, step
            )
        point, table, rows = self.stores[id].waiting, None, None
        if what and point and point.seq == what:
            table = point.own | {key: digest for key, (_, digest) in point.names.items()}
            rows = {key: owner for key, (owner, _) in point.names.items()}
        decisions = self.shares.staged(id, step, what, table, rows)
        for judged in self.replicas.staged(id, step, table):
            assert isinstance(judged, Agreed), "nobody's memory changes here"
            decisions += self.shares.compared(judged.id, judged.cut)
        return decisions

    def act(self, decisions: list[Decision], tells: bool = True) -> None:
        if any(isinstance(one, Commit) and self.shares.is_grouped(one.id) for one in decisions):
            self.kept = json.dumps(self.shares.note())
        for decision in decisions if tells else []:
            if not self.servers[decision.id].dead:
                self.servers[decision.id].inbox.append(decision)

    def die(self, id: int) -> None:
        """Let the agent die over a message, which the next one hears again."""
        self.agents -= 1
        self.forgotten = True
        self.act(self.decisions(id, *self.servers[id].outbox[0]), tells=False)
        note = self.replicas.note()
        self.replicas, self.shares = Replicas(), Shares(jit=self.jit)
        self.planned = 0
        self.replicas.restore(json.loads(json.dumps(note)))
        self.act(self.shares.restore(json.loads(self.kept)))

    def exited(self, id: int) -> None:
        """Take note of a death, and start the next server."""
        while self.servers[id].outbox:
            self.hear(id)
        self.act(self.shares.restarted(id))
        for judged in self.replicas.restarted(id):
            self.act(self.shares.compared(judged.id, judged.cut))
        store = self.stores[id]
        if self.shares.entry(id) > store.current.seq:
            assert store.whole, "a point that is not whole in the store"
            assert store.waiting
            assert store.waiting.seq == self.shares.entry(id)
            self.promote(store)
        store.waiting, store.whole = None, False
        # One that starts from a cut of its own may be past a step without having said so. Others
        # learn of it at its next cut.
        self.forgotten |= not store.current.step
        self.servers[id] = Server(store.current.resume)

    # ---- what must hold -----------------------------------------------------------------------

    def check(self, id: int) -> None:
        """Say whether a new server of a rank would find all it needs."""
        store = self.stores[id]
        kept = dict((row[0], row[3]) for row in json.loads(self.kept)["ranks"])
        point = store.current
        if kept.get(id, 0) > point.seq:
            assert store.waiting is not None, "what was decided is gone"
            point = store.waiting
        for key, (owner, digest) in point.names.items():
            assert self.stores[owner].has(key, digest), f"rank {id} misses a block of rank {owner}"

    def check_end(self) -> None:
        """Nobody waits for a cut that will not come."""
        if not self.forgotten:
            assert not any(store.waiting for store in self.stores.values()), "a cut waits for ever"
