"""A job in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show.

A process for each rank; in it steps, snapshots, and recoveries with their phases.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pyft.report.lanes import FaultSpan, Job, Lane

STEPS, SNAPSHOTS, RECOVERY = 1, 2, 3
_THREADS = {STEPS: "steps", SNAPSHOTS: "snapshots", RECOVERY: "recovery"}


def trace(job: Job) -> dict[str, Any]:
    """Return the object that is written as JSON."""
    events = [event for lane in job.lanes for event in _lane(lane)]
    about = {"job": job.name, "command": " ".join(map(str, job.meta.get("command", [])))}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _lane(lane: Lane) -> Iterator[dict[str, Any]]:
    yield _named("process_name", lane.rank, 0, name=f"rank {lane.rank}")
    yield _named("process_sort_index", lane.rank, 0, sort_index=lane.rank)
    for thread, name in _THREADS.items():
        yield _named("thread_name", lane.rank, thread, name=name)
    second = lane.count - len(lane.steps) + 2
    for index, (start, end) in enumerate(itertools.pairwise(lane.steps), second):
        yield _span(f"step {index}", lane.rank, STEPS, start, end)
    for one in lane.snapshots:
        point = {"name": f"snapshot of {one.name}", "ph": "i", "s": "t", "ts": _us(one.start)}
        yield point | {"pid": lane.rank, "tid": SNAPSHOTS}
    for fault in lane.faults:
        yield from _fault(lane.rank, fault)


def _fault(rank: int, fault: FaultSpan) -> Iterator[dict[str, Any]]:
    fields = {name: fault.fields.get(name) for name in ("outcome", "verdict", "evidence")}
    name = f"fault {fault.number}: {fault.name}"
    yield _span(name, rank, RECOVERY, fault.start, fault.end) | {"args": fields}
    for phase in fault.phases:
        yield _span(phase.name, rank, RECOVERY, phase.start, min(phase.end, fault.end))


def _span(name: str, rank: int, thread: int, start: float, end: float) -> dict[str, Any]:
    length = max(0.0, _us(end) - _us(start))
    return {"name": name, "ph": "X", "ts": _us(start), "dur": length, "pid": rank, "tid": thread}


def _named(kind: str, rank: int, thread: int, **values: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": rank, "tid": thread, "args": values}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)
