"""How likely it is that state which is kept in memory is lost.

`window` is the time from a loss to the moment a copy is there again: detection, recovery and the
copy itself. A set of m nodes that must not all fail within the window is lost at a
rate of m * rate^m * window^(m - 1). Rates are per node and unit of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from pyft_lab.errors import OutOfRangeError


def loss_in_fixed_steps(shards: int, copies: int, per_step: float, steps: float) -> float:
    """Return DEADPOOL's bound (its eq. 1): shards * p^(copies + 1), for each step."""
    return shards * per_step ** (copies + 1) * steps


def ring_rate(nodes: int, copies: int, rate: float, window: float) -> float:
    """Return the rate of losses if each node's state has `copies` copies on the next nodes.

    Rings of one and two copies were simulated; more are refused.
    """
    if copies == 1:  # each node pairs with two others: N pairs, each lost at 2 rate^2 window
        return 2 * nodes * rate**2 * window
    if copies == 2:
        return 3 * nodes * rate**3 * window**2
    raise OutOfRangeError(f"rings of [{copies}] copies: 1 or 2 are modelled")


def parity_rate(nodes: int, group: int, parities: int, rate: float, window: float) -> float:
    """Return the rate of losses if groups of `group` nodes stand so many losses at a time."""
    if not 0 < parities < group:
        raise OutOfRangeError(f"[{parities}] parities in a group of [{group}] nodes")
    lost = parities + 1
    ways = math.comb(group, lost)
    return nodes / group * ways * lost * rate**lost * window**parities


def probability(rate: float, duration: float) -> float:
    """Return the chance of at least one loss."""
    return -math.expm1(-rate * duration)


def node_survival(rate: float, age: float, shape: float) -> float:
    """Return the chance that a node lives so long (Weibull): REFT's P_s."""
    return math.exp(-rate * age**shape)


def reft_survival(
    age: float, nodes: int, group: int, hardware: float, software: float, shape: float
) -> float:
    """Return REFT's P_re (its eq. 5): no group has lost more than one node, and there is no repair.

    `software` is the rate at which the processes fail that keep the snapshots; 0 leaves them out.
    """
    alive = node_survival(hardware, age, shape)
    whole = alive**group + group * (1 - alive) * alive ** (group - 1)
    return whole ** (nodes / group) * node_survival(software, age, shape) ** nodes


def checkpoint_survival(
    age: float, nodes: int, hardware: float, software: float, shape: float
) -> float:
    """Return REFT's P_ck: no node has failed since the checkpoint."""
    return (node_survival(hardware, age, shape) * node_survival(software, age, shape)) ** nodes


def age_at(survival: Callable[[float], float], threshold: float) -> float:
    """Return when a survival that falls from 1 reaches the threshold."""
    return float(brentq(lambda age: survival(age) - threshold, 1e-9, 1e6, xtol=1e-12))
