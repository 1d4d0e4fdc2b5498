"""What `pyft top` shows, read once: from meta.json, from what the agent writes down, from memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder
from pyft.agent.operators.timeline import FILE
from pyft.errors import TraceError
from pyft.report import lanes
from pyft.report.history import number, state_of, until_now
from pyft.top.rates import Pace, pace
from pyft.trace import live


@dataclass(frozen=True)
class Row:
    """One rank."""

    rank: int
    pid: int
    device: int
    pace: Pace
    status: str
    protection: str
    heartbeat_age: float
    lag: int
    lacks: str = ""  # what it needs before it can go on

    @property
    def protected(self) -> bool:
        """Say whether a fault would find from where to go on."""
        return bool(self.protection) and not self.protection.lower().startswith("none")


@dataclass(frozen=True)
class View:
    """A job at one moment."""

    meta: Mapping[str, Any]
    state: str
    seconds: float
    rows: tuple[Row, ...]

    @property
    def recovery(self) -> Mapping[str, Any]:
        """Return the part of the report about faults."""
        return self.meta.get("recovery") or {}


def look(folder: Path) -> View:
    """Look at a job once; it may have ended."""
    meta = until_now(job_folder.read_meta(folder))
    start_ns, seen = lanes.timeline(folder / FILE)
    now = (time.monotonic_ns() - start_ns) / 1e9 if start_ns else 0.0
    rows = []
    for entry in meta.get("live", []):
        found = pace(seen.get(entry.get("id", -1), lanes.Seen()), now)
        try:
            state = live.look(dict(meta), entry, waits=False)
        except TraceError:  # it has just ended
            continue
        lacks = ""
        if wait := state.waits_for_gpu:
            since = f"for {wait.seconds:.0f} s, in place of GPU {wait.gpu} ({wait.fault})"
            lacks = f"{since}: `pyft spare --gpu G`"
        about = (state.status, state.protection, state.heartbeat_age, state.lag, lacks)
        rows.append(Row(state.rank, state.pid, state.device, found, *about))
    rows.sort(key=lambda row: (row.rank, row.device))
    seconds = max(0.0, time.time() - number(meta.get("started")))
    return View(meta, state_of(meta), seconds, tuple(rows))
