"""Figures with targets, and the table that `make bench` ends with."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A median with its spread, or one number; `at_most` or `at_least` is the target, if any."""

    name: str
    values: Sequence[float]
    unit: str = ""
    digits: int = 2
    at_most: float | None = None
    at_least: float | None = None
    column: str = ""  # of figures that are shown side by side

    @property
    def value(self) -> float:
        """The number that is compared with the target."""
        return statistics.median(self.values)

    def text(self) -> str:
        """Return "median (min to max, n) unit"."""
        numbers = [f"{f(self.values):.{self.digits}f}" for f in (statistics.median, min, max)]
        if len(self.values) == 1:
            return f"{numbers[0]} {self.unit}".rstrip()
        text = f"{numbers[0]} ({numbers[1]} to {numbers[2]}, n={len(self.values)})"
        return f"{text} {self.unit}".rstrip()

    def target(self) -> str:
        """Return the target in words, empty when there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""

    def met(self) -> bool | None:
        """Say whether the target is reached; None without one."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def print_table(figures: Sequence[Figure]) -> None:
    """Print name, value, target, and whether it is met."""
    words = {True: "yes", False: "NO", None: ""}
    rows = [("figure", "value", "target", "met")]
    rows += [(f.name, f.text(), f.target(), words[f.met()]) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
