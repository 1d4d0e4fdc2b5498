"""The same for jobs in which all ranks replay: stores with lines, communicators made by everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from model import Server, World

from pyft.recovery import events as ev
from pyft.recovery.rank import State
from pyft.wire import messages as wire


@dataclass
class Store:
    """Outlives servers."""

    point: int = 0
    waits: int = 0


@dataclass
class Member(Server):
    """A server. `stage`: want, asked, joining, joined, live."""

    made_as: bytes = b""
    start: int = 0  # the line from which it has begun
    cut: int = 0


class TogetherWorld(World):
    """A job whose ranks share one communicator, which nobody can repair. They make `cuts` cuts."""

    together = True

    def __init__(self, ranks: int, cuts: int, *rest: object, **more: object) -> None:
        self.stores = {id: Store() for id in range(ranks)}
        self.cuts = 0
        super().__init__(ranks, *rest, **more)
        for server in self.servers.values():
            server.made_as = b"first"
        self.cuts = cuts

    def new_server(self, id: int, epoch: int) -> Member:
        """Start where the coordinator says; what it has decided must be in the store."""
        line, store = self.plan.rollback.line(id), self.stores[id]
        if line > store.point:
            assert store.waits == line, "a line that is not whole in the store"
            store.point = line
        assert store.point == line, "a line that nobody knows of"
        store.waits = 0
        return Member(id, epoch, start=line, cut=line)

    def servers_steps(self) -> Iterator[tuple[str, int]]:
        """Return what may happen to servers."""
        yield from super().servers_steps()
        for id, server in self.servers.items():
            if self.cuts and server.stage == "live" and not server.dying and not server.mute:
                yield "cut", id

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        if step[0] == "cut":
            self.cut(self.servers[step[1]])
        else:
            super().do(step)

    def cut(self, server: Member) -> None:
        """Let a server come to a cut; while one waits, the next one is left out."""
        self.cuts -= 1
        server.cut += 1
        store = self.stores[server.id]
        prepared = not store.waits
        self.say(server, wire.Line, collectives=server.cut - server.start)
        said = wire.Prepared(server.cut, prepared, server.cut)
        server.outbox.append(ev.Received(server.id, server.epoch, said))
        if prepared:
            store.waits = server.cut

    def can_work(self, server: Server) -> bool:
        """Say whether a server has something to do without a message."""
        if server.stage == "joining":  # it stands still until all others have come
            return len(self.servers) == len(self.stores) and all(
                one.made_as == server.made_as for one in self.servers.values()
            )
        return server.stage in ("want", "joined")

    def work(self, server: Server) -> None:
        """Let a server take a message or go one stage on."""
        if not server.inbox and server.stage == "want":
            server.stage = "asked"
            self.say(server, wire.WantId)
        elif not server.inbox and server.stage == "joining":
            server.stage = "joined"
            self.say(server, wire.Made)
            starts = {one.start for one in self.servers.values()}
            assert len(starts) == 1, f"together from different lines {starts}"
        else:
            super().work(server)

    def take(self, server: Server, message: wire.Message) -> None:
        """Let a server act on a message of the agent."""
        store = self.stores[server.id]
        if isinstance(message, wire.MadeAs):
            if server.stage != "asked":
                return  # heard twice
            server.stage = "joining"
            server.made_as = message.payload or str(server.epoch).encode()
            if not message.payload:
                self.say(server, wire.WantId, payload=server.made_as)
        elif isinstance(message, wire.Commit) and store.waits == message.step:
            store.point, store.waits = message.step, 0
        elif isinstance(message, wire.Abort) and store.waits == message.step:
            store.waits = 0

    def waits(self, server: Server) -> bool:
        """Say whether a server is right to wait for a rank that has stopped: for a GPU, not for good."""
        return server.stage == "joining" and any(
            rank.state is State.WAITING for rank in self.plan.ranks.values()
        )

    def check_views(self, stopped: set[int]) -> None:
        """All that work share one communicator, and stand behind one line."""
        states = {rank.state for rank in self.plan.ranks.values()}
        assert not states >= {State.WAITING, State.GIVEN_UP}, "it waits for a GPU in vain"
        left = [server for id, server in self.servers.items() if id not in stopped]
        assert len({server.made_as for server in left if not self.waits(server)}) <= 1
        assert len({server.start for server in left}) <= 1
        for id, store in self.stores.items():
            assert store.point == self.plan.rollback.line(id)
