"""Goodput of a job that goes back to its last checkpoint after each fault.

Time between faults is exponential with mean M (`mtbf`). Between checkpoints lie tau seconds of
work (`interval`); making one stops the job for delta seconds (`stall`); a recovery takes R seconds
(`recover`) without the work that is done again. All values of one call have the same unit.
"""

from __future__ import annotations

import math

from pyft_lab.errors import OutOfRangeError

# Cost of a fault by time between faults, above which a formula of first order is refused. There it
# is off by at most one point of a hundred: tests/unit/lab/test_models.py holds it to that.
FIRST_ORDER_LIMIT = 0.1


def cost_per_fault(mtbf: float, interval: float, stall: float, recover: float) -> float:
    """Return what one fault costs to first order: its share of stalls, recovery, half an interval.

    DEADPOOL's disruption cost. Its mean replay is (K - 1)/2 steps; half an interval is the same
    for faults at any time within a step.
    """
    return stall * mtbf / (interval + stall) + recover + interval / 2


def check_first_order(mtbf: float, cost: float, formula: str) -> None:
    """Raise if a formula of first order does not hold."""
    if cost > FIRST_ORDER_LIMIT * mtbf:
        raise OutOfRangeError(
            f"[{formula}] holds where a fault costs at most {FIRST_ORDER_LIMIT:g} of the time "
            f"between faults, here it is [{cost / mtbf:.2f}]: use the exact formula"
        )


def first_order(mtbf: float, interval: float, stall: float, recover: float) -> float:
    """Return DEADPOOL's goodput M / (M + cost); raise outside of its range."""
    cost = cost_per_fault(mtbf, interval, stall, recover)
    check_first_order(mtbf, cost, "M / (M + cost)")
    return mtbf / (mtbf + cost)


def expected_ettr(mtbf: float, interval: float, stall: float, recover: float) -> float:
    """Return Meta's expected ETTR (arXiv 2410.21680); raise outside of its range."""
    check_first_order(mtbf, cost_per_fault(mtbf, interval, stall, recover), "E[ETTR]")
    return (1 - (recover + interval / 2) / mtbf) / (1 + stall / interval)


def exact(mtbf: float, interval: float, stall: float, recover: float) -> float:
    """Return the goodput of the renewal process; recoveries may fail and start again (Daly)."""
    exponent = recover / mtbf + (interval + stall) / mtbf
    if exponent > 700:  # beyond what a float holds; the goodput is nothing
        return 0.0
    return interval / (mtbf * math.exp(recover / mtbf) * math.expm1((interval + stall) / mtbf))


def expected_loss(mtbf: float, interval: float) -> float:
    """Return the mean work lost by a fault that comes within an interval."""
    return mtbf - interval / math.expm1(interval / mtbf)


def two_levels(
    fast_mtbf: float,
    fast_cost: float,
    mtbf: float,
    interval: float,
    stall: float,
    recover: float,
    overhead: float = 0.0,
) -> float:
    """Return the goodput if most faults are repaired in memory and the rest restart.

    `fast_cost` is recovery plus half a step. Within 2 points of simulation (docs/research/lab.md).
    """
    slow = exact(mtbf, interval, stall, recover)
    return slow * (1 - overhead) / (1 + fast_cost / fast_mtbf)


def recover_for(goodput: float, mtbf: float, step: float, overhead: float) -> float:
    """Return how long a recovery in memory may take for a goodput; half a step is lost besides."""
    return mtbf * ((1 - overhead) / goodput - 1) - step / 2
