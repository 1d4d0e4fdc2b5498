"""What a job does and what has happened to it, as Python values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder
from pyft.agent.operators import orders
from pyft.api import jobs
from pyft.errors import TraceError
from pyft.recovery.inject import parse_order
from pyft.report.history import until_now
from pyft.trace import live
from pyft.trace.live import ChannelState

_HOW = "by job=..."


@dataclass(frozen=True)
class Fault:
    """A fault of one rank, and what became of it. Times are seconds since the job's start."""

    rank: int
    kind: str  # its class, as docs/operate/faults.md lists them
    evidence: str
    began: float
    seconds: float  # how long the rank stood still; 0 while it is being repaired
    gpu_from: int
    gpu_to: int  # -1: no new server yet
    outcome: str  # "recovered" and others, see docs/operate/report.md
    verdict: str  # of the replay: "exact" and others; nothing before it has ended
    replayed_entries: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Fault:
        """Return what a report has of a fault."""
        return cls(
            rank=fields["rank"],
            kind=fields["fault"],
            evidence=fields["evidence"],
            began=fields["began"],
            seconds=fields["total_ms"] / 1e3,
            gpu_from=fields["gpu_from"],
            gpu_to=fields["gpu_to"],
            outcome=fields["outcome"],
            verdict=fields["verdict"],
            replayed_entries=fields["replayed_entries"],
        )


@dataclass(frozen=True)
class JobStatus:
    """A job that runs now."""

    job: str
    folder: Path
    seconds: float  # since it began
    gpus: str
    spares: int
    command: tuple[str, ...]
    ranks: tuple[ChannelState, ...]  # one for each process and device
    faults: tuple[Fault, ...]


def status(job: str | Path | None = None) -> list[JobStatus]:
    """Return the jobs that run now, or the one that is named; the jobs do not notice.

    `job`: a name, a folder, or the agent's pid. Raises PyftError when that job does not run.
    """
    return [_status(*found) for found in jobs.live_jobs(None if job is None else str(job))]


def faults(job: str | Path | None = None) -> list[Fault]:
    """Return the faults of a job so far, also of one that has ended.

    Without `job`: of the job in which this process runs, else of the only one that runs.
    """
    target = str(job) if job is not None else jobs.own()
    folder = job_folder.named(target) if target else jobs.only(None, _HOW)[0]
    if (
        not folder and target and target.isdecimal()
    ):  # an agent's: of one that lives, or it is another process
        folder = jobs.live_jobs(target)[0][0]
    if not folder:
        raise TraceError(f"[{target}] is no job")
    return _faults(job_folder.load_meta(folder))


def inject(fault: str, *, rank: int | None = None, job: str | Path | None = None) -> None:
    """Let a fault happen in a job that runs, for tests: `pyft.inject("gpu-lost", rank=1)`.

    `fault` is what --inject takes: `KIND[,rank=R][,step=S][,call=C]`; without a place it happens
    now. Without `job`: in the job in which this process runs, else in the only one that runs.
    Raises PyftError when it is refused.
    """
    found = parse_order(fault, rank)
    target = str(job) if job is not None else jobs.own()
    orders.give(jobs.only(target, _HOW)[1], "inject", rank=found.rank, fault=str(found))


def _status(folder: Path, meta: Mapping[str, Any]) -> JobStatus:
    meta, channels = until_now(meta), []
    for entry in meta.get("live", []):
        try:
            channels.append(live.look(dict(meta), entry))
        except TraceError:  # it ended between two looks
            continue
    return JobStatus(
        job=meta["job"],
        folder=folder,
        seconds=time.time() - meta["started"],
        gpus=meta["gpus"],
        spares=meta["spares"],
        command=tuple(meta["command"]),
        ranks=tuple(sorted(channels, key=lambda one: (one.rank, one.device))),
        faults=tuple(_faults(meta)),
    )


def _faults(meta: Mapping[str, Any]) -> list[Fault]:
    return [Fault.of(fields) for fields in (meta.get("recovery") or {}).get("faults", [])]
