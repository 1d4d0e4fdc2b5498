"""Draws faults: time, place, kind and repair. A trial's draws depend on its own seed only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyft_lab.sim.cluster import JOB, NODE, RACK, SOFT, Cluster


@dataclass(frozen=True)
class Traces:
    """A row per trial; times beyond the last fault are infinite."""

    times: NDArray[np.float64]
    nodes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    repairs: NDArray[np.float32]


def arrivals(
    random: np.random.Generator, cluster: Cluster, hours: float
) -> NDArray[np.floating[Any]]:
    """Return times of faults up to `hours`."""
    mean = cluster.mtbf_h
    scale = mean / float(_gamma(1 + 1 / cluster.weibull))
    count = int(hours / mean + 8 * np.sqrt(hours / mean)) + 20
    found = np.zeros(0)
    while not len(found) or found[-1] < hours:
        more = np.cumsum(scale * random.weibull(cluster.weibull, count))
        found = np.concatenate([found, more + (found[-1] if len(found) else 0.0)])
    return found[: int(np.searchsorted(found, hours))]


def _gamma(value: float) -> float:
    from math import gamma

    return gamma(value)


def kinds_of(shares: NDArray[np.float64], cluster: Cluster) -> NDArray[np.int8]:
    """Return the kind of each fault from a number between 0 and 1."""
    bounds = np.cumsum([cluster.rack_share, cluster.node_share, cluster.job_share])
    order = np.array([RACK, NODE, JOB, SOFT], np.int8)
    return order[np.searchsorted(bounds, shares, side="right")]


def draw(cluster: Cluster, hours: float, first: int, trials: int, seed: int) -> Traces:
    """Draw trials `first` to `first + trials`; chunks of any size give the same trials."""
    rows = []
    for trial in range(first, first + trials):
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(trial,)))
        times = arrivals(random, cluster, hours)
        count = len(times)
        nodes = random.integers(0, cluster.nodes, count, dtype=np.int32)
        kinds = kinds_of(random.random(count), cluster)
        repairs = random.lognormal(np.log(cluster.repair_median_h), cluster.repair_sigma, count)
        rows.append((times, nodes, kinds, repairs.astype(np.float32)))
    longest = max(len(row[0]) for row in rows) + 1
    traces = Traces(
        np.full((trials, longest), np.inf),
        np.zeros((trials, longest), np.int32),
        np.zeros((trials, longest), np.int8),
        np.zeros((trials, longest), np.float32),
    )
    for index, (times, nodes, kinds, repairs) in enumerate(rows):
        traces.times[index, : len(times)] = times
        traces.nodes[index, : len(times)] = nodes
        traces.kinds[index, : len(times)] = kinds
        traces.repairs[index, : len(times)] = repairs
    return traces
