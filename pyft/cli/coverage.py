"""`pyft coverage`: which CUDA calls are supported, and which of them a job has made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pyft import _native
from pyft.agent.job import job_folder
from pyft.errors import NativeMissingError, TraceError

FILE = "coverage.json"
SUPPORTS = ("full", "partial", "unsupported")


def coverage(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="A job (name or folder); default: the latest one."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All calls that pyft knows, not those of a job.")
    ] = False,
    unsupported: Annotated[
        bool, typer.Option("--unsupported", help="Only calls that are not fully supported.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Print the calls of a job, how often they were made, and how well each is supported.

    Counts are taken at every optimizer step and at the end of a process.
    """
    rows = known_calls()
    if not everything:
        counts = counts_of(target)
        rows = [row | {"count": counts[row["name"]]} for row in rows if counts.get(row["name"])]
        rows.sort(key=lambda row: (-row["count"], row["name"]))
    if unsupported:
        rows = [row for row in rows if row["support"] != "full"]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print("\n".join(table(rows)))


def known_calls() -> list[dict[str, Any]]:
    """Return the records the native libraries were made from."""
    path = _native.native_dir() / FILE
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NativeMissingError(f"[{path}] cannot be read: {error}: install pyft again") from None
    return found


def counts_of(target: str | None) -> dict[str, int]:
    """Return calls of all clients of a job together."""
    folder = folder_of(target)
    meta = job_folder.load_meta(folder)
    counts: dict[str, int] = {}
    processes = set()
    for channel in meta.get("channels", []):
        process = (channel.get("pid"), channel.get("process"))
        if process in processes:  # counts are of a process, whatever its devices
            continue
        for name, count in channel.get("calls", {}).items():
            processes.add(process)
            counts[name] = counts.get(name, 0) + count
    if not counts:
        raise TraceError(f"the job [{folder.name}] has no counts: none of its processes has ended")
    return counts


def folder_of(target: str | None) -> Path:
    """Return the folder of a job; by default of the latest one with counts."""
    if target is None:
        for folder in reversed(job_folder.jobs()):
            channels = job_folder.read_meta(folder).get("channels", [])
            if any(channel.get("calls") for channel in channels):
                return folder
        raise TraceError(f"there is no job with counts in [{job_folder.state_folder()}]")
    if folder := job_folder.named(target):
        return folder
    raise TraceError(f"[{target}] is no job")


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line per call and a line of totals."""
    text = []
    for row in rows:
        count = f"{row['count']:>9} " if "count" in row else ""
        note = f"  ({row['note']})" if row["note"] else ""
        text.append(f"{count}{row['library']:<9} {row['name']:<44} {row['support']}{note}")
    totals = {kind: sum(r["support"] == kind for r in rows) for kind in SUPPORTS}
    text.append(", ".join(f"{n} {kind}" for kind, n in totals.items()))
    return text
