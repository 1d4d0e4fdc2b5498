"""Past jobs: which there are, and how each has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder, supervisors
from pyft.errors import TraceError
from pyft.recovery import report

WIDTH = 60  # of a command, as listed


def find(target: str | None) -> Path:
    """Return the folder of a job, by default of the latest; raise TraceError when there is none."""
    if target is None:
        known = [folder for folder in job_folder.jobs() if job_folder.read_meta(folder)]
        if not known:
            raise TraceError(
                f"there is no job in [{job_folder.state_folder()}]: start one, pyft run"
            )
        return known[-1].resolve() if known[-1].is_symlink() else known[-1]
    if folder := job_folder.named(target):
        return folder.resolve()
    raise TraceError(f"[{target}] is no job: `pyft report --list` names those that there are")


def state_of(meta: Mapping[str, Any]) -> str:
    """Return in a few words how a job has ended, or that it runs."""
    if job_folder.is_live(dict(meta)):
        return "running"
    state = str(meta.get("state", "unknown"))
    if supervisors.is_elsewhere(meta):
        return "runs elsewhere, or died there"
    if state == "running":
        return "died with launcher and supervisor"
    code = meta.get("exit_code")
    return f"exit code {code}" if state == "ended" else state


def seconds_of(meta: Mapping[str, Any]) -> float:
    """Return how long a job took, as far as that is known, or takes until now."""
    start = number(meta.get("started"))
    end = number(meta.get("ended"))
    if not end:  # it runs, or has died whole: then no more is known than what was written last
        live = job_folder.is_live(dict(meta))
        end = time.time() if live else number(meta.get("written"))
    return max(0.0, end - start)


def until_now(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return meta.json of a job as it is now: the file of one that runs is as old as its last event."""
    found, written = meta.get("recovery") or {}, number(meta.get("written"))
    whole = {"faults", "lost_seconds", "seconds"} <= found.keys()  # older versions had less
    if not (whole and written and job_folder.is_live(dict(meta))):
        return dict(meta)
    since = max(0.0, time.time() - written)
    return {**meta, "recovery": report.later(found, since)}


def number(value: object) -> float:
    """Return a number that a file of a job has, 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if abs(value) < 1e18 else 0.0


def rows(folders: list[Path]) -> list[tuple[str, ...]]:
    """Return a line for each job, the latest first, with a head."""
    found = [("job", "began", "took", "GPUs + spares", "faults", "ended with", "command")]
    for folder in reversed(folders):
        meta = job_folder.read_meta(folder)
        recovery = meta.get("recovery") or {}
        faults = report.number_of_faults(recovery)
        began = time.strftime("%m-%d %H:%M", time.localtime(number(meta.get("started"))))
        found.append(
            (
                folder.name,
                began if meta else "?",
                f"{seconds_of(meta):.0f} s",
                _gpus(meta),
                f"{recovery.get('recovered', 0)} of {faults} recovered" if faults else "none",
                state_of(meta),
                " ".join(map(str, meta.get("command", [])))[:WIDTH],
            )
        )
    return found


def _gpus(meta: Mapping[str, Any]) -> str:
    spares = int(number(meta.get("spares")))
    return f"{meta.get('gpus', '?')}{f' + {spares}' if spares else ''}"


def table(folders: list[Path]) -> list[str]:
    """Return the lines that list jobs."""
    found = rows(folders)
    widths = [max(len(row[column]) for row in found) for column in range(len(found[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in found]
