"""What each rank did when: steps, snapshots, faults and the phases of their recoveries.

Put together from meta.json, from timeline.jsonl (what the agent has seen, every now and then), and
from the rings, which know each step that they still have to the nanosecond.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder
from pyft.agent.operators.timeline import FILE
from pyft.errors import PyftError
from pyft.recovery.report import PHASES, number_of_earlier
from pyft.report.history import number, seconds_of, state_of, until_now
from pyft.trace import targets
from pyft.trace.reader import TraceReader

MOST_STEPS = 1_000_000  # of a rank, the last ones; all are counted
LARGEST = 1 << 40  # number that a record can have


@dataclass(frozen=True)
class Span:
    """Something that a rank did from `start` to `end`, in seconds since the job's start."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class FaultSpan:
    """A fault: when it was noticed, and the phases of its recovery. `number` counts from 1."""

    number: int
    fields: Mapping[str, Any]
    start: float
    end: float
    phases: tuple[Span, ...]

    @property
    def name(self) -> str:
        """Return the class of the fault."""
        return str(self.fields.get("fault", "?"))


@dataclass
class Lane:
    """One rank. `steps` are the ends of its last steps, `snapshots` when one was first seen."""

    rank: int
    pids: list[int] = field(default_factory=list)
    count: int = 0  # of all its steps
    steps: list[float] = field(default_factory=list)
    exact: bool = True  # or some of the steps are spread evenly between two looks of the agent
    snapshots: list[Span] = field(default_factory=list)
    gpus: list[tuple[float, int]] = field(default_factory=list)  # since when, which
    beside: list[list[tuple[float, int]]] = field(default_factory=list)  # of its other devices
    faults: list[FaultSpan] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """All that a page or a trace shows of a job."""

    name: str
    folder: Path
    meta: Mapping[str, Any]
    state: str
    seconds: float
    lanes: tuple[Lane, ...]

    @property
    def recovery(self) -> Mapping[str, Any]:
        """Return the part of the report about faults, even of a job that has written none."""
        empty = {"faults": [], "recovered": 0, "goodput": 1.0, "lost_seconds": 0.0}
        more = {"agent_restarts": 0, "verdict": "", "corruptions": [], "not_injected": []}
        return empty | more | dict(self.meta.get("recovery") or {})

    @property
    def faults(self) -> list[FaultSpan]:
        """Return the faults of all ranks, in order."""
        return sorted((f for lane in self.lanes for f in lane.faults), key=lambda f: f.number)


@dataclass
class InRing:
    """The steps that a ring still has: when each has ended, and the number of the last."""

    ends: list[float] = field(default_factory=list)
    last: int = 0


@dataclass
class Seen:
    """What the agent has seen of a member."""

    steps: list[tuple[float, int]] = field(default_factory=list)
    snapshots: list[tuple[float, int]] = field(default_factory=list)
    gpus: list[tuple[float, int]] = field(default_factory=list)


def read(folder: Path) -> Job:
    """Return what is known of a job, which may still run."""
    meta = until_now(job_folder.load_meta(folder))
    start_ns, seen = timeline(folder / FILE)
    rings = _rings(folder, start_ns)
    lanes: dict[int, Lane] = {}
    for (rank, *_), devices in _processes(meta, seen, rings).items():
        _add(lanes.setdefault(rank, Lane(rank)), list(devices.values()))
    recovery = meta.get("recovery") or {}
    before = number_of_earlier(recovery)
    now = number(recovery.get("seconds")) if state_of(meta) == "running" else 0.0
    for index, fields in enumerate(recovery.get("faults", []), before + 1):
        rank = int(number(fields.get("rank")))
        lanes.setdefault(rank, Lane(rank)).faults.append(fault_span(index, fields, now))
    ends = [s for lane in lanes.values() for s in lane.steps[-1:]]
    ends += [fault.end for lane in lanes.values() for fault in lane.faults]
    seconds = max([seconds_of(meta), *ends])
    ordered = tuple(lanes[rank] for rank in sorted(lanes))
    return Job(str(meta.get("job", folder.name)), folder, meta, state_of(meta), seconds, ordered)


def _processes(
    meta: Mapping[str, Any], seen: Mapping[int, Seen], rings: Mapping[str | None, InRing]
) -> dict[tuple[int, int, int], dict[int, Lane]]:
    """Return what is known of each device, by the rank and process that works on it."""
    found: dict[tuple[int, int, int], dict[int, Lane]] = {}
    for entry in [*meta.get("channels", []), *meta.get("live", [])]:
        one = seen.get(entry.get("id", -1), Seen())
        ring = rings.get(entry.get("name"), InRing())
        if not (one.steps or ring.ends):  # a process may look at a device without working on it
            continue
        rank, pid = int(entry.get("rank", 0)), int(entry.get("pid", 0))
        process = int(number(entry.get("process")))
        devices = found.setdefault((rank, pid, process), {})
        lane = devices.setdefault(int(entry.get("device", 0)), Lane(rank, [pid]))
        count, steps = _steps(one.steps, ring)
        lane.count += count
        lane.steps += steps
        lane.exact = lane.exact and count == len(ring.ends)
        lane.snapshots += [Span(f"cut {cut}", at, at) for at, cut in one.snapshots]
        lane.gpus += one.gpus or [(0.0, int(entry.get("gpu", 0)))]
    return found


