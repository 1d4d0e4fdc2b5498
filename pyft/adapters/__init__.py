"""Callbacks for training frameworks, which log pyft's recoveries to the framework's loggers.

Each framework is looked for only when its adapter is imported. A rank asks for the job's faults once
per step; as long as there are no new ones, that is one look at a file's time.
"""

from __future__ import annotations

from pathlib import Path

from pyft.agent.job import job_folder
from pyft.api import jobs
from pyft.api.state import Fault, faults
from pyft.errors import TraceError

PREFIX = "pyft/"


class Recoveries:
    """The recoveries of the job in which this process runs; outside of jobs there are none."""

    def __init__(self) -> None:
        folder = jobs.own()
        self._meta = Path(folder) / job_folder.META if folder else None
        self._seen = (0, 0)
        self._done: dict[int, Fault] = {}  # by their numbers in the report

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
            found = enumerate(faults(self._meta.parent))  # in the order in which they began
        except TraceError:  # the folder is gone: a training does not end because of that
            return []
        ended = {number: one for number, one in found if one.outcome != "under way"}
        fresh = [one for number, one in ended.items() if number not in self._done]
        self._done = ended
        return fresh

    def totals(self) -> dict[str, float]:
        """Return what is logged: numbers under names that begin with `pyft/`."""
        recovered = sum(one.outcome == "recovered" for one in self._done.values())
        return {
            f"{PREFIX}faults": float(len(self._done)),
            f"{PREFIX}recovered": float(recovered),
            f"{PREFIX}stood_still_seconds": sum(one.seconds for one in self._done.values()),
        }
