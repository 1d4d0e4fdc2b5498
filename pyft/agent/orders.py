"""Orders of operators to a running job: `pyft replace`, `drain`, `spare` and `inject`.

One connection to the agent's abstract socket per order, one JSON message each way; only the user
who runs the job may give orders.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from pyft.agent import messages
from pyft.agent.servers import Servers
from pyft.errors import PyftError, UsageError
from pyft.recovery import events, inject

ANSWER_S = 10.0


def socket_name(job: str) -> str:
    """Return the name of a job's socket for orders, without the zero byte in front."""
    return f"pyft-{job}-orders"


class Orders:
    """Carries out orders; each returns why it cannot be done, nothing when it is under way."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._kinds: dict[str, Callable[[dict[str, Any]], str]] = {
            "replace": self._replace,
            "drain": self._drain,
            "spare": self._spare,
            "inject": self._inject,
        }

    def answer(self, connection: socket.socket) -> None:
        """Read one order and answer it."""
        got = messages.receive(connection)
        if got is None:
            return
        order, _ = got
        act = self._kinds.get(order["kind"])
        try:
            problem = act(order) if act else f"order [{order['kind']}] does not exist"
        except (PyftError, KeyError, TypeError, ValueError) as error:
            problem = str(error)
        messages.send(connection, "answer", problem=problem)

    def _replace(self, order: dict[str, Any]) -> str:
        rank, gpu = int(order["rank"]), int(order.get("gpu", -1))
        ids = [
            member.id
            for member in self._servers.members.values()
            if member.channel.rank == rank and not member.client_gone
        ]
        if not ids:
            return f"rank [{rank}] has no server"
        refusals = [text for id in ids for text in self._servers.event(events.Replace(id, gpu))]
        return refusals[0] if refusals else ""

    def _drain(self, order: dict[str, Any]) -> str:
        return next(iter(self._servers.event(events.Drain(int(order["gpu"])))), "")

    def _spare(self, order: dict[str, Any]) -> str:
        gpu = int(order["gpu"])
        if why := self._servers.cannot_add(gpu):
            return why
        return next(iter(self._servers.event(events.AddSpare(gpu))), "")

    def _inject(self, order: dict[str, Any]) -> str:
        return self._servers.inject(inject.parse(str(order["fault"]), int(order["rank"])))


def give(job: str, kind: str, **values: Any) -> None:
    """Send an order to a job and wait for the answer; raise PyftError when it is refused."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_S)
    with connection:
        try:
            connection.connect("\0" + socket_name(job))
            messages.send(connection, kind, **values)
            got = messages.receive(connection)
        except OSError as error:
            raise UsageError(f"job [{job}] takes no orders: {error}") from None
    problem = got[0]["problem"] if got else "the agent has ended"
    if problem:
        raise PyftError(f"{kind} is refused: {problem}")