def _add(lane: Lane, devices: list[Lane]) -> None:
    """Put a process into the lane of its rank, which may have had another one before.

    Each step of a process has a cut on all of its devices: it is that of the device with the most.
    """
    most = max(devices, key=lambda one: one.count)
    lane.pids += most.pids
    lane.count += most.count
    lane.steps = sorted([*lane.steps, *most.steps])[-MOST_STEPS:]
    lane.exact = lane.exact and most.exact
    lane.snapshots += most.snapshots
    lane.gpus += most.gpus
    lane.beside += [one.gpus for one in devices if one is not most]


def _steps(seen: list[tuple[float, int]], ring: InRing) -> tuple[int, list[float]]:
    """Return how many steps there were, and when each of the last MOST_STEPS of them has ended.

    Those that the ring has not are spread evenly between the agent's looks.
    """
    last = max(ring.last, len(ring.ends))
    count = max(last, seen[-1][1] if seen else 0)
    first = last - len(ring.ends) + 1
    looks = [(seen[0][0], 0), *seen] if seen else [(0.0, 0)]
    if first > looks[-1][1] + 1:  # nothing was written of some of them
        looks.append((ring.ends[0], first))
    oldest = count - MOST_STEPS + 1
    before = _spread(looks, max(1, oldest), first - 1)
    return count, [*before, *ring.ends, *_spread(looks, max(last + 1, oldest), count)]


def _spread(looks: list[tuple[float, int]], first: int, last: int) -> Iterator[float]:
    """Yield when the steps with these numbers have ended, as far as two looks around each tell."""
    for (start, before), (end, after) in itertools.pairwise(looks):
        for step in range(max(before + 1, first), min(after, last) + 1):
            yield start + (end - start) * (step - before) / (after - before)


def fault_span(index: int, fields: Mapping[str, Any], now: float = 0.0) -> FaultSpan:
    """Return a fault of meta.json; `index` counts from 1. `now`: of a job that runs."""
    start = number(fields.get("began"))
    end = number(fields.get("ended")) or max(number(fields.get("noticed")), now)
    phases, at = [], start
    for name in PHASES:
        length = number((fields.get("phases_ms") or {}).get(name)) / 1e3
        if length > 0:
            phases.append(Span(name, at, at + length))
            at += length
    return FaultSpan(index, fields, start, max(end, start), tuple(phases))


def timeline(path: Path) -> tuple[int, dict[int, Seen]]:
    """Return the job's start on the monotonic clock, and what was seen of each member."""
    start_ns = 0
    seen: dict[int, Seen] = {}
    for line in _lines(path):
        if isinstance(line.get("start_ns"), int):
            start_ns = line["start_ns"]
            continue
        values = [line.get(name) for name in ("id", "steps", "snapshot", "gpu")]
        if not all(type(value) is int and 0 <= value <= LARGEST for value in values):
            continue
        id, steps, snapshot, gpu = values
        one = seen.setdefault(id, Seen())
        at = number(line.get("t"))
        if one.steps and steps < one.steps[-1][1]:  # the job went back to an image
            one.steps = [(t, n) for t, n in one.steps if n < steps]
        one.steps.append((at, steps))
        if snapshot and (not one.snapshots or one.snapshots[-1][1] != snapshot):
            one.snapshots.append((at, snapshot))
        if not one.gpus or one.gpus[-1][1] != gpu:
            one.gpus.append((at, gpu))
    return start_ns, seen


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of lines, without those that are damaged or not yet whole."""
    try:
        text = path.read_text(errors="replace")
    except OSError:  # a job of an older pyft, or with --direct
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _rings(folder: Path, start_ns: int) -> dict[str | None, InRing]:
    """Return the steps that the rings of a job still have, by name of the channel."""
    if not start_ns:
        return {}
    try:
        rings = targets.of_job(folder)
    except PyftError:  # it has none, or has lost them
        return {}
    found: dict[str | None, InRing] = {}
    for ring in rings:
        try:
            with TraceReader(ring.path) as reader:
                steps = deque(reader.times_of_steps(), MOST_STEPS)
        except PyftError:
            continue
        ends = [(end - start_ns) / 1e9 for _, end in steps if end >= start_ns]
        found[ring.title] = InRing(ends, steps[-1][0]) if ends else InRing()
    return found
