"""What the head decides about the servers of this place, done here (docs/concepts/several-hosts.md)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyft.agent.members.member import Member
from pyft.hosts.place import actions
from pyft.hosts.place.elsewhere import Elsewhere
from pyft.hosts.place.remote import RemoteImages
from pyft.recovery import events
from pyft.recovery.classify import Fault, of_agent

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers


class OfServers:
    """Of one agent, where servers are replaced alone."""

    def __init__(self, servers: Servers, plan: RemoteImages) -> None:
        self._servers, self._plan = servers, plan
        self._faults: dict[int, tuple[int, Fault]] = {}  # that the head decides about
        self._elsewhere = servers.elsewhere = Elsewhere(self._say)
        servers.router.relay(self._elsewhere)

    def ask(self, member: Member, epoch: int, fault: Fault, why: str) -> None:
        """Ask the head whether a server is replaced here."""
        self._faults[member.id] = (epoch, fault)
        self._plan.tell_fault(time.monotonic(), member.id, epoch, why)

    def do(self, action: actions.OfServers) -> None:
        """Do what the head has said."""
        if isinstance(action, actions.Alone):
            self._replace(action)
        elif isinstance(action, actions.Declare):
            self._declare()
        elif isinstance(action, actions.Look):
            self._servers.router.look_ahead()
            self._elsewhere.looked(action.number)
        elif isinstance(action, actions.Tell):
            self._tell(action)
        elif isinstance(action, actions.Recovering):
            pauses, ranks = self._servers.pauses, self._servers.plan.ranks
            pauses.elsewhere = action.now
            pauses.follow(ranks.values(), self._servers.control_fds)
        else:
            fault = of_agent(action.sign, action.why)
            self._servers.event(events.Suspected(action.client, action.epoch, fault))

    def _replace(self, action: actions.Alone) -> None:
        epoch, fault = self._faults.pop(action.client, (0, None))
        member = self._servers.members.get(action.client)
        if fault and member and epoch == action.epoch and not member.client_gone:
            self._servers.deaths.decided(member, epoch, fault)

    def _declare(self) -> None:
        """Tell the head all; a server that has heard half of a repair begins its recovery again."""
        self._servers.router.look_ahead()
        for id, epoch in self._elsewhere.declare():
            fault = of_agent("adopted", "the connection to the head broke while it got its place")
            self._servers.event(events.Suspected(id, epoch, fault))
        self._servers.keep()
        self._plan.ask_again()

    def _tell(self, action: actions.Tell) -> None:
        member = self._servers.members.get(action.client)
        server = member.server if member else None
        if server and server.alive and server.epoch == action.epoch:
            self._elsewhere.told(action.client, action.epoch, action.message, action.repair)
            self._servers.keep()
            server.send(action.message)

    def _say(self, kind: str, **values: Any) -> None:
        if self._plan.link:
            self._plan.link.say(kind, round=self._plan.round, **values)
