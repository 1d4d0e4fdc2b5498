"""Gives each message of a server to the part of the agent that deals with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyft.agent.members.member import Member
from pyft.agent.members.server import LastWords, Server
from pyft.agent.process import messages
from pyft.hosts.place.elsewhere import Elsewhere
from pyft.hosts.wire.servers import OF_SERVERS
from pyft.recovery import communicators, events
from pyft.recovery.disputes import CULPRITS, in_words
from pyft.recovery.rollback import FalseCut
from pyft.wire import messages as wire

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

Handler = Callable[[Member, Server, Any], None]  # the last one is a message of the handler's kind


class Router:
    """A table of handlers. What is in none of its rows is for the plan."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._handlers: dict[type[wire.Message], Handler] = {
            wire.WantStore: lambda member, server, said: servers.spilling.wanted(
                member.id, server, said
            ),
            wire.WantPeer: lambda member, server, said: servers.peers.wanted(
                member.id, server, said.attempt
            ),
            wire.Spilled: lambda member, _, said: servers.spilling.spilled(member.id, said),
            wire.MemoryPressure: lambda _, server, said: servers.room.wanted(server, said.number),
            wire.GivenUp: lambda _, server, __: servers.room.given_up(server),
            wire.Fault: self._last_words,
            wire.Mismatch: self._mismatch,
            wire.Vote: self._vote,
            wire.Staged: self._of_snapshot,
        }
        if not servers.plan.rollback:
            self._handlers |= {
                wire.Prepared: self._of_snapshot,
                wire.DecisionRequest: self._of_snapshot,
            }

    def ask_elsewhere(self, ask: Callable[[int, int, str], None]) -> None:
        """With several hosts: ask the head, for all, under which id a communicator is made."""
        sets = self._servers.plan.rollback
        assert sets

        def wanted(member: Member, server: Server, said: wire.WantId) -> None:
            sets.made(member.id, said.key, said.rank)
            if server is member.server:
                ask(member.id, said.key, said.payload.hex())

        self._handlers[wire.WantId] = wanted

    def relay(self, elsewhere: Elsewhere) -> None:
        """With several hosts: have the head decide about communicators, for all."""

        def heard(member: Member, server: Server, said: wire.Message) -> None:
            elsewhere.hear(member.id, server.epoch, said)
            self._servers.keep()

        self._handlers |= dict.fromkeys(OF_SERVERS, heard)

    def look_ahead(self) -> None:
        """Hear all that servers have said by now."""
        for member in list(self._servers.members.values()):
            if (server := member.server) and server.alive and not server.asked_to_end:
                while self.read(member, server):
                    pass

    def read(self, member: Member, server: Server) -> bool:
        """Take one message; say whether there may be another one."""
        try:
            event = server.receive(member.id)
        except (OSError, ConnectionError):
            self._servers.loop.forget(server.socket)  # its end is reported by wait()
            return False
        except ValueError as error:
            messages.say(f"{error}, from the server [pid {server.pid}] of {member.who}")
            server.taken()
            return True
        if event is None:
            return False
        self._hear_making_before(event, server)
        if handler := self._handlers.get(type(event.message)):
            handler(member, server, event.message)
        else:
            self._tell_plan(member, server, event)
        server.taken()
        return True

    def _tell_plan(self, member: Member, server: Server, event: events.Received) -> None:
        try:
            self._servers.event(event)
        except FalseCut as error:
            messages.say(f"{error}, from the server [pid {server.pid}] of {member.who}")

    def _hear_making_before(self, event: events.Received, server: Server) -> None:
        """Tell the plan which others are making a communicator: what is said now may follow from that.

        Nothing promises that sockets are read in the order in which servers have spoken. Heard once
        more in its turn, MAKING changes nothing.
        """
        said = event.message
        if not isinstance(said, communicators.HEARD) or isinstance(said, wire.Making):
            return
        if self._servers.plan.rollback or self._servers.elsewhere:
            return  # all ranks replay: no place is given by others; or the head has all look ahead
        for member in list(self._servers.members.values()):
            other = member.server
            if other is None or other is server or not other.alive or other.asked_to_end:
                continue
            for earlier in other.ahead(member.id):
                if isinstance(earlier.message, wire.Making):
                    self._servers.event(earlier)

    def _last_words(self, member: Member, server: Server, said: wire.Fault) -> None:
        server.words = LastWords.of(said)
        self._servers.keep()

    def _mismatch(self, member: Member, server: Server, said: wire.Mismatch) -> None:
        servers = self._servers
        try:
            member.disputes.add(said)
        except ValueError as error:
            messages.say(f"{error}, from the server [pid {server.pid}] of {member.who}")
            return
        # Now, since the server may be ended for another rank's fault before it has died of this.
        if rank := servers.plan.ranks.get(member.id):
            for other in servers.plan.together.others(rank):
                if one := servers.members.get(other.id):  # else it has ended
                    one.disputes.of_other()
        servers.keep()

    def _vote(self, member: Member, server: Server, said: wire.Vote) -> None:
        if not member.disputes.has(said.first, said.second):
            entries = f"[{said.first}] and [{said.second}], which have not differed"
            who = f"the server [pid {server.pid}] of {member.who}"
            messages.say(f"a vote about entries {entries}, from {who}")
            return
        culprit = CULPRITS[said.culprit]
        self._servers.incidents.voted(member, said.second, culprit)
        messages.say(
            f"rank [{member.channel.rank}] has replayed entries [{said.first}] and [{said.second}], "
            f"which had differed: {in_words(culprit)}"
        )

    def _of_snapshot(self, member: Member, server: Server, said: wire.Message) -> None:
        if server is member.server:  # what one before it had is not in the store any more
            event = events.Received(member.id, server.epoch, said)
            self._servers.comparison.received(member, event)
