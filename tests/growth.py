"""What the processes of a job hold while it runs: resident memory, descriptors, and their slopes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_STEP = re.compile(r"step=(\d+) ")
# The ring then is full long before the measured steps, and written over as it would be later.
SMALL_RING = {"PYFT_RING_MB": "1"}


@dataclass(frozen=True)
class Sample:
    """A process at one step."""

    step: int
    kilobytes: int  # resident and its own: the log, which has a fixed size, is shared memory
    shared: int
    descriptors: int


def sample(pid: int, step: int) -> Sample:
    """Read /proc; a process that has ended is an OSError."""
    status = Path(f"/proc/{pid}/status").read_text()
    own, shared = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("RssAnon", "RssShmem"))
    if not own or not shared:
        raise ProcessLookupError(f"[pid {pid}] has ended")
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(step, int(own.group(1)), int(shared.group(1)), descriptors)


def slope(samples: list[Sample], what: str) -> float:
    """Return the growth per 1000 steps, by least squares."""
    steps = [s.step for s in samples]
    values = [float(getattr(s, what)) for s in samples]
    x, y = sum(steps) / len(steps), sum(values) / len(values)
    above = sum((a - x) * (b - y) for a, b in zip(steps, values, strict=True))
    return 1000 * above / sum((a - x) ** 2 for a in steps)


@dataclass
class Growth:
    """Samples of client, server, agent, supervisor and launcher, and of the files of the job."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    files: list[tuple[int, int]] = field(default_factory=list)  # step, files in the job's folder
    processes: list[tuple[int, int]] = field(
        default_factory=list
    )  # step, with those not waited for
    output: list[str] = field(default_factory=list)

    def after(self, step: int) -> dict[str, list[Sample]]:
        """Return the samples behind a warm-up."""
        return {who: [s for s in all_ if s.step > step] for who, all_ in self.samples.items()}


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
        env=os.environ | SMALL_RING | dict(environment or {}),
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
        growth.processes.append((step, len(below(process.pid))))
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
    for what, counts in (("files", growth.files), ("processes", growth.processes)):
        first, last = (count for _, count in (counts[0], counts[-1]))
        text.append(f"{what} of the job: {first} at first, {last} at the end")
    return text


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = watch(sys.argv[1], sys.argv[2:], Path(folder) / "log")
        steps = found.files[-1][0]
        print("\n".join(lines(found, steps // 4)))
