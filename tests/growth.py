"""What the processes of a job hold while it runs: resident memory, descriptors, and their slopes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
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
    """Samples of client, server, agent, keeper and launcher, and of the files of the job."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    files: list[tuple[int, int]] = field(default_factory=list)  # step, files in the job's folder

    def after(self, step: int) -> dict[str, list[Sample]]:
        """Return the samples behind a warm-up."""
        return {who: [s for s in all_ if s.step > step] for who, all_ in self.samples.items()}


def watch(
    pyft: str, program: list[str], log_dir: Path, environment: Mapping[str, str] | None = None
) -> Growth:
    """Run a program that prints "step=N …" under pyft and sample its processes at each line."""
    growth = Growth()
    process = subprocess.Popen(
        [pyft, "run", "--gpus", "soft:1", "--log-dir", str(log_dir), "--", *program],
        env=os.environ | SMALL_RING | dict(environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if not (found := _STEP.match(line)):
            continue
        step = int(found.group(1))
        meta = json.loads((log_dir / "meta.json").read_text())
        live = meta["live"][0]
        pids = {"client": live["pid"], "server": live["server_pid"]}
        pids |= {"agent": meta["agent_pid"], "keeper": meta["keeper_pid"]}
        for who, pid in (pids | {"launcher": process.pid}).items():
            growth.samples.setdefault(who, []).append(sample(pid, step))
        growth.files.append((step, sum(1 for _ in log_dir.rglob("*"))))
    assert process.wait(60) == 0, f"the program ended with [{process.returncode}]"
    return growth


def lines(growth: Growth, warm_up: int) -> list[str]:
    """Return the slopes in words."""
    text = []
    for who, samples in growth.after(warm_up).items():
        memory, descriptors = slope(samples, "kilobytes"), slope(samples, "descriptors")
        text.append(
            f"{who:<9} {samples[-1].kilobytes / 1024:7.1f} MB resident, {memory:+8.2f} kB per 1000 "
            f"steps; {samples[-1].shared / 1024:6.1f} MB shared; "
            f"{samples[-1].descriptors:3d} descriptors, {descriptors:+.3f} per 1000 steps"
        )
    first, last = growth.files[0][1], growth.files[-1][1]
    text.append(f"files of the job: {first} at first, {last} at the end")
    return text


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = watch(sys.argv[1], sys.argv[2:], Path(folder) / "log")
        steps = found.files[-1][0]
        print("\n".join(lines(found, steps // 4)))
