"""A job's folder as pyft leaves it, without a job: two ranks, a lost GPU, no rings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyft.recovery import report
from pyft.recovery.report import Incident

COMMAND = ["torchrun", "train.py", "--name", "<b>&"]


def fault(**more: Any) -> Incident:
    """Return a fault of rank 1 that was repaired."""
    fields = {"rank": 1, "device": 1, "fault": "gpu-lost", "evidence": "error <999>"}
    fields |= {"began": 3.0, "noticed": 3.1, "gpu_from": 1, "gpu_to": 2, "verdict": "exact"}
    found = Incident(**(fields | more))
    found.phases_ms = dict.fromkeys(report.PHASES, 0.0) | {"detect": 100.0, "restore": 400.0}
    found.finish("recovered", 3.5)
    return found


def write(folder: Path, *faults: Incident, steps: int = 10, **more: Any) -> Path:
    """Write a job whose ranks make a step each second, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    channels = [
        {"id": rank, "name": f"rank{rank}-pid{9 + rank}-dev{rank}", "rank": rank, "pid": 9 + rank}
        | {"device": rank, "gpu": rank, "entries_total": 500, "file": None, "server_ended": "x"}
        for rank in range(2)
    ]
    meta = {"job": folder.name, "command": COMMAND, "gpus": "soft:2", "spares": 1, "exit_code": 0}
    meta |= {"protect": "snapshot", "started": 1000.0, "ended": 1012.0, "state": "ended"}
    found = report.summary(list(faults), 12.0) | {"corruptions": [], "not_injected": []}
    meta |= {"channels": channels, "live": [], "recovery": found} | more
    (folder / "meta.json").write_text(json.dumps(meta))
    lines: list[dict[str, Any]] = [{"start_ns": 5_000_000_000}]
    for step in range(steps + 1):
        gpu = 2 if faults and step > 3 else 1
        for rank in range(2):
            seen = {"t": float(step + 1), "id": rank, "steps": step, "snapshot": step // 2}
            lines.append(seen | {"gpu": gpu if rank else 0})
    (folder / "timeline.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def as_fields(incident: Incident) -> dict[str, Any]:
    """Return a fault as the report has it."""
    return asdict(incident)
