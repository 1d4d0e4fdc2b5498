"""Clients that have called, until an agent has answered them: their connections are held here.

A client that waits for an answer must not lose its connection because an agent dies.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyft.agent.process import descriptors
from pyft.agent.process.door import Listener, Refusals

BACKLOG = 64


class Callers:
    """Of one job, by the names under which they are handed to the agent."""

    def __init__(self, clients_name: str, tell: Callable[[str, socket.socket], None]) -> None:
        """`tell`: hands a new one to the agent of now."""
        self.connections: dict[str, socket.socket] = {}
        self._clients_name = clients_name
        self._tell = tell
        self._accepted = 0
        self._refusals = Refusals("the socket for clients")

    def listen(self) -> tuple[socket.socket, Callable[[], None]]:
        """Return the socket at which clients call, and what accepts one of them."""
        listener = Listener(listen(self._clients_name), self._refusals)
        return listener.socket, lambda: self._accept_from(listener)

    def drop(self, name: str) -> None:
        """Close a connection, if it is one of these."""
        if connection := self.connections.pop(name, None):
            connection.close()

    def sum_up(self) -> None:
        """Say how many were refused."""
        self._refusals.sum_up()

    def _accept_from(self, listener: Listener) -> None:
        connection = listener.accept()
        if connection is None:
            return
        # The agent ends those that ask for nothing.
        if len(self.connections) >= descriptors.most_waiting():
            connection.close()
            return
        self._accepted += 1
        name = f"connection-{self._accepted}"
        self.connections[name] = connection
        self._tell(name, connection)


def listen(name: str) -> socket.socket:
    """Return a listener at an abstract address."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen(BACKLOG)
    return listener
