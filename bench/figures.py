"""Figures with targets, the table that `make bench` ends with, and what a missed target does."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownMiss:
    """A target that is missed on purpose: why, and how far; beyond that the miss is a new one."""

    why: str
    until: float


@dataclass(frozen=True)
class Figure:
    """A median with its spread, or one number; `at_most` or `at_least` is the target, if any.

    A figure without values misses its target: what was to be measured has not come about.
    """

    name: str
    values: Sequence[float]
    unit: str = ""
    digits: int = 2
    at_most: float | None = None
    at_least: float | None = None
    column: str = ""  # of figures that are shown side by side
    known_miss: KnownMiss | None = None

    @property
    def value(self) -> float:
        """The number that is compared with the target; not a number where there are no values."""
        return statistics.median(self.values) if len(self.values) else float("nan")

    def text(self) -> str:
        """Return "median (min to max, n) unit"."""
        if not len(self.values):
            return "no value"
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
        return self._within(self.at_most, self.at_least)

    def _within(self, at_most: float | None, at_least: float | None) -> bool | None:
        if at_most is not None:
            return self.value <= at_most
        return self.value >= at_least if at_least is not None else None

    def is_known(self) -> bool:
        """Say whether a miss is the one that is made on purpose, and no worse."""
        if self.known_miss is None:
            return False
        until = self.known_miss.until
        limits = (until, None) if self.at_most is not None else (None, until)
        return bool(self._within(*limits))

    def miss(self) -> str:
        """Return figure, value and target in a sentence; empty where no target is missed."""
        if self.met() is not False:
            return ""
        name = f"{self.name}, {self.column}" if self.column else self.name
        text = f"[{name}] is {self.text()}; its target is {self.target()}"
        if self.known_miss is None:
            return text
        if self.is_known():
            return f"{text}, missed on purpose: {self.known_miss.why}"
        return f"{text}; it is missed on purpose, but only to {self.known_miss.until:g}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def met_in_words(figure: Figure) -> str:
    """Say in a word or two whether the target is reached; nothing without one."""
    if figure.met() is False and figure.is_known():
        return "no, on purpose"
    return {True: "yes", False: "NO", None: ""}[figure.met()]


def print_table(figures: Sequence[Figure]) -> None:
    """Print name, value, target, and whether it is met."""
    rows = [("figure", "value", "target", "met")]
    rows += [(f.name, f.text(), f.target(), met_in_words(f)) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def exit_code(program: str, figures: Sequence[Figure]) -> int:
    """Say each missed target on stderr; return 1 when one is not missed on purpose."""
    missed = [figure for figure in figures if figure.met() is False]
    for figure in missed:
        print(f"{program}: {figure.miss()}", file=sys.stderr)
    return int(not all(figure.is_known() for figure in missed))
