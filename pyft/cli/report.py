"""`pyft report`: what has happened in a job, as a table, a page and a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pyft.agent.job import job_folder, kept_jobs
from pyft.errors import UsageError
from pyft.recovery.report import not_injected, table
from pyft.report import history, lanes, page, perfetto

PAGE = "report.html"


def report(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="A job (name or folder); default: the latest one."),
    ] = None,
    jobs: Annotated[bool, typer.Option("--list", help="List the jobs that there are.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the page there; default: into the job's folder.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--perfetto", help="Write a trace for ui.perfetto.dev to this file, too."),
    ] = None,
) -> None:
    """Print what happened in a job, and write a page with a lane for each rank.

    The page is one HTML file that loads nothing: open it in any browser.
    """
    if jobs:
        if target or html or trace:
            raise UsageError("--list lists all jobs: leave the job and the other options away")
        print("\n".join([*history.table(job_folder.jobs()), kept_jobs.rule()]))
        return
    job = lanes.read(history.find(target))
    print("\n".join(summary(job)))
    _write(html or job.folder / PAGE, page.html(job), "page")
    if trace:
        _write(trace, json.dumps(perfetto.trace(job)) + "\n", "trace for ui.perfetto.dev")


def summary(job: lanes.Job) -> list[str]:
    """Return the lines that a terminal shows."""
    command = " ".join(map(str, job.meta.get("command", [])))
    text = [f"job {job.name}: {job.state}, {job.seconds:.1f} s, {job.meta.get('gpus', '?')}"]
    text += [f"  {command}"]
    for lane in job.lanes:
        about = "" if lane.exact else "about "
        text.append(
            f"  rank {lane.rank}: {about}{lane.count} steps, "
            f"{len(lane.snapshots)} snapshots seen, "
            f"{len(lane.faults)} fault{'s' * (len(lane.faults) != 1)}"
        )
    recovery = dict(job.recovery)
    text += table(recovery) if recovery["faults"] else ["no faults"]
    return text + not_injected(recovery)


def _write(path: Path, text: str, what: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"the {what} [{path}] cannot be written: {error.strerror}") from None
    print(f"{what}: {path.resolve()}")
