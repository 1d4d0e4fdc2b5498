"""Files of figures: what a benchmark found, where and when (`--json FILE`).

tools/gen/figures.py makes docs/figures.md from those in bench/results.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Figure

ROOT = Path(__file__).resolve().parent.parent


def row(figure: Figure) -> dict[str, Any]:
    """Return one figure as it is written down, with all values."""
    values = [round(float(value), 6) for value in figure.values]
    found: dict[str, Any] = {"name": figure.name, "column": figure.column, "unit": figure.unit}
    found = {name: text for name, text in found.items() if text}
    found["median"] = round(statistics.median(values), 6)
    if len(values) > 1:
        found |= {"min": min(values), "max": max(values), "n": len(values), "values": values}
    limits = {"at_most": figure.at_most, "at_least": figure.at_least}
    found |= {name: limit for name, limit in limits.items() if limit is not None}
    if figure.met() is False and figure.known_miss and figure.is_known():
        found["missed_on_purpose"] = figure.known_miss.why
    return found


def write(path: Path, figures: Sequence[Figure], note: str = "") -> None:
    """Write the figures of this run, with machine, commit, date and command.

    `note`: what all of them are of.
    """
    cores = len(os.sched_getaffinity(0))
    found = {
        "command": " ".join([f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "machine": f"{cores} cores, {platform.machine()}, Linux {platform.release()}; "
        f"load {os.getloadavg()[0]:.1f}",
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    noted = [row(figure) | ({"note": note} if note else {}) for figure in figures]
    rows = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in noted)
    head = json.dumps(found, indent=1).removesuffix("\n}")
    path.write_text(f'{head},\n "figures": [\n{rows}\n ]\n}}\n')


def _commit() -> str:
    """Return the commit, with a plus sign when something is changed; `unknown` without git."""
    line = ["git", "-C", str(ROOT), "describe", "--always", "--exclude", "*", "--dirty=+"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
