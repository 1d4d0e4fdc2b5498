"""Ranks that keep what they have in common in their GPUs, and only there.

Servers as proxy/checkpoint/memory/pre_images.cc and snapshot/commit_waits.cc have them. Whenever a rank
dies, the others can give it each content of its point; or it has written it down itself before.
"""

from __future__ import annotations

from collections.abc import Iterator

from model_shares import BLOCKS, SharesWorld, Store

from pyft.recovery.replicas import Key

Contents = dict[Key, bytes]


def memory_of(step: int) -> Contents:
    return {key: b"%d at step %d" % (key[0], step) for key in BLOCKS}


class JitWorld(SharesWorld):
    jit = True

    def __init__(self, *numbers: int) -> None:
        self.live: dict[int, Contents] = {id: {} for id in range(numbers[0])}
        self.copies: dict[int, Contents] = {id: {} for id in self.live}  # in the GPU
        self.wanted: dict[int, Contents] = {id: {} for id in self.live}  # by the last joint point
        self.lent_for: dict[int, int] = dict.fromkeys(self.live, 0)  # step of what is lent
        self.asked: set[int] = set()  # gates that wait for a decision
        super().__init__(*numbers)

    def may_die(self) -> bool:
        """Two at once are too many, unless it has been written down: so say the conditions."""
        return not any(server.dead for server in self.servers.values())

    def moves(self, id: int) -> Iterator[tuple[str, int]]:
        for move in super().moves(id):
            if move[0] != "cut" or not self.stores[id].waiting:
                yield move
            elif id not in self.asked:
                yield "gate", id

    # ---- servers ------------------------------------------------------------------------------

    def gate(self, id: int) -> None:
        """Let a gate ask what becomes of the cut before."""
        self.asked.add(id)
        self.servers[id].outbox.append(("decision-request", self.servers[id].asked, 0))

    def turn(self, id: int) -> None:
        super().turn(id)
        if not self.stores[id].waiting:
            self.asked.discard(id)

    def cut(self, id: int) -> None:
        """Let a gate, an optimizer step and a cut follow each other."""
        self.turn(id)
        self.keep(id)
        self.live[id] = memory_of(self.servers[id].next)
        super().cut(id)

    def keep(self, id: int) -> None:
        for key, content in self.wanted[id].items():
            assert content in (self.live[id].get(key), self.copies[id].get(key)), "lost"
        self.copies[id] = dict(self.wanted[id])

    def promote(self, store: Store) -> None:
        id = next(id for id, one in self.stores.items() if one is store)
        assert store.waiting
        lent = store.lent if store.waiting.step <= self.lent_for[id] else {}
        super().promote(store)
        store.lent = lent
        self.wanted[id] = {key: digest for key, (_, digest) in store.current.names.items()}

    def snapshot_alone(self, id: int) -> None:
        lent = self.stores[id].lent | self.wanted[id]
        for key, content in self.wanted[id].items():
            assert self.has(id, key, content), "lost"
        super().snapshot_alone(id)
        self.stores[id].lent |= lent
        self.lent_for[id] = max(self.lent_for[id], self.shares.line(id))

    def kill(self, id: int) -> None:
        super().kill(id)
        self.live[id], self.copies[id], self.wanted[id] = {}, {}, {}
        self.asked.discard(id)

    def exited(self, id: int) -> None:
        """Start the next server, for which another one writes down what it needs."""
        super().exited(id)
        point = self.stores[id].current
        for other in self.live.keys() - {id} if point.names else ():
            self.spill(other, self.shares.line(id))
        assert all(self.finds(id, key, digest) for key, (_, digest) in point.names.items())
        self.wanted[id] = {key: digest for key, (_, digest) in point.names.items()}
        self.live[id] = point.own | self.wanted[id]

    def spill(self, id: int, step: int) -> None:
        store = self.stores[id]
        waits = store.waiting is not None and store.waiting.step == step
        names = store.waiting.names if waits and store.waiting else {}
        wanted = {key: digest for key, (_, digest) in names.items()} if waits else self.wanted[id]
        store.lent |= {key: one for key, one in wanted.items() if self.has(id, key, one)}
        self.lent_for[id] = max(self.lent_for[id], step)

    # ---- what must hold -----------------------------------------------------------------------

    def has(self, id: int, key: Key, digest: bytes) -> bool:
        return digest in (self.live[id].get(key), self.copies[id].get(key))

    def finds(self, id: int, key: Key, digest: bytes) -> bool:
        """Say whether a content has been written down somewhere."""
        return any(store.has(key, digest) for store in self.stores.values())

    def check(self, id: int) -> None:
        """Say whether the others could give a rank what it needs, should it die now."""
        if any(server.dead for one, server in self.servers.items() if one != id):
            return
        store = self.stores[id]
        entry = self.shares.entry(id)
        late = store.waiting is not None and entry > store.current.seq
        point = store.waiting if late and store.waiting else store.current
        for key, (_, digest) in point.names.items():
            found = self.finds(id, key, digest) or any(
                self.has(other, key, digest) for other in self.live.keys() - {id}
            )
            assert found, f"nobody could restore a block of rank {id}"
