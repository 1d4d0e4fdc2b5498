"""Candidates of a plan: ranked by formulas, the best of them simulated over the same faults."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from pyft_lab.errors import SpecError
from pyft_lab.models import goodput, survival
from pyft_lab.sim import constants, simulate
from pyft_lab.sim.cluster import Cluster, Mechanism

AVAILABLE = ("restart", "async", "pyft")  # what a user can have today
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of the best interval: formulas are near, not exact
SPARES = (0.0, 0.4, 0.7, 1.0, 1.4, 2.0)  # of enough
SIMULATED = 8
FAULTS_SIMULATED = 100_000  # per candidate
MOST_TRIALS, FEWEST_TRIALS = 100, 20


@dataclass(frozen=True)
class Job:
    """What is asked for. `max_loss` bounds the chance that memory is not enough in a run."""

    cluster: Cluster
    days: float
    step_s: float = 20.0
    gpu_hour: float = 0.0
    max_loss: float = 1.0
    mechanisms: tuple[str, ...] = AVAILABLE
    seed: int = 1

    @property
    def hours(self) -> float:
        return self.days * 24

    @property
    def trials(self) -> int:
        faults = max(self.hours / self.cluster.mtbf_h, 1)
        return int(min(MOST_TRIALS, max(FEWEST_TRIALS, FAULTS_SIMULATED / faults)))


@dataclass(frozen=True)
class Candidate:
    """A mechanism with its intervals, and spares."""

    name: str
    mechanism: Mechanism
    spares: int


@dataclass(frozen=True)
class Outcome:
    """A simulated candidate."""

    candidate: Candidate
    summary: simulate.Summary
    useful_share: float  # of all GPU-hours, those of spares as well
    lost_gpu_hours: float  # a run
    p_lost: float  # the chance that memory is not enough in a run


def waiting_share(cluster: Cluster, spares: int) -> float:
    """Return the share of the time in which nodes are missing: nodes out are about normal."""
    rack = cluster.nodes_per_rack
    per_h = 1 / cluster.mtbf_h * cluster.mean_repair_h
    mean = per_h * (cluster.node_share + cluster.rack_share * rack)
    variance = per_h * (cluster.node_share + cluster.rack_share * rack**2)
    return float(norm.sf(spares + 0.5, mean, math.sqrt(variance))) if variance else 0.0


def estimate(job: Job, candidate: Candidate) -> float:
    """Return the useful share by formulas, to rank candidates with."""
    cluster, m = job.cluster, candidate.mechanism
    c = constants.mechanisms()[candidate.name]
    if not m.copies:
        good = goodput.exact(cluster.mtbf_h, m.interval, m.stall, m.recover) * (1 - m.overhead)
    else:
        rate = simulate.memory_losses_per_h(cluster, c, m.recover, m.protect)
        slow = 1 / rate if rate else 1e9
        fast = 1 / max(1 / cluster.mtbf_h - rate, 1e-9)
        disk = (m.disk_interval, m.disk_stall, m.disk_recover)
        good = goodput.two_levels(fast, m.recover + m.interval / 2, slow, *disk, m.overhead)
    good *= 1 - waiting_share(cluster, candidate.spares)
    return good * cluster.nodes / (cluster.nodes + candidate.spares)


def candidates(job: Job) -> list[Candidate]:
    """Return mechanisms x intervals x spares."""
    known, found = constants.mechanisms(), []
    enough = simulate.enough_spares(job.cluster)
    for name in job.mechanisms:
        if name not in known:
            raise SpecError(f"no mechanism [{name}]: there are {list(known)}")
        best = simulate.configure(job.cluster, known[name], known["restart"], job.step_s)
        for by in FACTORS:
            if best.copies:
                m = replace(best, disk_interval=best.disk_interval * by)
            else:
                m = replace(best, interval=max(best.interval * by, best.lag, job.step_s / 3600))
            found += [Candidate(name, m, round(enough * share)) for share in SPARES]
    return sorted(set(found), key=lambda c: (-estimate(job, c), c.name, c.spares))


def chance_of_loss(cluster: Cluster, candidate: Candidate, hours: float) -> float:
    """Return the chance of a formula that memory is not enough in a run."""
    m, c = candidate.mechanism, constants.mechanisms()[candidate.name]
    if not m.copies:
        return 0.0
    rate = simulate.memory_losses_per_h(cluster, c, m.recover, m.protect)
    return survival.probability(rate, hours)


def outcome(job: Job, candidate: Candidate, cluster: Cluster | None = None) -> Outcome:
    """Simulate one candidate; all of a job meet the same faults."""
    cluster = replace(cluster or job.cluster, spares=candidate.spares)
    rows = {"": np.tile(np.array(candidate.mechanism.numbers()), (job.trials, 1))}
    out = simulate.run(cluster, rows, job.hours, job.seed)[""]
    summary = simulate.summarise(out, out, job.hours)
    total = cluster.nodes + candidate.spares
    useful = summary.goodput * cluster.nodes / total
    lost = (1 - useful) * total * cluster.gpus_per_node * job.hours
    # A hundred runs know of no small chance; formulas know of no wait that lasts.
    p_lost = max(summary.p_state_lost, chance_of_loss(cluster, candidate, job.hours))
    return Outcome(candidate, summary, useful, lost, p_lost)


def ranked(job: Job, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return outcomes, the best first: those within the bound of losses, then by useful share."""
    return sorted(outcomes, key=lambda o: (o.p_lost > job.max_loss, -o.useful_share))


