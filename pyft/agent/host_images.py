"""Images of a place in a job of several hosts: what the head decides, done here.

A death of a client or a server is the head's to decide about: all places go back together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyft.agent import leaving
from pyft.agent.image_record import NOTE
from pyft.agent.images import Images
from pyft.agent.members.member import Member
from pyft.agent.of_servers import OfServers
from pyft.agent.supervisor.link import Handover
from pyft.hosts.place import actions, mirror, relayed, remote
from pyft.hosts.wire.head_link import HeadLink
from pyft.hosts.wire.link import addresses_of, token
from pyft.images.appended import MOST_LOGS, Log
from pyft.recovery import images as decided
from pyft.recovery.classify import Fault
from pyft.wire import messages as wire

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers


class HostImages(Images):
    """One place's images."""

    _plan: remote.RemoteImages

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers, remote.RemoteImages())
        self._died = ""  # what has died before this agent came
        self._relayed: relayed.Relayed | None = None
        self._of_servers: OfServers | None = None
        if not servers.plan.rollback:
            self._of_servers = OfServers(servers, self._plan)

    def started(
        self, command: Sequence[str], environment: dict[str, str], clients_name: str
    ) -> tuple[Sequence[str], dict[str, str]]:
        """Return what starts the relay of the place, which starts the command."""
        command = relayed.command_of(clients_name, self._options.place, command)
        return command, relayed.environment_of(environment)

    def begin(self, root: int) -> None:
        """Call the head: from now on it decides."""
        options, plan = self._options, self._plan
        plan.is_fresh, plan.prepares = 0, self._can_pre_dump()
        self.keep()
        plan.link = HeadLink(
            addresses_of(options.head),
            token(),
            lambda: plan.hello(options.place, options.life, options.address),
        )
        assert self.relay
        about = (self._clients_name, options.place)
        self._relayed = relayed.Relayed(*about, plan.tell_relayed, self.relay)
        self._servers.loop.watch(self._relayed.socket, self._hear_relay)
        self._servers.loop.watch(plan.link.wake, self.look)
        if self._servers.plan.rollback:
            self._servers.router.ask_elsewhere(plan.want_id)
        self._servers.asks_head = self._server_lost
        super().begin(root)
        if self._died:
            self.client_lost(self._died)

    def adopt(self, root: int, handover: Handover) -> None:
        """Go on where the agent before has stopped."""
        note = handover.notes.get(NOTE)
        is_fresh = bool(note and note["plan"]["is_fresh"])
        members = self._servers.members.values()
        dead = [m for m in members if m.server and not m.server.alive and not m.said_goodbye()]
        if self._of_servers and not is_fresh:
            self._servers.asks_head = self._server_lost  # what has died meanwhile is found next
        elif dead and note and not is_fresh:
            self._died = f"the server of rank [{dead[0].channel.rank}] has died"
        super().adopt(root, handover)

    def _hear_relay(self) -> None:
        """Pass on what programs of this place say to others; not while an image is made of them."""
        assert self._relayed
        self._relayed.places = self._plan.places
        self._relayed.heard(not self._plan.is_dumping and not self.back)

    def client_lost(self, why: str) -> bool:
        """Let the head decide; nothing is done here until it has."""
        self._plan.tell_lost(time.monotonic(), why)
        return True

    def _server_lost(self, member: Member, epoch: int, fault: Fault) -> bool:
        """Let the head decide whether it is repaired here, or all go back."""
        why = f"the server of rank [{member.channel.rank}] has died: {fault.evidence}"
        if not self._of_servers or self._plan.lost_why:
            return self.client_lost(why)
        self._of_servers.ask(member, epoch, fault, why)
        return True

    @property
    def waits(self) -> bool:
        """Say whether the head has still to say what is done about a death."""
        return bool(self._plan.lost_why)

    def look(self) -> None:
        """Decide; also while CRIU works, since others may have failed."""
        if self._dump and not self._servers.ending:
            self._look_at_dump()
            self._beside_dump(self._plan.look(time.monotonic(), []))
        else:
            super().look()
        self._tell_lacks_gpu()
        if why := self._plan.unanswered():
            self.failed = f"{why}, and the head says nothing"

    def _beside_dump(self, ordered: Sequence[decided.Action | actions.Action]) -> None:
        """Do what can be done while CRIU works, and all else when it has ended.

        CRIU gives up when its tree is told to go on: connections stay cut, and their sockets deaf.
        """
        for action in ordered:
            written = isinstance(action, decided.Drop) and action.number == self._plan.number
            if written or isinstance(action, decided.Release):
                self._at_end.append(action)
            else:
                self._do(action)

    def _tell_lacks_gpu(self) -> None:
        """Let the head find a GPU elsewhere for a rank that waits for one."""
        servers, happened = self._servers, list[int]()
        if why := servers.plan.lacks_gpu():
            for member in servers.members.values():
                servers.injector.count(member)
            happened = servers.requests.happened()
        if not (servers.ending or self.back or self.leaves):
            self._plan.tell_lacks_gpu(why, happened)

    def end(self) -> None:
        """The job ends."""
        if self._plan.link:
            self._plan.link.end()
        super().end()

    def _do(self, action: decided.Action | actions.Action) -> None:
        if isinstance(action, actions.GoBack):
            self._go_back(action)
        elif isinstance(action, actions.Leave):
            self._leave(action)
        elif isinstance(action, actions.Fail):
            self.failed = action.why
        elif isinstance(action, actions.MadeAs):
            self._made_as(action)
        elif isinstance(action, actions.Mirror):
            self._mirror(action)
        elif isinstance(action, actions.Relay):
            if self._relayed and not self._plan.is_dumping and not self.back:
                self._relayed.deliver(action.data)
        elif isinstance(action, actions.OfServers):
            if self._of_servers and not self.back and not self.leaves:
                self._of_servers.do(action)
        elif isinstance(action, decided.Keep):
            super()._do(action)
            for number in [n for n in self._records if n < action.number]:
                self._drop(number)  # also those of which no host has heard any more
        else:
            super()._do(action)

    def _begun(self, number: int, folder: Path) -> tuple[dict[str, Any], str]:
        """Return the record of an image, and name the files that are appended to for the head."""
        record, why = super()._begun(number, folder)
        logs = [Log(**note) for note in record.get("logs", ())]
        self._plan.logs = [log.name for log in logs]
        if len(logs) > MOST_LOGS:
            why = why or f"[{len(logs)}] files are appended to, more than [{MOST_LOGS}]"
        return record, why

    def _go_back(self, action: actions.GoBack) -> None:
        record = self._records.get(action.number)
        if record is None or "clients" not in record:
            self.failed = f"this host has no image [{action.number}], to which all go back"
            return
        self._goes_back(record, f"{action.why}: back to the image of step [{record['step']}]")

    def _leave(self, action: actions.Leave) -> None:
        record = self._records.get(action.number)
        if record is None or "clients" not in record:
            self.failed = f"this host has no image [{action.number}], from which its place goes on"
            return
        options = self._options.of_the_job()
        about = {"options": options, "clients_name": self._clients_name, "why": action.why}
        self.leaves = leaving.Image(record, self._memory[action.number], about)

    def _made_as(self, action: actions.MadeAs) -> None:
        member = self._servers.members.get(action.client)
        if member and member.server and member.server.alive:
            member.server.send(wire.MadeAs(action.key, bytes.fromhex(action.made_as)))

    def _mirror(self, action: actions.Mirror) -> None:
        link = self._plan.link
        assert link

        def failed(host: str, why: str) -> None:
            link.say("unmirrored", number=action.number, host=host, why=why)

        def comes_on() -> None:
            link.say("sending", number=action.number)

        record = self._records.get(action.number)
        if record is None or "clients" not in record:
            for name, *_ in action.where:
                failed(name, "its host has no such image")
            return
        memory = {id: [os.dup(fd) for fd in fds] for id, fds in self._memory[action.number].items()}
        options = self._options.of_the_job()
        image = mirror.Outgoing(self._options.place, record, memory, options, self._clients_name)
        mirror.send(action.where, token(), image, failed, comes_on)


def images_of(servers: Servers) -> Images | None:
    """Return what makes images of a job, None if nothing does."""
    if not servers.options.movable:
        return None
    return HostImages(servers) if servers.options.head else Images(servers)
