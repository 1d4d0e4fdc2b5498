"""How `make bench-ccl` prints figures."""

from __future__ import annotations

import math
from statistics import median


def spread(values: list[float], digits: int = 3) -> str:
    """Median (min to max, n), with so many significant digits."""
    shown = [number(value, digits) for value in (median(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]} to {shown[2]}, n={len(values)})"


def number(value: float, digits: int = 3) -> str:
    """Print a number without exponent, with at most four digits behind the point."""
    before = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:.{min(max(digits - before, 0), 4)}f}"


def table(head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print("\n| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def size_name(size_bytes: int) -> str:
    """Name a power of two."""
    mega = 1 << 20
    return f"{size_bytes // mega} MB" if size_bytes >= mega else f"{size_bytes >> 10} KB"


def slope_us(points: list[tuple[int, float]]) -> float:
    """Return the least-squares slope of (ranks, milliseconds), in microseconds per rank."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return 1000 * above / sum((x - mean_x) ** 2 for x, _ in points)
