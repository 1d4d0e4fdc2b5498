"""`pyft status`: what the jobs that run now are doing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pyft.api.jobs import live_jobs
from pyft.cli import hosts
from pyft.errors import TraceError
from pyft.recovery.report import number_of_faults
from pyft.report.history import until_now
from pyft.trace import live


def status(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="One job: its name, folder, or the agent's pid."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    head: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where `pyft head` of a job of several is.")
    ] = "",
) -> None:
    """Show live jobs: per rank the device, ring position, lag, log bytes, and what waits for what.

    All numbers are read from the agent's memory; the job does not notice. With --head: what each host
    of that job holds, and what the last faults have cost.
    """
    if head:
        said = hosts.ask(head, "status")
        print(json.dumps(said, indent=1) if as_json else "\n".join(hosts.lines(said)))
        return
    jobs = [describe(folder, meta) for folder, meta in live_jobs(target)]
    if as_json:
        print(json.dumps(jobs, indent=1))
        return
    if not jobs:
        print("no job is running")
    for job in jobs:
        print("\n".join(lines(job)))


def describe(folder: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return all that is shown of a job."""
    meta = until_now(meta)
    recovery = meta.get("recovery") or {}
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
        "spares_left": meta.get("spares_left", meta.get("spares", 0)),
        "faults": number_of_faults(recovery),
        "recovered": recovery.get("recovered", 0),
        "goodput": recovery.get("goodput", 1.0),
        "strikes": recovery.get("strikes", []),
        "direct": bool(meta.get("direct")),
        "pre_dumps": meta.get("pre_dumps", ""),
        "command": meta.get("command", []),
        "channels": channels,
    }


def lines(job: dict[str, Any]) -> list[str]:
    """Return the text of one job."""
    left = job["spares_left"]
    text = [
        f"job {job['job']}: {job['gpus']}, {left} spare{'s' * (left != 1)} left, "
        f"running {job['seconds']:.0f} s, agent pid {job['agent_pid']}",
        f"  {' '.join(job['command'])}",
        f"  faults so far: {job['faults']}, recovered {job['recovered']}; "
        f"at work {job['goodput']:.2%} of the time",
    ]
    if job["pre_dumps"]:
        text.append(f"  pre-dumps of images: {job['pre_dumps']}")
    if job["direct"]:
        text.append("  --direct: no servers and no ring")
    for one in job["strikes"]:
        left = ", and is not used again" if one["left"] else ""
        text.append(f"  GPU {one['gpu']} has computed wrongly {len(one['steps'])} times{left}")
    for one in job["channels"]:
        text += channel_lines(one)
    return text


def channel_lines(one: dict[str, Any]) -> list[str]:
    """Return the text of one channel and its waits."""
    if "error" in one:
        return [f"  {one['name']}: {one['error']}"]
    place = f"  rank {one['rank']} pid {one['pid']} device {one['device']}: "
    steps = f"    {one['steps']} steps, protection: {one['protection']}"
    if wait := one["waits_for_gpu"]:
        return [
            f"{place}{one['status']} for {wait['seconds']:.1f} s, in place of GPU {wait['gpu']} "
            f"({wait['fault']}: {wait['evidence']})",
            "    `pyft spare --gpu G` gives the job one",
            steps,
        ]
    beat = f"{one['heartbeat_age']:.1f} s ago" if one["heartbeat_age"] >= 0 else "none yet"
    sticky = f", sticky error {one['sticky_error']}" if one["sticky_error"] else ""
    text = [
        f"{place}server pid {one['server_pid']} {one['status']}, heartbeat {beat}{sticky}",
        f"    ring position {one['position']}, lag {one['lag']} bytes, log {one['log_bytes']} bytes",
    ]
    text.append(steps)
    if one["redundancy"]:
        text.append(f"    redundancy: {one['redundancy']}")
    if one["working_on"]:
        text.append(f"    server works on {one['working_on']}")
    for wait in one["waits"]:
        who = f"thread {wait['thread']}" if wait["thread"] >= 0 else "a thread"
        text.append(f"    {who} waits {wait['seconds']:.3f} s for {wait['what']}")
    return text
