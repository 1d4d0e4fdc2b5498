"""How fast each rank goes, and how often it is snapshotted: from what the agent writes down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from pyft.report.lanes import Seen

WINDOW_S = 20.0  # over which a rate is taken


@dataclass(frozen=True)
class Pace:
    """How far a member is. `rate`: steps in a second; `interval`: steps from snapshot to snapshot."""

    steps: int = 0
    rate: float = 0.0
    snapshot: int = 0
    interval: int = 0
    gpu: int = -1


def pace(seen: Seen, now: float) -> Pace:
    """Return the pace of a member from what was seen of it until `now`, in seconds."""
    if not seen.steps:
        return Pace()
    steps = seen.steps[-1][1]
    gpu = seen.gpus[-1][1] if seen.gpus else -1
    last = seen.snapshots[-1][1] if seen.snapshots else 0
    return Pace(steps, _rate(seen.steps, now), last, _interval(seen.snapshots), gpu)


def _rate(steps: list[tuple[float, int]], now: float) -> float:
    """Return steps per second, over a window that ends now: a rank that stands still gets slower."""
    recent = [one for one in steps if one[0] >= now - WINDOW_S]
    if not recent:
        return 0.0
    before = [one for one in steps if one[0] < now - WINDOW_S][-1:]
    start, count = (before or recent)[0]
    start = max(start, now - WINDOW_S)
    return (recent[-1][1] - count) / (now - start) if now > start else 0.0


def _interval(snapshots: list[tuple[float, int]], most: int = 8) -> int:
    """Return how many cuts lie between two snapshots; not all of them are seen, so what divides."""
    cuts = [cut for _, cut in snapshots[-most:]]
    return math.gcd(*(after - before for before, after in itertools.pairwise(cuts)))


def spread(values: Iterable[float]) -> str:
    """Return the smallest and the largest of some rates in words."""
    found = sorted(values)
    if not found:
        return "-"
    return (
        f"{found[0]:.2f}" if found[-1] - found[0] < 0.01 else f"{found[0]:.2f} to {found[-1]:.2f}"
    )
