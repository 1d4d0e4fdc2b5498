"""Gives new servers the stores in which other ranks keep what they need.

With `--protect jit` replicas keep that in their GPUs: a living one writes it into its store first,
just in time (docs/concepts/jit.md).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyft.agent.members.member import Member
from pyft.agent.members.server import Server
from pyft.agent.replicas.sharing import Sharing
from pyft.wire import messages as wire

SPILL_S = 4.0  # a server that has not written it down by then is passed over (docs/deadlines.md)


@dataclass
class Request:
    """What a server was asked for, and what follows when it has done it, or cannot."""

    id: int  # whose server
    done: Callable[[], None]


class Spilling:
    """Between new servers, which ask for stores, and the servers of other ranks."""

    def __init__(
        self,
        members: dict[int, Member],
        sharing: Sharing,
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._members = members
        self._sharing = sharing
        self._after = after
        # Not those of an agent before this one, which servers may still answer.
        self._numbers = itertools.count(time.monotonic_ns())
        self._open: dict[int, Request] = {}

    def wanted(self, id: int, server: Server, said: wire.WantStore) -> None:
        """Answer a new server of member `id`: the store of the owner, or of another replica."""
        owner, attempt = said.owner, said.attempt
        ids = self._sharing.candidates(id, owner)
        if attempt >= len(ids):
            server.send_store(owner, attempt, -1)
            return
        other = ids[attempt]

        def answer() -> None:
            server.send_store(owner, attempt, self._sharing.store(other))

        self._spill(other, self._sharing.line(id), answer)

    def before(self, ids: Iterable[int], then: Callable[[], None]) -> None:
        """Let these members write down what others need of them; then do what ends their servers."""
        left = {id for id in ids if self._sharing.jit}
        if not left:
            then()
            return

        def done(id: int) -> None:
            left.discard(id)
            if not left:
                then()

        for id in sorted(left):
            self._spill(id, self._sharing.line(id), lambda id=id: done(id))  # type: ignore[misc]

    def _spill(self, id: int, step: int, done: Callable[[], None]) -> None:
        """At once if there is nothing to be written, or no server to do it."""
        server = self._members[id].server if id in self._members else None
        if not (self._sharing.jit and step and server and server.alive):
            done()
            return
        number = next(self._numbers)
        self._open[number] = Request(id, done)
        if not server.send(wire.Spill(number, step)):
            self._finish(number)
            return
        self._after(SPILL_S, lambda: self._finish(number))

    def spilled(self, id: int, said: wire.Spilled) -> None:
        """Take the answer of a server. Whether all is there turns out where it is read."""
        request = self._open.get(said.number)
        if request and request.id == id:
            self._finish(said.number)

    def restarted(self, id: int) -> None:
        """Note that a member's server has ended: it will not answer."""
        for number in [number for number, one in self._open.items() if one.id == id]:
            self._finish(number)

    def _finish(self, number: int) -> None:
        request = self._open.pop(number, None)
        if request:
            request.done()
