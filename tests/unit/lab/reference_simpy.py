"""The simulator's oracle: the same cluster as processes of SimPy, written without the engine."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

import simpy

from pyft_lab.sim.cluster import JOB, NODE, RACK, SOFT, Cluster, Mechanism


@dataclass
class Job:
    """State of the job, and what it has had."""

    useful: float = 0.0
    lost: float = 0.0
    up_since: float = 0.0
    is_up: bool = True
    recovering: float = 0.0
    waiting: float = 0.0
    losses: int = 0
    hurt: set[int] = field(default_factory=set)
    needed: float = 0.0
    phase: str = "waiting"
    begun: float = 0.0
    pending: list[simpy.Event] = field(default_factory=list)


class Simulation:
    """One trial."""

    def __init__(
        self, cluster: Cluster, mechanism: Mechanism, trace: list[tuple], hours: float
    ) -> None:
        self.cluster, self.mechanism, self.trace, self.hours = cluster, mechanism, trace, hours
        self.env = simpy.Environment()
        self.pool = simpy.Container(self.env, init=cluster.spares)
        self.job = Job()
        m = mechanism
        disk = m.disk_interval / (m.disk_interval + m.disk_stall) if m.copies else 1.0
        self.rate = (1 - m.overhead) * disk
        self.recovery: simpy.Process | None = None

    def settle(self, at_fault: bool) -> None:
        """Count the work since the job came up: cycle by cycle, as the clock would."""
        m, up = self.mechanism, self.env.now - self.job.up_since
        cycles = math.floor(up / (m.interval + m.stall))
        rest = up - cycles * (m.interval + m.stall)
        in_cycle = min(rest, m.interval)
        durable = cycles - 1 if cycles and rest < m.lag else cycles
        kept = durable * m.interval if at_fault else cycles * m.interval + in_cycle
        self.job.useful += kept * self.rate
        if at_fault:
            self.job.lost += (cycles * m.interval + in_cycle - kept) * self.rate

    def lose_memory(self) -> None:
        spacing = self.mechanism.disk_interval * (1 - self.mechanism.overhead)
        checkpoints = math.floor(self.job.useful / spacing + 1e-9)
        back = max(0.0, self.job.useful - checkpoints * spacing)
        self.job.useful -= back
        self.job.lost += back
        self.job.losses += 1
        self.job.hurt.clear()

    def is_lost(self, nodes: set[int]) -> bool:
        m, count = self.mechanism, self.cluster.nodes
        for node in nodes:
            for first in (node - back * m.distance for back in range(m.copies + 1)):
                chain = {(first + i * m.distance) % count for i in range(m.copies + 1)}
                if chain <= self.job.hurt:
                    return True
        return False

    def repair(self, nodes: int, hours: float):  # noqa: ANN201
        yield self.env.timeout(hours)
        for _ in range(nodes):
            yield self.pool.put(1)

    def recover(self):  # noqa: ANN201
        """Wait for all spares that were asked for, then recover; a fault begins this anew."""
        job = self.job
        job.phase, job.begun = "waiting", self.env.now
        with contextlib.suppress(simpy.Interrupt):
            yield self.env.all_of(job.pending)
            self.end_phase()
            job.phase, job.begun = "recovering", self.env.now
            yield self.env.timeout(job.needed)
            self.end_phase()
            job.is_up, job.up_since, job.pending, job.needed = True, self.env.now, [], 0.0

    def end_phase(self) -> None:
        """Count the time since the phase of a recovery began."""
        job = self.job
        setattr(job, job.phase, getattr(job, job.phase) + self.env.now - job.begun)

    def fault(self, place: int, kind: int, repair: float) -> None:
        job, m, c = self.job, self.mechanism, self.cluster
        if job.is_up:
            self.settle(at_fault=True)
            if self.env.now >= job.up_since + m.protect:
                job.hurt.clear()
        nodes = {place}
        if kind == RACK:
            first = place - place % c.nodes_per_rack
            nodes = set(range(first, min(first + c.nodes_per_rack, c.nodes)))
        need = m.recover
        if m.copies:
            hurts = kind != SOFT or m.soft_hurts
            if hurts:
                job.hurt |= nodes
            if kind == JOB or (hurts and self.is_lost(nodes)):
                self.lose_memory()
                need = m.disk_recover
        job.needed = max(job.needed, need)
        if kind in (NODE, RACK):
            self.env.process(self.repair(len(nodes), repair))
            job.pending.append(self.pool.get(len(nodes)))
        if not job.is_up:
            self.end_phase()
            if self.recovery is not None and self.recovery.is_alive:
                self.recovery.interrupt()
        job.is_up = False
        self.recovery = self.env.process(self.recover())

    def source(self):  # noqa: ANN201
        for time, place, kind, repair in self.trace:
            yield self.env.timeout(time - self.env.now)
            self.fault(place, kind, repair)

    def run(self) -> Job:
        self.env.process(self.source())
        self.env.run(until=self.hours)
        if self.job.is_up:
            self.settle(at_fault=False)
        else:
            self.end_phase()
        return self.job
