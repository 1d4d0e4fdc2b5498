"""Looks at living servers from outside: silence, stuck entries, faults that wait for a server.

A server whose ring is drained is never suspected, however long its client thinks (A17).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyft.agent import page
from pyft.agent.member import Member
from pyft.agent.protocol import ChannelStatus
from pyft.recovery import events
from pyft.recovery.classify import Fault, of_agent
from pyft.recovery.inject import Injection
from pyft.recovery.plan import State

if TYPE_CHECKING:
    from pyft.agent.servers import Loop, Servers

PERIOD_S = 0.5
QUICK_S = 0.02  # while a fault waits for its server, or a server recovers
LATE_S = 5.0  # the whole machine stood still: nobody is to blame


@dataclass
class Progress:
    """When something of a server last changed, and what it was."""

    signs: tuple[int, ...] = ()
    since: float = 0.0


class Watch:
    """Periodic looks at all members."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._waiting: list[Injection] = []
        self._progress: dict[int, Progress] = {}
        self._looked = time.monotonic()

    def inject_when_serving(self, injection: Injection) -> None:
        """Let a fault without a place happen as soon as its rank has a server that serves."""
        self._waiting.append(injection)

    def begin(self, loop: Loop) -> None:
        """Look from now on."""

        def again() -> None:
            self.look()
            states = {rank.state for rank in self._servers.plan.ranks.values()}
            quick = self._waiting or State.RECOVERING in states
            loop.after(QUICK_S if quick else PERIOD_S, again)

        again()

    def look(self) -> None:
        """Look once."""
        now = time.monotonic()
        late, self._looked = now - self._looked > LATE_S, now
        for member in list(self._servers.members.values()):
            rank = self._servers.plan.ranks.get(member.id)
            alive = member.server_alive and not member.client_gone
            if rank is None or not alive or rank.state not in (State.RUNNING, State.RECOVERING):
                continue
            if rank.state is State.RECOVERING and self._serves(member):
                self._servers.event(events.Received(rank.id, rank.epoch, events.Message.LIVE))
            fault = None if late else self._fault(member, now)
            if fault and member.server:
                suspected = events.Suspected(member.id, member.server.epoch, fault)
                self._servers.event(suspected)
        self._servers.ask_nvml()
        self._inject()

    def _inject(self) -> None:
        for injection in list(self._waiting):
            ready = [
                member
                for member in self._servers.members.values()
                if (member.channel.rank, member.servers) == (injection.rank, injection.server)
                and page.read(member.channel.control_fd).consumed
            ]
            if ready:
                self._waiting.remove(injection)
                self._servers.inject(injection)

    def _serves(self, member: Member) -> bool:
        """Say whether a new server works, should its message have been lost with its socket."""
        phase = page.read(member.channel.control_fd).phase
        return phase == page.Phase.LIVE and member.channel.status()[0] == ChannelStatus.SERVING

    def _fault(self, member: Member, now: float) -> Fault | None:
        assert member.server is not None
        state = page.read(member.channel.control_fd)
        signs = (member.server.epoch, state.heartbeat_ns, state.consumed, state.phase)
        signs += (state.restored_bytes, state.replayed_entries, state.dispatching_seq)
        progress = self._progress.setdefault(member.id, Progress())
        if progress.signs != signs:
            progress.signs, progress.since = signs, now
        silent = now - progress.since
        if silent > self._servers.heartbeat_timeout(member):
            why = f"no sign of life for [{silent:.1f} s]"
            return of_agent("heartbeat", why, state.dispatching_seq, state.captured_cut)
        return None
