"""Where operators reach the agent: the socket for orders, and /metrics."""

from __future__ import annotations

import socket

from pyft.agent.lifecycle.servers import Servers
from pyft.agent.operators import metrics
from pyft.agent.operators.orders import ANSWER_S, Orders
from pyft.agent.process.door import Door, Listener, Refusals
from pyft.errors import UsageError

MOST_ORDERS = 16  # connections that have not said theirs


class Sockets:
    """What listens for operators in one agent."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._orders = Orders(servers)
        self._refusals = Refusals("the socket for orders")
        self._metrics: socket.socket | None = None

    def take_orders(self, listener: socket.socket) -> None:
        """Answer orders from now on; the listener is the supervisor's."""
        door = Listener(listener, self._refusals)
        answer = self._orders.answer
        Door(self._servers.loop, door, answer, most=MOST_ORDERS, seconds=ANSWER_S)

    def serve_metrics(self) -> None:
        """Serve /metrics if that was asked for; raise UsageError when the port cannot be used."""
        options, servers = self._servers.options, self._servers
        if not options.metrics_port or options.direct:
            return
        try:
            self._metrics = metrics.serve(
                options.metrics_port, servers.loop, lambda: metrics.text(servers)
            )
        except OSError as error:
            port, why = options.metrics_port, error.strerror
            raise UsageError(f"--metrics-port [{port}] cannot be used: {why}") from None

    def sum_up(self) -> None:
        """Say how many connections were refused."""
        self._refusals.sum_up()
