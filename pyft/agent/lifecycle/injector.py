"""Lets the faults happen that were asked for, and finds out what has become of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyft.agent.channel import page
from pyft.agent.channel.protocol import number_in
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.recovery import classify, events, inject
from pyft.recovery.requests import Request, Seen
from pyft.wire import messages as wire

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers


class Injector:
    """Between requests for faults and the servers that have them."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def inject(self, injection: inject.Injection) -> str:
        """Let a fault happen, now or at its place; return why that is impossible."""
        members, requests = self._servers.members.values(), self._servers.requests
        alive = [m for m in members if m.server_alive and not m.client_gone]
        mine = [m for m in alive if m.channel.rank == injection.rank and m.is_main()]
        if not mine:
            return f"rank [{injection.rank}] has no server"
        for member in members:
            self.count(member)  # numbers of what has happened are free again
        injection = replace(injection, server=mine[0].servers)
        request = requests.add(injection, by_agent=True)
        if injection.has_place:
            self._servers.keep()
            return ""
        problem = self.inject_now(request, mine[0])
        if problem:
            requests.drop(request)
        return problem

    def inject_now(self, request: Request, member: Member) -> str:
        """Let a fault happen; return why that is impossible."""
        assert member.server is not None
        injection = request.injection
        request.tell(member.id, member.server.epoch)
        page.clear_fault_note(member.channel.control_fd, request.number)
        self._servers.keep()  # it happens once, whatever dies
        messages.say(f"injects fault [{injection}]")
        if injection.kind not in ("slow", "bitflip"):
            self._servers.incidents.injected(member)
        if injection.kind == "server-kill":
            member.kill_server()
            return ""
        if injection.kind == "comm-drop":
            fault = classify.of_agent("communicator", "asked for: its connections count as broken")
            self._servers.event(events.Suspected(member.id, member.server.epoch, fault))
            return ""
        words = injection.words(member.channel.device, request.number).encode()
        if member.server.send(wire.Inject(words)):
            return ""
        return f"rank [{injection.rank}] does not listen"

    def asked_of(self, member: Member, epoch: int) -> dict[str, str]:
        """Return what a new server is told about a fault whose place it finds itself."""
        self.count(member)
        if not member.is_main():
            return {}
        rank = number_in(member.environment, "RANK")  # or the server is told later
        places = []
        for request in self._servers.requests.of_server(rank, member.servers):
            request.tell(member.id, epoch)
            page.clear_fault_note(member.channel.control_fd, request.number)
            who = f",rank={request.injection.rank}" if rank is None else ""
            places.append(f"{request.injection.place()}{who},note={request.number}")
        return {"PYFT_KILL_AT": ";".join(places)} if places else {}

    def count(self, member: Member) -> None:
        """Take what has become of the faults that were asked for, as far as a member shows it."""
        channel, requests = member.channel, self._servers.requests
        if channel.control_fd < 0 or not requests.all:  # then nothing is asked of what it came to
            return
        epochs = [incident.epoch_from for incident in self._servers.incidents.of(member.id)]
        requests.look(member.id, page.read_fault_notes(channel.control_fd), epochs)
        if member.is_main():
            state = page.read(channel.control_fd)
            place = (state.kill_cuts, state.kill_entries, state.kill_step_entries)
            seen = Seen(channel.rank, member.servers, state.decided_cut, place)
            requests.saw(member.id, seen)
