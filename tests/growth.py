"""What a job holds while it runs, and how that grows: memory of its own and shared, descriptors,
processes, files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_STEP = re.compile(r"step=(\d+) ")
# Ring and journal then are full before the measured steps, and written over as they would be later.
SMALL_RINGS = {"PYFT_RING_MB": "1", "PYFT_JOURNAL_MB": "1"}
_SHARED = ("/memfd:", "/dev/shm/")


@dataclass(frozen=True)
class Sample:
    """A process at one step."""

    step: int
    kilobytes: int  # resident and its own
    shared: int  # resident, in objects that other processes may have mapped as well
    descriptors: int


def sample(pid: int, step: int) -> Sample:
    """Read /proc; a process that has ended is an OSError."""
    status = Path(f"/proc/{pid}/status").read_text()
    own, shared = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("RssAnon", "RssShmem"))
    if not own or not shared:
        raise ProcessLookupError(f"[pid {pid}] has ended")
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(step, int(own.group(1)), int(shared.group(1)), descriptors)


def slope(samples: Sequence[Sample], what: str) -> float:
    """Return the growth per 1000 steps, by least squares."""
    return slope_of([(s.step, getattr(s, what)) for s in samples])


def slope_of(counts: Sequence[tuple[int, float]]) -> float:
    """Return the growth per 1000 steps of what was counted at some steps."""
    steps = [step for step, _ in counts]
    values = [float(value) for _, value in counts]
    x, y = sum(steps) / len(steps), sum(values) / len(values)
    above = sum((a - x) * (b - y) for a, b in zip(steps, values, strict=True))
    return 1000 * above / sum((a - x) ** 2 for a in steps)


@dataclass
class Growth:
    """Samples of client, server, agent, supervisor and launcher, and of the files of the job."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    files: list[tuple[int, int]] = field(default_factory=list)  # step, files in the job's folder
    # Step, processes: also those that have ended and that nobody has waited for.
    processes: list[tuple[int, int]] = field(default_factory=list)
    # Step, kilobytes: pages of all memory objects, of which a process may not have mapped all.
    objects: list[tuple[int, int]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    def after(self, step: int) -> dict[str, list[Sample]]:
        """Return the samples behind a warm-up."""
        return {who: [s for s in all_ if s.step > step] for who, all_ in self.samples.items()}


def object_kilobytes(pids: Iterable[int]) -> int:
    """Return what the memory objects hold that processes have open, each object once."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):  # closed meanwhile
                    if os.readlink(entry.path).startswith(_SHARED):
                        stat = entry.stat()
                        found[stat.st_dev, stat.st_ino] = stat.st_blocks
    return sum(found.values()) // 2


def below(pid: int) -> set[int]:
    """Return a process and all that it or its children have started, dead ones included."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, new = {pid}, [pid]
    while new:
        new = [child for parent in new for child in parents.get(parent, ())]
        found |= set(new)
    return found


def roles(meta: Mapping, launcher: int) -> dict[str, int]:
    """Return the processes of a job by their names; those of further ranks have a number."""
    pids = {"agent": meta["agent_pid"], "supervisor": meta["supervisor_pid"], "launcher": launcher}
    for live in meta["live"]:
        number = f" {live['rank']}" if live["rank"] else ""
        pids |= {f"client{number}": live["pid"], f"server{number}": live["server_pid"]}
    return pids


def watch(
    pyft: str,
    program: Sequence[str],
    log_dir: Path,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = ("--gpus", "soft:1"),
) -> Growth:
    """Run a program that prints "step=N …" under pyft and sample its processes at each line."""
    growth = Growth()
    process = subprocess.Popen(
        [pyft, "run", *options, "--log-dir", str(log_dir), "--", *program],
        env=os.environ | SMALL_RINGS | dict(environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        growth.output.append(line)
        if not (found := _STEP.match(line)):
            continue
        step = int(found.group(1))
        meta = json.loads((log_dir / "meta.json").read_text())
        for who, pid in roles(meta, process.pid).items():
            with contextlib.suppress(OSError):  # a server that is being replaced
                growth.samples.setdefault(who, []).append(sample(pid, step))
        growth.files.append((step, sum(1 for _ in log_dir.rglob("*"))))
        processes = below(process.pid)
        growth.processes.append((step, len(processes)))
        growth.objects.append((step, object_kilobytes(processes)))
    assert process.wait(60) == 0, f"the program ended with [{process.returncode}]"
    return growth


def lines(growth: Growth, warm_up: int) -> list[str]:
    """Return the slopes in words."""
    text = []
    for who, samples in growth.after(warm_up).items():
        memory, shared, descriptors = (
            slope(samples, what) for what in ("kilobytes", "shared", "descriptors")
        )
        text.append(
            f"{who:<9} {samples[-1].kilobytes / 1024:7.1f} MB resident, {memory:+8.2f} kB per 1000 "
            f"steps; {samples[-1].shared / 1024:6.1f} MB shared, {shared:+.1f} kB; "
            f"{samples[-1].descriptors:3d} descriptors, {descriptors:+.3f} per 1000 steps"
        )
    counted = {
        "files": growth.files,
        "processes": growth.processes,
        "kB in memory objects": growth.objects,
    }
    for what, counts in counted.items():
        first, last = (count for _, count in (counts[0], counts[-1]))
        text.append(f"{what} of the job: {first} at first, {last} at the end")
    return text


def grown(counts: Sequence[tuple[int, int]]) -> int:
    """Return how much a count has grown, from the first quarter to the last.

    What is there, or is replaced, for a moment is in a few samples; what is forgotten is in all
    later ones.
    """
    quarter = max(len(counts) // 4, 1)
    parts = (counts[:quarter], counts[-quarter:])
    first, last = (statistics.median_low([count for _, count in part]) for part in parts)
    return last - first


@dataclass(frozen=True)
class Limits:
    """What may grow, in kB per 1000 steps."""

    own: float
    shared: float  # mapped by one process: pages that others have written come one by one
    objects: float


def leaks(growth: Growth, warm_up: int, limits: Limits) -> list[str]:
    """Return what has grown behind the warm-up, a sentence each; none where nothing leaks."""
    found = []
    for who, samples in growth.after(warm_up).items():
        for what, limit in (("kilobytes", limits.own), ("shared", limits.shared)):
            if (kilobytes := slope(samples, what)) >= limit:
                found.append(f"{who}: [{what}] grows by {kilobytes:.1f} kB per 1000 steps")
        if more := grown([(s.step, s.descriptors) for s in samples]):
            found.append(f"{who}: {more:+d} descriptors")
    if (kilobytes := slope_of([c for c in growth.objects if c[0] > warm_up])) >= limits.objects:
        found.append(f"memory objects grow by {kilobytes:.1f} kB per 1000 steps")
    for what, counts in (("processes", growth.processes), ("files", growth.files)):
        if more := grown(counts):
            found.append(f"{more:+d} {what}")
    return found


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = watch(sys.argv[1], sys.argv[2:], Path(folder) / "log")
        steps = found.files[-1][0]
        print("\n".join(lines(found, steps // 4)))