def search(job: Job) -> list[Outcome]:
    """Return the best candidates, simulated; each mechanism has at least its own best one."""
    listed = candidates(job)
    best_of = {c.name: c for c in reversed(listed)}
    chosen = list(dict.fromkeys([*best_of.values(), *listed]))[: max(SIMULATED, len(best_of))]
    return ranked(job, [outcome(job, candidate) for candidate in chosen])


def sensitivity(job: Job, best: Outcome) -> list[tuple[str, float, float]]:
    """Return (what, goodput at its low, at its high value) for each input, the widest first."""
    known = constants.mechanisms()
    c, m, found = known[best.candidate.name], best.candidate.mechanism, []

    def again(m: Mechanism, cluster: Cluster | None = None) -> float:
        return outcome(job, replace(best.candidate, mechanism=m), cluster).summary.goodput

    scaled = [("stall_s", "stall", c.stall_s), ("recover_s", "recover", c.recover_s)]
    scaled += [("protect_s", "protect", c.protect_s), ("lag_s", "lag", c.lag_s)]
    if m.copies:
        disk = known["restart"]
        scaled += [("restart.stall_s", "disk_stall", disk.stall_s)]
        scaled += [("restart.recover_s", "disk_recover", disk.recover_s)]
    for name, field, (_, low, high) in scaled:
        if high > low:
            top = m.interval + m.stall if field == "lag" else math.inf
            values = [min(v / 3600, top) for v in (low, high)]
            found.append((name, *(again(replace(m, **{field: v})) for v in values)))
    if c.overhead[2] > c.overhead[1]:
        found.append(("overhead", *(again(replace(m, overhead=v)) for v in c.overhead[1:])))
    cluster = job.cluster
    for name, changes in (
        ("faults x 0.5, x 2", [{"per_1000_node_days": cluster.per_1000_node_days * f} for f in (0.5, 2)]),
        ("node_share 0.2, 0.6", [{"node_share": share} for share in (0.2, 0.6)]),
        ("repair x 0.5, x 2", [{"repair_median_h": cluster.repair_median_h * f} for f in (0.5, 2)]),
        ("weibull 0.7, 1", [{"weibull": shape} for shape in (0.7, 1.0)]),
    ):  # fmt: skip
        found.append((name, *(again(m, replace(cluster, **change)) for change in changes)))
    return sorted(found, key=lambda row: -abs(row[1] - row[2]))
