"""Faults of which only sums are kept: a job may have any number, and an agent has room for some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyft.recovery import report
from pyft.recovery.report import Incident, Sums

MOST = 1024  # faults of which all is kept


@dataclass
class Earlier(Sums):
    """Sums over the faults that are not kept any more. All of them have ended."""

    # By class and rank: how many, and how many of these were errors of the program.
    counts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, incident: Incident, kept: list[Incident], now: float) -> None:
        """Take one more, in the order in which they were noticed; `kept`: those that stay.

        One that stays may have begun earlier and last longer: time of both is counted with it.
        """
        key = (incident.fault, incident.rank)
        faults, own = self.counts.get(key, (0, 0))
        self.counts[key] = (faults + 1, own + incident.own_error)
        with_it = report.lost_seconds([incident, *kept], now, self.until)
        lost = self.lost_seconds + with_it - report.lost_seconds(kept, now, self.until)
        until = max(self.until, min([incident.ended, *(one.began for one in kept)]))
        self.take([incident], incident.ended)
        self.lost_seconds, self.until = lost, until

    def rows(self) -> list[dict[str, Any]]:
        """Return how many there were, as a report has it."""
        return [
            {"fault": fault, "rank": rank, "count": count, "own_errors": own}
            for (fault, rank), (count, own) in sorted(self.counts.items())
        ]

    def note(self) -> dict[str, Any]:
        """Return what the next agent needs."""
        return vars(self) | {"counts": self.rows()}

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Earlier:
        """Return what an agent before has written down."""
        rows: Iterable[Mapping[str, Any]] = note["counts"]
        counts = {(row["fault"], row["rank"]): (row["count"], row["own_errors"]) for row in rows}
        return cls(**(dict(note) | {"counts": counts}))

    def summary(
        self, incidents: list[Incident], seconds: float, restarts: int = 0
    ) -> dict[str, Any]:
        """Return the part of report.json about recovery: of these, and of those that are kept."""
        found = report.summary(incidents, seconds, restarts, before=self)
        return found | {"earlier": self.rows()}
