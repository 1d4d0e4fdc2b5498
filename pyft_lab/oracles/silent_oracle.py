"""What may differ when a fault was silent at first: what the script was told before it was seen.

An audit undoes the fault in the GPU. It cannot take back a loss that the script has printed. So
losses of steps between the two may be others. Parameters and optimizer state at the end may not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyft_lab.api import SILENT

SEEN = "mismatch"  # as pyft's report calls it


def undone_at(folder: Path) -> float:
    """Return when the first fault that an audit has seen was undone, in seconds since 1970; else 0."""
    found = []
    for path in folder.glob("report-*.json"):
        report = json.loads(path.read_text() or "{}")
        for fault in report.get("recovery", {}).get("faults", []):
            if fault["fault"] == SEEN and fault["outcome"] == "recovered":
                found.append(report["started"] + fault["ended"])
    return min(found, default=0.0)


def told_before(
    folder: Path, faults: Sequence[Any], lines: list[list[dict[str, Any]]]
) -> frozenset[tuple[int, int]]:
    """Return of which steps the script was told something before a silent fault was undone."""
    steps = [fault.step for fault in faults if fault.kind in SILENT]
    if not steps:
        return frozenset()
    until, first = undone_at(folder), min(steps)
    return frozenset(
        (rank, line["step"])
        for rank, of in enumerate(lines)
        for line in of
        if line["step"] >= first and line["t"] <= until
    )


def lost_seconds(lines: list[dict[str, Any]], fired: float, step_s: float) -> float | None:
    """Return the longest pause after a silent fault, less a step: the rank went on until then."""
    after = [line["t"] for line in lines if line["t"] > fired]
    pauses = [end - begin for begin, end in zip([fired, *after], after, strict=False)]
    return max(pauses) - step_s if pauses else None
