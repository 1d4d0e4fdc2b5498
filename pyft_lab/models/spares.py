"""How many nodes are out at a time, and how many spares that asks for."""

from __future__ import annotations

from scipy.stats import poisson


def mean_out(
    faults_per_h: float, permanent: float, nodes_per_fault: float, repair_h: float
) -> float:
    """Return the mean number of nodes in repair (M^X/G/infinity)."""
    return faults_per_h * permanent * nodes_per_fault * repair_h


def for_single_nodes(mean: float, waiting: float) -> int:
    """Return the spares that are too few for a share `waiting` of the time.

    The number of nodes out is Poisson only if they fail one at a time. Where racks fail, simulate.
    """
    return int(poisson.ppf(1 - waiting, mean))
