"""Callbacks for training frameworks, which log pyft's recoveries to the framework's loggers.

Each framework is looked for only when its adapter is imported. A rank asks for the job's faults once
per step; as long as there are no new ones, that is one look at a file's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder
from pyft.api import jobs
from pyft.api.state import Fault
from pyft.errors import TraceError
from pyft.recovery import report

PREFIX = "pyft/"


class Recoveries:
    """The recoveries of the job in which this process runs; outside of jobs there are none."""

    def __init__(self) -> None:
        folder = jobs.own()
        self._meta = Path(folder) / job_folder.META if folder else None
        self._seen = (0, 0)
        self._report: Mapping[str, Any] = {}
        self._ended: list[tuple[Any, ...]] = []  # what has ended, of the faults that it lists

    def new(self) -> list[Fault]:
        """Return the faults that have ended since the last call, however they did."""
        try:
            found = self._meta.stat() if self._meta else None
        except OSError:
            return []
        if found is None or (found.st_mtime_ns, found.st_ino) == self._seen:
            return []
        self._seen = (found.st_mtime_ns, found.st_ino)
        assert self._meta
        try:
            meta = job_folder.load_meta(self._meta.parent)
        except TraceError:  # the folder is gone: a training does not end because of that
            return []
        self._report = meta.get("recovery") or {}
        listed = self._report.get("faults") or []  # in the order in which they began
        ended = [fields for fields in listed if fields["outcome"] != "under way"]
        known, self._ended = self._ended, [report.key_of(fields) for fields in ended]
        return [Fault.of(fields) for fields in ended if report.key_of(fields) not in known]

    def totals(self) -> dict[str, float]:
        """Return what is logged: numbers under names that begin with `pyft/`, as the report has them.

        A report lists so many faults; of those before it has the sums.
        """
        faults = report.number_of_earlier(self._report) + len(self._ended)
        return {
            f"{PREFIX}faults": float(faults),
            f"{PREFIX}recovered": float(self._report.get("recovered", 0)),
            f"{PREFIX}stood_still_seconds": float(self._report.get("lost_seconds", 0.0)),
        }
