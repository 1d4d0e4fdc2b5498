"""Runs mechanisms over the same traces, in threads, and says what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pyft_lab.models import interval, spares, survival
from pyft_lab.sim import engine
from pyft_lab.sim.cluster import Cluster, Mechanism
from pyft_lab.sim.constants import SPANS, Constants
from pyft_lab.sim.traces import draw

CHUNK = 100  # trials at a time: 15 MB of trace at 100,000 GPUs and 90 days
LONGEST_DISK_INTERVAL_H = 24.0
WAITING_SHARE = 0.01  # of the time in which single nodes would find no spare
HOUR = 3600.0


def enough_spares(cluster: Cluster) -> int:
    """Return spares for single nodes at 99 % of the time, and for two racks."""
    per_fault = cluster.node_share + cluster.rack_share * cluster.nodes_per_rack
    mean = spares.mean_out(1 / cluster.mtbf_h, per_fault, 1, cluster.mean_repair_h)
    return spares.for_single_nodes(mean, WAITING_SHARE) + 2 * cluster.nodes_per_rack


def distance_of(cluster: Cluster, c: Constants) -> int:
    """Return how far off copies are: in a small cluster as far as it goes, never in the own node."""
    return min(c.distance, cluster.nodes // 2)


def memory_losses_per_h(
    cluster: Cluster, c: Constants, recover_h: float, protect_h: float
) -> float:
    """Return how often what is in memory is not enough."""
    per_h, distance = 1 / cluster.mtbf_h, distance_of(cluster, c)
    if distance == 0:  # with any fault that the node does not live through
        hurting = 1.0 if c.soft_hurts else cluster.node_share + cluster.rack_share
        return per_h * (hurting + cluster.job_share)
    hurting = 1.0 if c.soft_hurts else cluster.node_share
    rack = cluster.rack_share if distance < cluster.nodes_per_rack else 0.0
    window = recover_h + protect_h
    ring = survival.ring_rate(cluster.nodes, c.copies, per_h * hurting / cluster.nodes, window)
    return per_h * (cluster.job_share + rack) + ring


def configure(cluster: Cluster, c: Constants, disk: Constants, step_s: float) -> Mechanism:
    """Return a mechanism with the intervals that are best for its constants at this scale."""
    stall, lag, recover, protect = (
        value[0] / HOUR for value in (c.stall_s, c.lag_s, c.recover_s, c.protect_s)
    )
    disk_stall, disk_recover = disk.stall_s[0] / HOUR, disk.recover_s[0] / HOUR
    step = step_s / HOUR
    if not c.copies:
        own = max(interval.exact(stall, cluster.mtbf_h), lag, step)
        return Mechanism(
            own, stall, lag, recover, c.overhead[0], 0, 0, 0.0, own, disk_stall, disk_recover
        )
    rate = memory_losses_per_h(cluster, c, recover, protect)
    best = interval.exact(disk_stall, 1 / rate) if rate > 0 else LONGEST_DISK_INTERVAL_H
    disk_interval = min(best, LONGEST_DISK_INTERVAL_H)
    return Mechanism(
        step, 0.0, 0.0, recover, c.overhead[0], c.copies, distance_of(cluster, c), protect,
        disk_interval, disk_stall, disk_recover, c.soft_hurts,
    )  # fmt: skip


def split(
    random: np.random.Generator, span: tuple[float, float, float], trials: int
) -> NDArray[np.float64]:
    """Draw half of the values below a constant and half above, evenly up to its bounds."""
    value, low, high = span
    below = random.random(trials) < 0.5
    part = random.random(trials)
    return np.where(below, low + part * (value - low), value + part * (high - value))


def drawn(
    mechanism: Mechanism, c: Constants, disk: Constants, trials: int, seed: int
) -> NDArray[np.float64]:
    """Return a row per trial, with constants drawn between their bounds; intervals stay."""
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2**31,)))
    rows = np.tile(np.array(mechanism.numbers()), (trials, 1))
    column = {"stall_s": 1, "lag_s": 2, "recover_s": 3, "overhead": 4, "protect_s": 7}
    for name in SPANS:
        scale = 1.0 if name == "overhead" else HOUR
        if not (c.copies and name in ("stall_s", "lag_s")):
            rows[:, column[name]] = split(random, getattr(c, name), trials) / scale
    rows[:, 2] = np.minimum(rows[:, 2], rows[:, 0] + rows[:, 1])
    if c.copies:
        for place, span in ((9, disk.stall_s), (10, disk.recover_s)):
            rows[:, place] = split(random, span, trials) / HOUR
    return rows


def run(
    cluster: Cluster,
    rows: Mapping[str, NDArray[np.float64]],
    hours: float,
    seed: int,
    threads: int = 0,
) -> dict[str, NDArray[np.float64]]:
    """Simulate all trials of all mechanisms (a row of numbers each) over the same traces."""
    trials = len(next(iter(rows.values())))
    out = {name: np.zeros((trials, len(engine.COLUMNS))) for name in rows}

    def chunk(first: int) -> None:
        count = min(CHUNK, trials - first)
        t = draw(cluster, hours, first, count, seed)
        for name, numbers in rows.items():
            engine.many(
                t.times, t.nodes, t.kinds, t.repairs, numbers[first : first + count],
                cluster.nodes, cluster.nodes_per_rack, cluster.spares, hours,
                out[name][first : first + count],
            )  # fmt: skip

    # The engine lets go of the interpreter's lock.
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        list(pool.map(chunk, range(0, trials, CHUNK)))
    return out


@dataclass(frozen=True)
class Summary:
    """What a mechanism came to: means, their interval of 95 %, and the band of 5 to 95 %."""

    trials: int
    goodput: float
    goodput_error: float
    low: float
    high: float
    state_losses: float
    p_state_lost: float
    most_out: float
    waiting: float  # share of the time; the next four as well
    lost: float
    recovering: float
    stall: float
    overhead: float


def error_of_mean(values: NDArray[np.float64]) -> float:
    """Return half the width of the interval of 95 % of a mean: Student's t, as runs may be few."""
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return quantile * float(values.std(ddof=1)) / len(values) ** 0.5


def summarise(rows: NDArray[np.float64], band: NDArray[np.float64], hours: float) -> Summary:
    """Return the figures of one mechanism; `band` is the run with drawn constants."""
    good = rows[:, engine.USEFUL] / hours
    low, high = np.quantile(band[:, engine.USEFUL] / hours, [0.05, 0.95])
    share = rows.mean(axis=0) / hours
    return Summary(
        trials=len(good),
        goodput=float(good.mean()),
        goodput_error=error_of_mean(good),
        low=float(low),
        high=float(high),
        state_losses=float(rows[:, engine.STATE_LOSSES].mean()),
        p_state_lost=float((rows[:, engine.STATE_LOSSES] > 0).mean()),
        most_out=float(np.quantile(rows[:, engine.OUT], 0.99)),
        waiting=float(share[engine.WAITING]),
        lost=float(share[engine.LOST]),
        recovering=float(share[engine.RECOVERING]),
        stall=float(share[engine.STALL]),
        overhead=float(share[engine.OVERHEAD]),
    )
