"""`pyft status`: what the jobs that run now are doing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pyft.agent import job_folder
from pyft.errors import TraceError
from pyft.trace import live


def status(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="One job: its name, folder, or the agent's pid."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Show live jobs: per rank the device, ring position, lag, log bytes, and who waits for what.

    All numbers are read from the agent's memory; the job does not notice.
    """
    jobs = [describe(folder, meta) for folder, meta in live_jobs(target)]
    if as_json:
        print(json.dumps(jobs, indent=1))
        return
    if not jobs:
        print("no job is running")
    for job in jobs:
        print("\n".join(lines(job)))


def live_jobs(target: str | None) -> list[tuple[Path, dict[str, Any]]]:
    """Return folder and meta of the live jobs; TraceError when the named one is not among them."""
    folders = job_folder.jobs()
    if target and (Path(target) / job_folder.META).is_file():
        folders.append(Path(target))
    found = [(folder, job_folder.read_meta(folder)) for folder in folders]
    alive = [(folder, meta) for folder, meta in found if job_folder.is_live(meta)]
    if target is None:
        return alive
    names = {target, os.path.basename(target.rstrip("/"))}
    mine = [
        (folder, meta)
        for folder, meta in alive
        if folder.name in names or str(meta.get("agent_pid")) == target
    ]
    if not mine:
        raise TraceError(f"[{target}] is no running job")
    return mine


def describe(folder: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return all that is shown of a job."""
    channels: list[dict[str, Any]] = []
    for entry in meta.get("live", []):
        try:
            channels.append(asdict(live.look(meta, entry)))
        except TraceError as error:  # it ended between two looks
            channels.append({"name": entry["name"], "error": str(error)})
    return {
        "job": meta.get("job", folder.name),
        "folder": str(folder),
        "agent_pid": meta.get("agent_pid"),
        "seconds": time.time() - float(meta.get("started", time.time())),
        "gpus": meta.get("gpus", "?"),
        "spares": meta.get("spares", 0),
        "direct": bool(meta.get("direct")),
        "command": meta.get("command", []),
        "channels": channels,
    }


def lines(job: dict[str, Any]) -> list[str]:
    """Return the text of one job."""
    spares = f", {job['spares']} spare" if job["spares"] else ""
    text = [
        f"job {job['job']}: {job['gpus']}{spares}, running {job['seconds']:.0f} s, "
        f"agent pid {job['agent_pid']}",
        f"  {' '.join(job['command'])}",
    ]
    if job["direct"]:
        text.append("  --direct: no servers and no ring")
    for one in job["channels"]:
        text += channel_lines(one)
    return text


def channel_lines(one: dict[str, Any]) -> list[str]:
    """Return the text of one channel and its waits."""
    if "error" in one:
        return [f"  {one['name']}: {one['error']}"]
    beat = f"{one['heartbeat_age']:.1f} s ago" if one["heartbeat_age"] >= 0 else "none yet"
    sticky = f", sticky error {one['sticky_error']}" if one["sticky_error"] else ""
    text = [
        f"  rank {one['rank']} pid {one['pid']} device {one['device']}: server pid "
        f"{one['server_pid']} {one['status']}, heartbeat {beat}{sticky}",
        f"    ring position {one['position']}, lag {one['lag']} bytes, log {one['log_bytes']} bytes",
    ]
    text.append(f"    protection: {one['protection']}")
    if one["working_on"]:
        text.append(f"    server works on {one['working_on']}")
    for wait in one["waits"]:
        who = f"thread {wait['thread']}" if wait["thread"] >= 0 else "a thread"
        text.append(f"    {who} waits {wait['seconds']:.3f} s for {wait['what']}")
    return text
