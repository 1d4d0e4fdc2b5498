"""Brings new servers together with those of living replicas, from whose GPUs they copy.

The agent makes a connection and gives each of them an end; what they say to each other is between
them (docs/concepts/sharing.md). Nothing waits: a new server that gets nothing has the stores.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyft.agent.members.member import Member
from pyft.agent.members.server import Server


class Peers:
    """Which server may lend to which."""

    def __init__(
        self,
        members: dict[int, Member],
        replicas: Callable[[int], list[int]],
        works: Callable[[int], bool],
    ) -> None:
        self._members = members
        self._replicas = replicas  # of a member, the best first
        self._works = works  # not one that is being replaced itself
        self._given: dict[
            int, tuple[int, set[int]]
        ] = {}  # by borrower: its epoch, which were asked

    def wanted(self, id: int, server: Server, attempt: int) -> None:
        """Answer a new server of member `id`: a replica that it has not been given yet, if any."""
        epoch, given = self._given.get(id, (0, set()))
        if epoch != server.epoch:
            given = set()
        self._given[id] = (server.epoch, given)
        for other in self._replicas(id):
            if other == id or other in given or not self._works(other):
                continue
            given.add(other)
            if self._connect(server, attempt, other):
                return
        server.send_peer(attempt, -1)

    def ended(self, id: int) -> None:
        """Forget a member that will get no new server."""
        self._given.pop(id, None)

    def _connect(self, server: Server, attempt: int, other: int) -> bool:
        lender = self._members[other].server if other in self._members else None
        if lender is None or not lender.alive:
            return False
        try:
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:  # out of descriptors: it goes without
            return False
        with ends[0], ends[1]:
            for end in ends:
                end.setblocking(False)  # both servers: one that does not read holds nothing up
            if not lender.lend(ends[0].fileno()):
                return False
            server.send_peer(attempt, ends[1].fileno())
        return True
