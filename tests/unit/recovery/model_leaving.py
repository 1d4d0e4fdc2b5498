"""The same for a job in which programs end, at any instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from model import KILLED, Server, World

from pyft.recovery import events as ev
from pyft.wire import messages as wire


@dataclass
class Member(Server):
    """A server that hears who has left."""

    told: set[int] = field(default_factory=set)


class LeavingWorld(World):
    """Some ranks leave; whoever is still there at the end knows which."""

    def __init__(self, leavers: int, *rest: object) -> None:
        self.leavers = 0
        self.gone: set[int] = set()
        super().__init__(*rest)
        self.leavers = leavers

    def new_server(self, id: int, epoch: int) -> Member:
        """Return the process that is started for a rank."""
        assert id not in self.gone, "nobody needs it"
        return Member(id, epoch)

    def servers_steps(self) -> Iterator[tuple[str, int]]:
        """Return what may happen to servers."""
        yield from super().servers_steps()
        if self.leavers:
            yield from (("leave", id) for id in self.servers if id not in self.gone)

    def do(self, step: tuple[str, int]) -> None:
        """Let one thing happen."""
        kind, id = step
        if kind == "leave":
            self.leavers -= 1
            self.gone.add(id)
            self.servers[id].dying = KILLED
            self.apply(self.plan.handle(ev.ClientGone(id)))
        elif kind == "exit" and id in self.gone:
            del self.servers[id]
            self.apply(self.plan.handle(ev.Left(id)))
            self.plan.tidy(self.servers)
            assert id not in self.plan.ranks, "nothing is to be done for it"
        else:
            super().do(step)

    def take(self, server: Member, message: wire.Message) -> None:
        """Let a server act on a message of the agent."""
        if isinstance(message, wire.Left):
            assert message.rank in self.gone
            assert message.rank not in self.servers, "its server may still send something"
            server.told.add(message.rank)
        elif isinstance(message, wire.Export) and message.answer is wire.ExportAnswer.OTHERS_ENDED:
            server.stage = "alone"
        else:
            super().take(server, message)

    def check_views(self, stopped: set[int]) -> None:
        """Each knows the others' newest servers, and who has none any more."""
        present = {id: server.epoch for id, server in self.servers.items()}
        for id, server in self.servers.items():
            others = {r: e for r, e in server.view.items() if r not in self.gone}
            assert others == {r: e for r, e in present.items() if r != id}, (server, present)
            assert server.told == self.gone, (server, self.gone)
