"""How often faults come: from published rates, and from counts with their uncertainty."""

from __future__ import annotations

import math

from scipy.stats import gamma

from pyft_lab.errors import OutOfRangeError

GPUS_PER_NODE = 8


def mtbf_h(gpus: float, per_1000_node_days: float, gpus_per_node: int = GPUS_PER_NODE) -> float:
    """Return the hours between faults of a job."""
    return 24 / (per_1000_node_days / 1000 * gpus / gpus_per_node)


def per_1000_node_days(
    faults: float, days: float, gpus: float, gpus_per_node: int = GPUS_PER_NODE
) -> float:
    """Return the rate that faults of a job stand for."""
    return faults / days / (gpus / gpus_per_node) * 1000


def mtbf_interval(faults: int, duration: float, level: float = 0.95) -> tuple[float, float]:
    """Return bounds of the mean time between faults: the rate is Gamma(n + 1/2, duration).

    No fault at all is no rate of 0: the upper bound is finite.
    """
    if duration <= 0:
        raise OutOfRangeError(f"duration [{duration}] must be above 0")
    low, high = gamma(faults + 0.5, scale=1 / duration).interval(level)
    return 1 / float(high), 1 / float(low)


def at_least_two(expected: float) -> float:
    """Return the Poisson chance of two faults or more."""
    return 1 - math.exp(-expected) * (1 + expected)
