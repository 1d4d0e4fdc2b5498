"""How long it takes to replace a rank on N GPUs: three forms through published points.

Two points decide none of the forms, and at 100,000 GPUs they differ by a factor of 50. Whoever uses
one names it, and shows all while there are fewer than five points.
"""

from __future__ import annotations

import math

POINTS_FOR_ONE_FORM = 5
Point = tuple[float, float]


def logarithmic(first: Point, second: Point, gpus: float) -> float:
    """Return a + b * log2(N)."""
    slope = (second[1] - first[1]) / math.log2(second[0] / first[0])
    return first[1] + slope * math.log2(gpus / first[0])


def linear(first: Point, second: Point, gpus: float) -> float:
    """Return a + b * N."""
    return first[1] + (second[1] - first[1]) / (second[0] - first[0]) * (gpus - first[0])


def power(first: Point, second: Point, gpus: float) -> float:
    """Return a * N^c."""
    exponent = math.log(second[1] / first[1]) / math.log(second[0] / first[0])
    return first[1] * (gpus / first[0]) ** exponent


FORMS = {"logarithmic": logarithmic, "linear": linear, "power": power}
