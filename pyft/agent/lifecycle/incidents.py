"""Writes down what happens to servers: for report and metrics, and for the next agent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyft.agent.channel import page
from pyft.agent.members.member import Member
from pyft.recovery import report
from pyft.recovery.classify import Fault
from pyft.recovery.earlier import MOST, Earlier
from pyft.recovery.rank import Rank
from pyft.recovery.report import Incident


class Incidents:
    """The last faults of a job, and sums of those before. At most one per member is open."""

    def __init__(self, changed: Callable[[dict[str, Any]], None]) -> None:
        self.start = time.monotonic()
        self.restarts = 0  # of the agent
        self.all: list[Incident] = []
        self.earlier = Earlier()
        self._texts: dict[int, str] = {}  # of those that change no more, by the entry's id()
        self._changed = changed
        self._members: list[int] = []  # whose incident each of them is
        self._open: dict[int, Incident] = {}
        self._fenced: dict[int, float] = {}
        self._last: dict[int, Incident] = {}
        self._injected: dict[int, float] = {}

    def now(self) -> float:
        """Return the seconds since the job's start."""
        return time.monotonic() - self.start

    def injected(self, member: Member) -> None:
        """Note that a fault begins now."""
        self._injected[member.id] = self.now()

    def suspected(self, member: Member, rank: Rank) -> None:
        """Note that the plan has a server ended."""
        assert rank.fault is not None
        self._begin(member, rank, rank.fault)
        self._keep()

    def died(self, member: Member, rank: Rank, fault: Fault) -> None:
        """Note that a server's death is confirmed."""
        if member.id not in self._open or member.id in self._fenced:
            self._begin(member, rank, fault)
        self._fenced[member.id] = self.now()
        self._keep()

    def started(self, member: Member, rank: Rank, together: int = 1) -> None:
        """Note that a new server is started; `together`: how many ranks go back."""
        if incident := self._open.get(member.id):
            self._waits_no_more(incident)
            incident.gpu_to, incident.epoch_to = rank.gpu, rank.epoch
            incident.mode = rank.mode.name.lower()
            where = "the same" if rank.gpu == incident.gpu_from else "another"
            incident.action = f"new server on {where} GPU, {incident.mode} replay"
            if together > 1:
                incident.action += f", all [{together}] ranks replay"
            self._keep()

    def waits(self, member: Member) -> None:
        """Note that no GPU is left for the next server."""
        if incident := self._open.get(member.id):
            incident.waits_since = incident.waits_since or self.now()
            incident.action = "waits for a GPU"
            self._keep()

    def live(self, member: Member) -> None:
        """Note that the rank works again."""
        incident = self._open.pop(member.id, None)
        if incident is None:
            return
        now = self.now()
        fenced = self._fenced.pop(member.id, incident.noticed)
        state = page.read(member.channel.control_fd)
        self._measure(incident, state)
        marks = (self.start + t for t in (incident.began, incident.noticed, fenced, now))
        waited = incident.phases_ms.get("wait", 0.0) / 1e3
        incident.phases_ms = report.phases_of(*marks, state.phase_ns, waited)
        incident.verdict = report.verdict(state.differed, state.corrected, state.shared)
        delivered = incident.mode == "deliver"
        incident.finish(report.DELIVERED if delivered else "recovered", now)
        if delivered:
            report.mark_own_error(self.of(member.id))
            self._texts.clear()
        self._last[member.id] = incident
        self._keep()

    def recount(self, member: Member) -> None:
        """Note what has been compared since a rank works again: its streams may lag behind."""
        incident = self._last.get(member.id)
        if incident is None or member.channel.control_fd < 0:
            return
        state = page.read(member.channel.control_fd)
        if state.epoch == incident.epoch_to:
            self._measure(incident, state)
            incident.verdict = report.verdict(state.differed, state.corrected, state.shared)

    def voted(self, member: Member, seq: int, culprit: str) -> None:
        """Note what a third execution says of the two that have differed at an entry."""
        of_seq = [one for one in self.of(member.id) if one.seq == seq and one.fault == "mismatch"]
        for incident in of_seq[-1:]:  # the servers before it had other results
            incident.culprit = culprit
        self._texts.clear()
        self._keep()

    def given_up(self, member: Member, why: str) -> None:
        """Note that the client gets an error."""
        if incident := self._open.pop(member.id, None):
            self._fenced.pop(member.id, None)
            self._measure(incident, page.read(member.channel.control_fd))
            self._waits_no_more(incident)
            incident.action = incident.action or "error to the client"
            incident.verdict = "diverged" if incident.fault == "diverged" else ""
            incident.finish(f"given up: {why}", self.now())
            self._keep()

    def client_gone(self, id: int) -> None:
        """Close what is open: nothing waits for it."""
        if incident := self._open.pop(id, None):
            self._fenced.pop(id, None)
            self._waits_no_more(incident)
            incident.finish("client ended", self.now())
            self._keep()

    def left(self) -> None:
        """Close all that is open: the place goes on at another host."""
        for incident in self._open.values():
            self._waits_no_more(incident)
            incident.action = "its place goes to another host"
            incident.finish(report.MOVED, self.now())
        self._open, self._fenced = {}, {}
        self._keep()

    def renamed(self, id: int, rank: int) -> None:
        """Note which rank a member is, which was not known before."""
        for incident in self.of(id):
            incident.rank = rank
        self._texts.clear()
        self._keep()

    def of(self, id: int) -> list[Incident]:
        """Return the faults of a member."""
        return [i for owner, i in zip(self._members, self.all, strict=True) if owner == id]

    def open(self, id: int) -> Incident | None:
        """Return the fault of a member that is being repaired."""
        return self._open.get(id)

    def again(self, id: int) -> None:
        """Note that what was being done about a fault is begun again."""
        self._fenced.pop(id, None)

    def fenced(self, id: int) -> None:
        """Note that the server of a member was found dead, whose fault is known."""
        self._fenced.setdefault(id, self.now())

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from what the agent before has written down."""
        self.start = note["start"]
        self._members = note["members"]
        self.all = [Incident(**json.loads(text)) for text in note["all"]]
        self.earlier = Earlier.of(note["earlier"])
        for id, incident in zip(self._members, self.all, strict=True):
            if not incident.ended:
                self._open[id] = incident
            elif incident.outcome in ("recovered", report.DELIVERED):
                self._last[id] = incident
        self._fenced = {id: at for id, at in note["fenced"] if id in self._open}

    def last(self, id: int) -> Incident | None:
        """Return the last fault of a member that was repaired."""
        return self._last.get(id)

    def stood_still(self, id: int) -> tuple[float, float, float]:
        """Return how long a rank has just stood still, in seconds: in all, to notice, to repair.

        With the attempts to repair it that have failed.
        """
        faults = self.of(id)
        first = len(faults) - 1
        while first and faults[first - 1].outcome == "failed again":
            first -= 1
        total = faults[-1].ended - faults[first].began
        notice = faults[first].noticed - faults[first].began
        return total, notice, total - notice

    def summary(self) -> dict[str, Any]:
        """Return the part of report.json about recovery."""
        return self.earlier.summary(self.all, self.now(), self.restarts)

    def _keep(self) -> None:
        known = {"start": self.start, "members": self._members, "all": self._all_texts()}
        known |= {"fenced": list(self._fenced.items()), "earlier": self.earlier.note()}
        self._changed(known)

    def _all_texts(self) -> list[str]:
        """Return a text for each fault. A repair waits for this, so old ones are put down once."""
        last = {id(incident) for incident in self._last.values()}
        found = []
        for incident in self.all:
            text = self._texts.get(id(incident)) or text_of(incident)
            if incident.ended and id(incident) not in last:
                self._texts[id(incident)] = text
            found.append(text)
        return found

    def _begin(self, member: Member, rank: Rank, fault: Fault) -> None:
        now = self.now()
        self.recount(member)
        if before := self._open.pop(member.id, None):
            self._fenced.pop(member.id, None)
            self._measure(before, page.read(member.channel.control_fd))
            before.finish("failed again", now)
        state = page.read(member.channel.control_fd)
        began = self._injected.pop(member.id, 0.0) or state.heartbeat_ns / 1e9 - self.start
        if fault.lasted:  # a server that hangs beats all the same
            began = now - fault.lasted
        if fault.name == "ordered":
            began = now
        self._open[member.id] = incident = Incident(
            rank=rank.rank,
            device=rank.device,
            fault=fault.name,
            evidence=fault.evidence,
            began=min(max(began, 0.0), now) if before is None else now,
            noticed=now,
            seq=fault.seq or state.dispatching_seq,
            cut=state.snapshot_cut,
            gpu_from=rank.gpu,
            epoch_from=rank.epoch,
        )
        self.all.append(incident)
        self._members.append(member.id)
        self._shorten()

    def _shorten(self) -> None:
        """Keep only sums of what has ended longest ago: each fault is written down with all others."""
        for _ in range(len(self.all) - MOST):
            oldest = next((n for n, one in enumerate(self.all) if one.ended), None)
            if oldest is None:  # more members have a fault at this moment
                return
            gone, owner = self.all.pop(oldest), self._members.pop(oldest)
            self._texts.pop(id(gone), None)
            if self._last.get(owner) is gone:
                del self._last[owner]
            self.earlier.add(gone, self.all, self.now())

    def _waits_no_more(self, incident: Incident) -> None:
        if incident.waits_since:
            waited_ms = (self.now() - incident.waits_since) * 1e3
            incident.phases_ms = {"wait": round(waited_ms, 3)}
            incident.waits_since, incident.action = 0.0, ""

    def _measure(self, incident: Incident, state: page.ControlState) -> None:
        if incident.fault == "ring-broken":
            return  # no server has got that far: the client may have written anything there
        incident.restored_bytes = state.restored_bytes
        incident.restored_blocks = state.restored_blocks
        incident.replayed_entries = state.replayed_entries
        incident.peer_bytes = state.peer_bytes
        incident.ready_modules = state.ready_modules
        incident.compared = state.compared
        incident.differed = state.differed
        incident.differed_seq = state.differed_seq
        incident.corrected = state.corrected
        incident.corrected_text = state.corrected_text


def text_of(incident: Incident) -> str:
    """Return all that is known of a fault."""
    return json.dumps(asdict(incident))
