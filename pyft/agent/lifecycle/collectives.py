"""Ends collectives that never end: a rank that waits is not stuck, and NCCL has no deadline.

When all ranks that go back together wait, they wait for each other. Nothing of any of them moves,
so none is left that could end that. A program's thread may be elsewhere, in code of its own, and
come back with what the others wait for: such a rank counts as one that works. A server that replays
has all that it needs, and one that makes communicators anew waits for the others' servers.

Clients can write what is read here. Whatever they write, the ranks go back as when one of them fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyft.agent.channel import page
from pyft.agent.members import unfinished
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.recovery import events
from pyft.recovery.classify import Fault, of_agent
from pyft.recovery.rank import State
from pyft.trace import live
from pyft.trace.reader import Entry

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

EARLIER_S = 1.0  # a device that stopped so long before the others tells something
RESTORE_S = 60.0  # the longest wait of a restore that has a deadline of its own
# In which phases a server may wait for others, by what its rank is.
_WAITING = {
    State.RUNNING: (page.Phase.LIVE,),
    State.RECOVERING: (page.Phase.COMMUNICATORS, page.Phase.REPLAY),
}
# NCCL's calls that put nothing into a stream.
_OTHER_CALLS = ("ncclComm", "ncclGroup", "ncclRedOp", "ncclGet")


@dataclass
class Standstill:
    """Of a set of ranks: what was last seen of all, and since when nothing else was."""

    signs: tuple[tuple[int, ...], ...] = ()  # empty: not all wait
    since: float = 0.0
    told: bool = False  # the user, of this standstill

    @property
    def meets(self) -> bool:
        """Say whether new servers wait for each other to make their communicators anew."""
        return any(page.Phase.COMMUNICATORS in one[:1] for one in self.signs)


@dataclass(frozen=True)
class Moved:
    """How far the device of a server is, and when it was seen to come there; 0: never."""

    epoch: int
    progress: int
    when: float = 0.0


class Collectives:
    """Periodic looks at sets of ranks, by Watch."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._standstills: dict[int, Standstill] = {}  # by the least id of a set
        self._moved: dict[int, Moved] = {}  # by id

    def forget(self, id: int) -> None:
        """Do without a member that has ended."""
        self._standstills.pop(id, None)
        self._moved.pop(id, None)

    def look(self, now: float, late: bool) -> None:
        """Look once; `late`: the whole machine stood still."""
        if not self._servers.collective_timeout():
            return
        for ids in self._sets():
            standstill = self._standstills.setdefault(ids[0], Standstill())
            signs = self._signs(ids, now)
            if late or not signs or standstill.signs != signs:
                standstill.signs, standstill.since, standstill.told = signs, now, False
            elif now - standstill.since >= self._limit(standstill) / 2:
                self._judge(ids, standstill, now)

    def _limit(self, standstill: Standstill) -> float:
        limit = self._servers.collective_timeout()
        if not standstill.meets:
            return limit
        return min(limit, RESTORE_S + self._servers.hang_timeout())

    def _sets(self) -> Iterator[list[int]]:
        """Yield the ranks that go back together, by id."""
        sets, seen = self._servers.plan.rollback, set[int]()
        for id in list(self._servers.members):
            if sets and id not in seen:
                ids = sorted(sets.of(id))
                seen |= set(ids)
                if len(ids) > 1:
                    yield ids

    def _signs(self, ids: Sequence[int], now: float) -> tuple[tuple[int, ...], ...]:
        """Return what changes with whatever a rank does, nothing if one cannot be waiting."""
        signs = tuple([self._signs_of(id, now) for id in ids])
        return signs if all(signs) else ()

    def _signs_of(self, id: int, now: float) -> tuple[int, ...]:
        member, rank = self._servers.members.get(id), self._servers.plan.ranks.get(id)
        if not member or not rank or rank.state not in _WAITING or member.client_gone:
            return ()
        state = page.read(member.channel.control_fd)
        before = self._moved.get(id)
        if not before or before.epoch != rank.epoch:
            self._moved[id] = Moved(rank.epoch, state.device_progress)
        elif before.progress != state.device_progress:
            self._moved[id] = Moved(rank.epoch, state.device_progress, now)
        works = state.callback_asked != state.callback_done
        if works or state.phase not in _WAITING[rank.state]:
            return ()
        done = (state.device_progress, state.consumed, state.dispatching_seq, state.passed_bytes)
        done += (state.replayed_entries, state.callback_asked, state.fences_open)
        return (state.phase, id, rank.epoch, *done)

    def _judge(self, ids: list[int], standstill: Standstill, now: float) -> None:
        """Half of the time has passed, or all of it, and nothing has moved."""
        stood, limit = now - standstill.since, self._limit(standstill)
        if (standstill.told and stood < limit) or not all(map(self._waits, ids)):
            return
        ids = sorted(ids, key=lambda id: self._servers.plan.ranks[id].rank)
        ranks = ", ".join(str(self._servers.plan.ranks[id].rank) for id in ids)
        if stood < limit:
            standstill.told = True
            messages.say(self._slow(ranks, standstill.meets, stood, limit))
            return
        evidence = f"ranks [{ranks}] wait for each other, nothing moved for [{stood:.1f} s]"
        if standstill.meets:
            why = "communicators are made anew"
            id, fault = ids[0], of_agent("overdue", f"{evidence}; {why}", lasted=stood)
        else:
            laggard, why = self._laggard(ids)
            id, fault = self._same_as_before(ids, laggard, f"{evidence}; {why}", stood)
        self._servers.event(events.Suspected(id, self._servers.plan.ranks[id].epoch, fault))

    @staticmethod
    def _slow(ranks: str, meets: bool, stood: float, limit: float) -> str:
        where = "to make their communicators anew" if meets else "in collectives"
        return (
            f"ranks [{ranks}] wait for each other {where}, and nothing has moved for "
            f"[{stood:.0f} s]; pyft has them go back at [{limit:g} s]"
            + ("" if meets else " (PYFT_COLLECTIVE_S)")
        )

    def _waits(self, id: int) -> bool:
        member = self._servers.members[id]
        return waits_for_others(member, page.read(member.channel.control_fd))

    # ---- which lags ---------------------------------------------------------------------------

    def _laggard(self, ids: list[int]) -> tuple[int, str]:
        """Return which is behind the others, as far as that can be told, and how that was seen."""
        name = {id: self._servers.plan.ranks[id].rank for id in ids}
        begun = {id: self._begun(id) for id in ids}
        counts = {id: count for id, count in begun.items() if count is not None}
        if len(counts) == len(ids) and len(set(counts.values())) > 1:
            least = min(counts.values())
            last = min((id for id in ids if counts[id] == least), key=self._when_moved)
            told = ", ".join(f"rank {name[id]}: {counts[id]}" for id in ids)
            return last, (
                f"rank [{name[last]}] has begun the fewest collectives since the last common "
                f"snapshot [{told}]"
            )
        first, second, *_ = sorted(ids, key=self._when_moved)
        earlier = self._when_moved(second) - self._when_moved(first)
        if self._when_moved(first) and earlier >= EARLIER_S:
            return first, f"the device of rank [{name[first]}] stopped first, by [{earlier:.1f} s]"
        return ids[0], "which rank lags behind is not known"

    def _when_moved(self, id: int) -> float:
        return self._moved[id].when

    def _begun(self, id: int) -> int | None:
        """Return how many collectives a server has begun since the line; None: not all are seen."""
        member, sets = self._servers.members[id], self._servers.plan.rollback
        assert sets is not None
        consumed, line = page.read(member.channel.control_fd).consumed, sets.entry(id)
        entries = _entries(member)
        if not entries or entries[0].seq > line + 1:
            return None
        given = (e for e in entries if e.seq > line and e.position < consumed)
        return sum(e.call.startswith("nccl") and not e.call.startswith(_OTHER_CALLS) for e in given)

    def _same_as_before(
        self, ids: list[int], laggard: int, evidence: str, stood: float
    ) -> tuple[int, Fault]:
        """Return whose fault it is: of the same rank as the last time at this place.

        Another one may lag each time; the faults would be the first of each.
        """
        faults = {}
        for id in ids:
            state = page.read(self._servers.members[id].channel.control_fd)
            seq, cut = state.dispatching_seq, state.snapshot_cut
            faults[id] = fault = of_agent("collective", evidence, seq, cut, stood)
            before = self._servers.plan.ranks[id].history.positions.get(fault.name)
            if before and before.is_here(fault):
                return id, fault
        return laggard, faults[laggard]


def waits_for_others(member: Member, state: page.ControlState) -> bool:
    """Say whether a rank waits for others: its device or its server, and its program for that."""
    if state.phase == page.Phase.COMMUNICATORS:
        return True
    if has_entries(member, state):  # a device's queue may be full, then its server waits for room
        return state.collectives_waiting > 0 or makes_communicator(member, state)
    # A program that never asks for an end learns of none.
    open_work = state.collectives_waiting > 0 and state.fences_open > 0
    return open_work and unfinished.is_waited_for(member.channel.control_fd)


def has_entries(member: Member, state: page.ControlState) -> bool:
    """Say whether a server has something to execute; in a replay until that is over."""
    return state.phase == page.Phase.REPLAY or not member.drained()


def makes_communicator(member: Member, state: page.ControlState) -> bool:
    """Say whether the dispatch thread is inside a call that waits for other ranks."""
    if not has_entries(member, state):
        return False
    calls = [entry.call for entry in _entries(member) if entry.seq == state.dispatching_seq]
    return any(call.startswith("nccl") for call in calls)


def _entries(member: Member) -> list[Entry]:
    return live.recent_entries(Path(f"/proc/self/fd/{member.channel.log_fd}"))
