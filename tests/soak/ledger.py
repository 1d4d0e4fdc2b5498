"""What a soak has seen, as JSON that is whole at any moment: one stretch for each time it ran."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Ledger:
    """All stretches so far. Each is written again as soon as there is more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.stretches: list[dict[str, Any]] = (
            json.loads(path.read_text())["stretches"] if path.exists() else []
        )

    def begin(self, seed: str, **known: Any) -> None:
        """Begin a stretch."""
        self._began = time.monotonic()
        started = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        self.stretches.append(
            {"seed": seed, "began": started, "seconds": 0, "whole": False, "cores": os.cpu_count()}
            | known
            | {"loads": [], "runs": [], "endurance": {}}
        )
        self.write()

    def add(self, run: Mapping[str, Any]) -> None:
        """Note a run."""
        self.stretches[-1]["runs"].append(dict(run))
        self.write()

    def endurance(self, seen: Mapping[str, Any]) -> None:
        """Note how far the long job is."""
        self.stretches[-1]["endurance"] = dict(seen)
        self.write()

    def end(self) -> None:
        """Note that the stretch came to its end."""
        self.stretches[-1]["whole"] = True
        self.write()

    def write(self) -> None:
        """Replace the file at once, so that whoever is killed leaves the one before, or this one."""
        with self._lock:
            now = self.stretches[-1]
            now["seconds"] = round(time.monotonic() - self._began)
            now["loads"].append(round(os.getloadavg()[0], 1))
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"stretches": self.stretches}, indent=1) + "\n")
            new.replace(self.path)


def classes(recovery: Mapping) -> dict[str, dict[str, int]]:
    """Return what became of the faults that the agent saw, by class and outcome."""
    found: dict[str, Counter] = {}
    for fault in recovery.get("faults", ()):
        outcome = "given up" if fault["outcome"].startswith("given up") else fault["outcome"]
        found.setdefault(fault["fault"], Counter())[outcome] += 1
    return {name: dict(counts) for name, counts in found.items()}
