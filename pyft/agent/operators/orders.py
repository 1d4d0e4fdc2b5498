"""Orders of operators to a running job: `pyft replace`, `drain`, `spare` and `inject`.

One connection to the agent's abstract socket per order, one JSON message each way; only the user
who runs the job may give orders.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyft._native import linux
from pyft.agent.lifecycle.servers import Servers
from pyft.agent.process import messages
from pyft.errors import PyftError, UsageError
from pyft.recovery import events, inject

ANSWER_S = 10.0
CROWDED_S = 0.02  # until a queue that is full is tried again
LARGEST_NUMBER = 1 << 20
LONGEST_FAULT = 1000


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
        try:
            got = messages.receive(connection)
            if got is None:
                return
            order, fds = got
            for fd in fds:
                os.close(fd)
            act = self._kinds.get(order["kind"])
            problem = act(order) if act else f"order [{order['kind'][:40]}] does not exist"
        except (PyftError, ValueError) as error:
            problem = str(error)
        messages.send(connection, "answer", problem=problem)

    def _replace(self, order: dict[str, Any]) -> str:
        rank, gpu = _number(order, "rank"), _number(order, "gpu", -1)
        of_rank = [
            member
            for member in self._servers.members.values()
            if member.channel.rank == rank and not member.client_gone
        ]
        if not of_rank:
            return f"rank [{rank}] has no server"
        if gpu >= 0:  # it is for the device that the rank works on, not for one that it has touched
            of_rank = [member for member in of_rank if member.is_main()] or of_rank
            devices = sorted({member.channel.device for member in of_rank})
            if len(devices) > 1:
                return f"rank [{rank}] works on devices {devices}: GPU [{gpu}] can be one of them"
        events_of = [events.Replace(member.id, gpu) for member in of_rank]
        refusals = [text for one in events_of for text in self._servers.event(one)]
        return refusals[0] if refusals else ""

    def _drain(self, order: dict[str, Any]) -> str:
        return self._decided(events.Drain(_number(order, "gpu")))

    def _spare(self, order: dict[str, Any]) -> str:
        gpu = _number(order, "gpu")
        if why := self._servers.cannot_add(gpu):
            return why
        return self._decided(events.AddSpare(gpu))

    def _decided(self, event: events.Event) -> str:
        """Let it be decided; return why it is refused. If not, there is another number of spares."""
        if refusals := self._servers.event(event):
            return refusals[0]
        self._servers.changed()
        return ""

    def _inject(self, order: dict[str, Any]) -> str:
        fault = order.get("fault")
        if not isinstance(fault, str):
            raise UsageError("the order names no fault")
        return self._servers.injector.inject(
            inject.parse_order(fault[:LONGEST_FAULT], _number(order, "rank"))
        )


def _number(order: dict[str, Any], name: str, otherwise: int | None = None) -> int:
    number = order.get(name, otherwise)
    if type(number) is not int or not -1 <= number <= LARGEST_NUMBER:
        raise UsageError(f"{name} is not a number that an order can have")
    return number


def _connect(connection: socket.socket, name: str) -> None:
    """Wait while the queue is full: nothing tells when there is room."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return connection.connect(name)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(CROWDED_S)


def give(meta: Mapping[str, Any], kind: str, **values: Any) -> None:
    """Send an order to a running job and wait for the answer; raise PyftError when it is refused.

    `meta` is what its meta.json says. An answer of another process would be none.
    """
    job, name = meta["job"], str(meta.get("orders", ""))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_S)
    with connection:
        try:
            _connect(connection, "\0" + name)
            if (uid := linux.peer_of(connection)[1]) != os.geteuid():
                raise UsageError(f"the socket of job [{job}] belongs to another user [uid {uid}]")
            messages.send(connection, kind, **values)
            got = messages.receive(connection)
        except (OSError, ValueError) as error:
            raise UsageError(f"job [{job}] takes no orders: {error}") from None
    problem = got[0]["problem"] if got else "the agent has ended"
    if problem:
        raise PyftError(f"{kind} is refused: {problem}")
