"""The file of a campaign of silent faults (dmr_campaign.py), with which it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the trials so far, which must be of these options. Other notes in the file stay."""
    if not path.exists():
        return {"options": options, "trials": []}
    found = json.loads(path.read_text())
    of = {name: found["options"].get(name) for name in options}
    if of != options:
        raise SystemExit(f"[{path}] is of other options: {of}, and these are {options}")
    return found


def measured(path: Path, found: dict[str, Any], window: int, trial: int) -> None:
    """Note how many launches a step and a trial have; faults are drawn from those of a step."""
    before = found.get("launches", {}).get("window", window)
    if before != window:
        raise SystemExit(
            f"[{path}] is of steps of [{before}] launches, and they have [{window}] now: "
            f"begin another file"
        )
    found["launches"] = {"window": window, "trial": trial}


def save(path: Path, found: dict[str, Any]) -> None:
    """Write it, a line for each trial, or leave what is there."""
    whole = path.with_suffix(".new")
    head = json.dumps({name: value for name, value in found.items() if name != "trials"})
    rows = ",\n".join(json.dumps(row) for row in found["trials"])
    whole.write_text(f'{head[:-1]}, "trials": [\n{rows}\n]}}\n')
    whole.replace(path)
