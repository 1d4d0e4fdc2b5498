"""Looks at living servers from outside: silence, stuck entries, faults that wait for a server.

A server whose ring is drained, and whose device has no open work, is never stuck, however long its
client thinks (A17).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives
from pyft.agent.lifecycle.missing_ranks import MissingRanks
from pyft.agent.members import unfinished
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop
from pyft.recovery import events
from pyft.recovery.classify import Fault, of_agent
from pyft.recovery.events import Mode
from pyft.recovery.rank import State
from pyft.recovery.requests import Request
from pyft.wire import messages as wire
from pyft.wire.layout import ChannelStatus

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

PERIOD_S = 0.5
QUICK_S = 0.01  # while a fault waits for its server, or a server recovers
LATE_S = 5.0  # the whole machine stood still: no process is to blame
# What a new server that stands still does not do, by the phase in which it stands.
NOTHING_FOR = {
    int(page.Phase.STARTING): "nothing was begun",
    int(page.Phase.OBJECTS): "no object was made",
    int(page.Phase.RESTORE): "no memory was restored",
}
SLOW_S = 5.0  # so long nothing was finished: the user is told; longer each time


@dataclass
class Progress:
    """When something of a server last changed, and what it was."""

    signs: tuple[int, ...] = ()
    since: float = 0.0
    told: bool = False  # the user, of this standstill


class Watch:
    """Periodic looks at all members."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._places: dict[int, int] = {}  # of faults, by number: entry at which the step began
        self._progress: dict[int, Progress] = {}
        self._work: dict[int, Progress] = {}
        self._slow_s: dict[int, float] = {}  # when the next sentence on a member is due
        self._collectives = collectives.Collectives(servers)
        self._missing_ranks = MissingRanks(servers)
        self._looked = time.monotonic()

    def begin(self, loop: Loop) -> None:
        """Look from now on."""

        def again() -> None:
            self.look()
            states = {rank.state for rank in self._servers.plan.ranks.values()}
            quick = self._servers.requests.waiting() or State.RECOVERING in states
            loop.after(QUICK_S if quick else PERIOD_S, again)

        again()

    def forget(self, id: int) -> None:
        """Do without a member that has ended."""
        for known in (self._progress, self._work, self._slow_s):
            known.pop(id, None)
        self._collectives.forget(id)

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
                self._servers.event(events.Received(rank.id, rank.epoch, wire.Live()))
            fault = None if late else self._fault(member, now)
            if fault and member.server:
                suspected = events.Suspected(member.id, member.server.epoch, fault)
                self._servers.event(suspected)
        self._collectives.look(now, late)
        self._missing_ranks.look(now)
        self._servers.deaths.ask_nvml()
        self._inject()

    def _inject(self) -> None:
        """Let faults happen whose ranks have come to their places; without one: when they work."""
        for request in self._servers.requests.waiting():
            injection = request.injection
            for member in self._servers.members.values():
                who = (member.channel.rank, member.servers)
                mine = who == (injection.rank, injection.server) and not member.saved
                if mine and member.is_main() and self._is_there(request, member):
                    self._places.pop(request.number, None)
                    self._servers.injector.inject_now(request, member)
                    break

    def _is_there(self, request: Request, member: Member) -> bool:
        """Say whether a rank has come to a place; launches are counted by the soft GPU."""
        injection = request.injection
        state = page.read(member.channel.control_fd)
        if not state.consumed or state.decided_cut < injection.step:
            return False
        if not injection.has_place:  # with one it may well meet a recovery
            return self._servers.plan.ranks[member.id].state is State.RUNNING
        if injection.kind not in ("server-kill", "comm-drop"):
            return True
        began = self._places.setdefault(request.number, state.dispatching_seq)
        return state.dispatching_seq >= began + max(injection.call - 1, 0)

    def _serves(self, member: Member) -> bool:
        """Say whether a new server works, should its message have been lost with its socket."""
        phase = page.read_one(member.channel.control_fd, "phase")
        return phase == page.Phase.LIVE and member.channel.status()[0] == ChannelStatus.SERVING

    def _fault(self, member: Member, now: float) -> Fault | None:
        assert member.server is not None
        if why := member.channel.damage():
            return of_agent("damage", f"its memory is damaged: {why}")
        state = page.read(member.channel.control_fd)
        signs = (member.server.epoch, state.heartbeat_ns, state.consumed, state.phase)
        signs += (state.restored_bytes, state.replayed_entries, state.dispatching_seq)
        progress = self._progress.setdefault(member.id, Progress())
        if progress.signs != signs:
            progress.signs, progress.since = signs, now
        silent = now - progress.since
        if silent > self._servers.heartbeat_timeout(member):
            why = f"no sign of life for [{silent:.1f} s]"
            return of_agent("heartbeat", why, state.dispatching_seq, state.snapshot_cut)
        if state.phase in NOTHING_FOR:
            return self._overdue(member, state, now)
        return self._stuck(member, state, now)

    def _overdue(self, member: Member, state: page.ControlState, now: float) -> Fault | None:
        """A server that starts or restores cannot leave a call that never returns."""
        assert member.server is not None
        signs = (member.server.epoch, state.phase, state.restored_bytes, state.passed_bytes)
        work = self._work.setdefault(member.id, Progress())
        if work.signs != signs:
            work.signs, work.since, work.told = signs, now, False
        still = now - work.since
        if still < collectives.RESTORE_S + self._servers.hang_timeout():
            return None
        why = f"{NOTHING_FOR[state.phase]} for [{still:.1f} s]"
        return of_agent("overdue", why, state.dispatching_seq, state.snapshot_cut)

    def _stuck(self, member: Member, state: page.ControlState, now: float) -> Fault | None:
        """Something was started and waits for nothing, and nothing has been finished since."""
        assert member.server is not None
        signs = (member.server.epoch, state.device_progress, state.dispatching_seq, state.consumed)
        signs += (state.fences_open, state.phase, state.replay_mode, state.replayed_entries)
        signs += (state.passed_bytes,)  # of a snapshot
        work = self._work.setdefault(member.id, Progress())
        asleep = (
            not state.device_progress  # that is not known
            or not (state.fences_open or collectives.has_entries(member, state))
            or state.phase not in (page.Phase.LIVE, page.Phase.REPLAY)
            or state.replay_mode == Mode.DELIVER  # it was ended twice here: the program's own
            or state.collectives_waiting  # for other ranks: see collectives.py
            or state.callback_asked != state.callback_done  # for a host function of the client
        )
        if asleep or work.signs != signs:
            work.signs, work.since, work.told = signs, now, False
        stuck, limit = now - work.since, self._servers.hang_timeout()
        slow = not work.told and stuck >= self._slow_s.get(member.id, SLOW_S)
        if stuck < limit and not slow:
            return None
        if collectives.makes_communicator(member, state):
            work.since = now
            return None
        if stuck < limit:
            work.told = True
            self._say_slow(member, state, stuck, limit)
            return None
        why = f"nothing was finished for [{stuck:.1f} s]"
        return of_agent("stuck", why, state.dispatching_seq, state.snapshot_cut, stuck)

    def _say_slow(
        self, member: Member, state: page.ControlState, stuck: float, limit: float
    ) -> None:
        """Say what pyft waits for and for how long it will; of slow programs less and less often."""
        assert member.server is not None
        self._slow_s[member.id] = 2 * max(stuck, SLOW_S)
        messages.say(
            f"rank [{member.channel.rank}]: {unfinished.in_words(member, state)} on GPU "
            f"[{member.server.gpu}] has not ended for [{stuck:.0f} s]; pyft ends its server at "
            f"[{limit:g} s] (PYFT_HANG_S)"
        )
