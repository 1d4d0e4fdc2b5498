"""What it costs to keep the log: rings of 64 and of 1 MiB, arenas of 256 and of 8 MiB.

A GPT step writes 84 KB into the ring, and its time varies a thousand times as much as that can
cost. So the cost is that of a KB of small entries, of which call_bench writes many, times those of a
step: processor time of client and server, in runs that take turns. The first pass through a ring
of 64 MiB is through memory that is new, later ones through memory that has left the caches.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from figures import Figure
from processor_time import used
from programs import (
    MODELS,
    BenchError,
    built,
    call_times,
    per_step,
    run_model,
    step_ratios,
)
from training import PYFT, Training

SMALL = {"PYFT_RING_MB": "1", "PYFT_ARENA_MB": "8"}
LAUNCHES = 23_600  # a round: 8.6 MB of ring, 30 ms
ROUNDS = 16  # twice through a ring of 64 MiB


@dataclass(frozen=True)
class PerKb:
    """Processor nanoseconds of a KB of launches: the first time through the ring, and later."""

    first: float
    later: float


def seconds_by_round(report: Path, environment: dict[str, str]) -> list[float]:
    """Return the processor seconds of each round of launches."""
    arguments = ["rounds", str(ROUNDS), "launches", str(LAUNCHES)]
    process = subprocess.Popen(
        [PYFT, "run", "--gpus", "soft:1", "--protect", "none", "--report", str(report)]
        + ["--", built("call_bench"), *arguments],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    so_far = []
    for _ in process.stdout:
        so_far.append(used(process.pid, "call_bench"))
        process.stdin.write("\n")
        process.stdin.flush()
    if process.wait() or len(so_far) != ROUNDS + 1:
        raise BenchError(f"[call_bench] ended with [{process.returncode}]")
    return [after - before for before, after in zip(so_far, so_far[1:], strict=False)]


def launches_per_kb(environment: dict[str, str]) -> PerKb:
    """Measure one run; the first round is a warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        seconds = seconds_by_round(report, environment)
        channel = json.loads(report.read_text())["channels"][0]
    nanoseconds = [one * 1e9 / (channel["appended"] / ROUNDS / 1e3) for one in seconds]
    # The number of rounds in 64 MiB, in both runs.
    through = (64 << 20) * ROUNDS / channel["appended"]
    first, later = nanoseconds[1 : int(through)], nanoseconds[int(through) + 1 :]
    return PerKb(statistics.median(first), statistics.median(later))


def gpt_pairs(steps: int, pairs: int) -> tuple[list[Training], list[Training]]:
    """Train with the log kept and discarded, first the one and then the other."""
    runs: dict[bool, list[Training]] = {True: [], False: []}
    for pair in range(pairs):
        for keep in (True, False) if pair % 2 else (False, True):
            environment = {} if keep else SMALL
            run = run_model(MODELS["GPT"], "proxied", steps, processor_time=True, **environment)
            runs[keep].append(run)
    return runs[True], runs[False]


def kept_log(steps: int, pairs: int) -> list[Figure]:
    """Return what the log adds to a KB of entries, and what share of a GPT step that is."""
    keep, discard = gpt_pairs(steps, pairs)
    step_ns = [run.step_processor_seconds() * 1e9 for run in keep]
    short = run_model(MODELS["GPT"], "proxied", steps // 2)
    kb = per_step(keep[0], short, steps)["appended"] / 1e3
    both = [(launches_per_kb({}), launches_per_kb(SMALL)) for _ in range(pairs)]
    first = [kept.first - discarded.first for kept, discarded in both]
    later = [kept.later - discarded.later for kept, discarded in both]
    share = 100 * kb / statistics.median(step_ns)
    processor = [ns / (run.step_processor_seconds() * 1e9)
                 for ns, run in zip(step_ns, discard, strict=True)]  # fmt: skip
    launches = [
        statistics.median(call_times()["launch, enqueued"])
        / statistics.median(call_times(environment=SMALL)["launch, enqueued"])
        for _ in range(pairs)
    ]
    return [
        Figure("log kept, processor time of a KB, first pass", first, "ns", 0),
        Figure("log kept, processor time of a KB, later", later, "ns", 0),
        Figure("log kept, of a GPT step, first pass", [f * share for f in first], "%", 3, 0.1),
        Figure("log kept, of a GPT step, later", [one * share for one in later], "%", 3, 0.1),
        Figure("GPT step, log kept / discarded, processor time", processor, digits=3),
        Figure("the same, time", step_ratios(keep, discard), digits=3),
        Figure("launch enqueued, log kept / discarded", launches, digits=2),
    ]
