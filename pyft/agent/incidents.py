"""Writes down what happens to servers, for report and metrics."""

from __future__ import annotations

import time
from typing import Any

from pyft.agent import page
from pyft.agent.member import Member
from pyft.recovery import report
from pyft.recovery.classify import Fault
from pyft.recovery.plan import Rank
from pyft.recovery.report import Incident


class Incidents:
    """All faults of a job. At most one per member is open."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.all: list[Incident] = []
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

    def died(self, member: Member, rank: Rank, fault: Fault) -> None:
        """Note that a server's death is confirmed."""
        if member.id not in self._open or member.id in self._fenced:
            self._begin(member, rank, fault)
        self._fenced[member.id] = self.now()

    def started(self, member: Member, rank: Rank) -> None:
        """Note that a new server is started."""
        if incident := self._open.get(member.id):
            incident.gpu_to, incident.epoch_to = rank.gpu, rank.epoch
            incident.mode = rank.mode.name.lower()
            where = "the same" if rank.gpu == incident.gpu_from else "another"
            incident.action = f"new server on {where} GPU, {incident.mode} replay"

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
        incident.phases_ms = report.phases_of(*marks, state.phase_ns)
        incident.verdict = report.verdict(state.compared, state.differed)
        delivered = incident.mode == "deliver"
        incident.finish("error delivered" if delivered else "recovered", now)
        self._last[member.id] = incident

    def recount(self, member: Member) -> None:
        """Note what has been compared since a rank works again: its streams may lag behind."""
        incident = self._last.get(member.id)
        if incident is None or member.channel.control_fd < 0:
            return
        state = page.read(member.channel.control_fd)
        if state.epoch == incident.epoch_to:
            self._measure(incident, state)
            incident.verdict = report.verdict(state.compared, state.differed)

    def given_up(self, member: Member, why: str) -> None:
        """Note that the client gets an error."""
        if incident := self._open.pop(member.id, None):
            self._fenced.pop(member.id, None)
            self._measure(incident, page.read(member.channel.control_fd))
            incident.action = incident.action or "error to the client"
            incident.verdict = "diverged" if incident.fault == "diverged" else ""
            incident.finish(f"given up: {why}", self.now())

    def client_gone(self, id: int) -> None:
        """Close what is open: nobody waits for it."""
        if incident := self._open.pop(id, None):
            self._fenced.pop(id, None)
            incident.finish("client ended", self.now())

    def last(self, id: int) -> Incident | None:
        """Return the last fault of a member that was repaired."""
        return self._last.get(id)

    def summary(self) -> dict[str, Any]:
        """Return the part of report.json about recovery."""
        return report.summary(self.all, self.now())

    def _begin(self, member: Member, rank: Rank, fault: Fault) -> None:
        now = self.now()
        self.recount(member)
        if before := self._open.pop(member.id, None):
            self._fenced.pop(member.id, None)
            self._measure(before, page.read(member.channel.control_fd))
            before.finish("failed again", now)
        state = page.read(member.channel.control_fd)
        began = self._injected.pop(member.id, 0.0) or state.heartbeat_ns / 1e9 - self.start
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
            cut=state.captured_cut,
            gpu_from=rank.gpu,
            epoch_from=rank.epoch,
        )
        self.all.append(incident)

    def _measure(self, incident: Incident, state: page.ControlState) -> None:
        incident.restored_bytes = state.restored_bytes
        incident.restored_blocks = state.restored_blocks
        incident.replayed_entries = state.replayed_entries
        incident.compared = state.compared
        incident.differed = state.differed
        incident.differed_seq = state.differed_seq
