"""Figures of single calls and of whole programs, proxied and direct in turns."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Figure, KnownMiss, quantile
from training import PYFT, ROOT, Training, train

MODELS = {
    "GPT": "train_gpt.py",
    "BERT": "train_bert.py",
    "T5": "train_t5.py",
    "CNN": "train_cnn.py",
}

# Where a target is missed on purpose, for now: docs/figures.md has the runs.
FAR_CORES = KnownMiss(
    "on different cores of the host the line with the end of the ring travels between them; no "
    "guest can choose the cores",
    until=250,
)
NOISY_STEPS = KnownMiss(
    "whole steps vary by percents from run to run, more than the target leaves", until=1.06
)


class BenchError(Exception):
    """A measured program has failed; the sentence says which and how."""


def built(name: str) -> str:
    """Return the path of a C++ benchmark that meson has built."""
    folder = Path(os.environ.get("BENCH_BUILD", ROOT / "build" / "meson"))
    found = [path for path in folder.rglob(name) if path.is_file()]
    if not found:
        raise BenchError(f"[{name}] is not built: run make programs")
    return str(found[0])


def under_pyft(
    command: Sequence[str], *options: str, environment: dict[str, str] | None = None
) -> str:
    """Run a command with one soft GPU and return what it prints."""
    done = subprocess.run(
        [PYFT, "run", "--gpus", "soft:1", *options, "--", *command],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise BenchError(f"[{command[-1]}] ended with [{done.returncode}]")
    return done.stdout


def call_times(*options: str, environment: dict[str, str] | None = None) -> dict[str, list[float]]:
    """Return what call_bench measures: nanoseconds by name."""
    times: dict[str, list[float]] = json.loads(
        under_pyft([built("call_bench")], *options, environment=environment)
    )
    return times


def calls(rounds: int) -> list[Figure]:
    """Return what calls cost the program; the launches of all rounds are one histogram."""
    got = [call_times() for _ in range(rounds)]

    def medians(name: str, scale: float) -> list[float]:
        return [statistics.median(one[name]) * scale for one in got]

    def share_of_memcpy(name: str) -> list[float]:
        return [
            100 * statistics.median(one["memcpy of 64 MiB"]) / statistics.median(one[name])
            for one in got
        ]

    launches = [one["launch, enqueued"] for one in got]
    trip, query = "cudaMemGetInfo", "cudaEventQuery, complete"
    both = "launch and cudaStreamSynchronize"
    return [
        Figure(
            "launch enqueued, 256 bytes of parameters",
            medians("launch, enqueued", 1),
            "ns",
            0,
            at_most=200,
            known_miss=FAR_CORES,
        ),
        Figure(
            "launch enqueued, 99 % are below", [quantile(v, 0.99) for v in launches], "ns", 0, 2000
        ),
        Figure(
            "launch enqueued, 99.9 % are below", [quantile(v, 0.999) for v in launches], "ns", 0
        ),
        Figure("round trip of a call with an answer", medians(trip, 1e-3), "us", 1, 5),
        Figure("launch and synchronize", medians(both, 1e-3), "us", 1, 5),
        Figure("cudaEventQuery of a complete event", medians(query, 1), "ns", 0, 50),
        Figure(
            "64 MiB of pageable memory to the GPU, speed of memcpy",
            share_of_memcpy("64 MiB to the GPU"),
            "%",
            0,
            at_least=80,
        ),
        Figure(
            "the same, until it has landed", share_of_memcpy("64 MiB to the GPU, landed"), "%", 0
        ),
        Figure(
            "64 MiB to pageable memory, speed of memcpy",
            share_of_memcpy("64 MiB to the host"),
            "%",
            0,
            at_least=80,
        ),
    ]


def step_ratios(a: Sequence[Training], b: Sequence[Training]) -> list[float]:
    """Return one ratio of median step times for each pair of runs."""
    return [
        statistics.median(one.step_seconds()) / statistics.median(other.step_seconds())
        for one, other in zip(a, b, strict=True)
    ]


def run_model(
    script: str, mode: str, steps: int, processor_time: bool = False, **environment: str
) -> Training:
    """Train once; the environment is for this run only."""
    # What snapshots cost is measured apart (snapshot.py).
    options = ("--protect", "none") if mode == "proxied" else ()
    arguments = ["--steps", str(steps)]
    run = train(
        *(mode, arguments),
        ranks=0,
        script=script,
        environment=environment,
        options=options,
        processor_time=processor_time,
    )
    if run.exit_code:
        raise BenchError(f"[{script}], {mode}, ended with [{run.exit_code}]")
    return run


def models(steps: int, pairs: int) -> list[Figure]:
    """Return proxied / direct of each example, and the bytes of ring that a GPT step takes."""
    found = []
    for name, script in MODELS.items():
        runs: dict[str, list[Training]] = {"proxied": [], "direct": []}
        for _ in range(pairs):
            for mode, done in runs.items():
                done.append(run_model(script, mode, steps))
        if {tuple(r.losses) for r in runs["proxied"]} != {tuple(r.losses) for r in runs["direct"]}:
            raise BenchError(f"[{script}]: the losses of proxied and direct runs differ")
        ratios = step_ratios(runs["proxied"], runs["direct"])
        known = NOISY_STEPS if name in ("BERT", "T5") else None
        label = f"{name} step, proxied / direct"
        found.append(Figure(label, ratios, digits=3, at_most=1.03, known_miss=known))
        if name == "GPT":
            found += ring_bytes(runs["proxied"][0], steps)
    return found


def per_step(run: Training, short: Training, steps: int) -> dict[str, float]:
    """Return what a step adds to the channels' counters; `short` has had half the steps."""

    def count(training: Training, what: str) -> float:
        return float(sum(channel[what] for channel in training.report["channels"]))

    names = ("entries_total", "appended", "arena_head")
    return {n: (count(run, n) - count(short, n)) / (steps - steps // 2) for n in names}


def ring_bytes(run: Training, steps: int) -> list[Figure]:
    """Return what the log takes, of the difference between a long and a short run."""
    found = per_step(run, run_model(MODELS["GPT"], "proxied", steps // 2), steps)
    names = {"entries_total": "entries", "appended": "bytes of ring", "arena_head": "payload bytes"}
    return [Figure(f"GPT step: {name}", [found[key]], digits=0) for key, name in names.items()]


def first_calls(programs: int, how: str) -> dict[str, Any]:
    """Return milliseconds of each first call and of all together; `used` of the whole job."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (children.ru_utime + children.ru_stime)

    before = used()
    found: dict[str, Any] = json.loads(under_pyft([built("start_bench"), str(programs), how]))
    return found | {"used": used() - before}


def starts(rounds: int) -> list[Figure]:
    """Return what the first call takes: of one program, and of 32 at once or one after the other."""
    many = 32
    alone = [first_calls(1, "in-turn") for _ in range(3 * rounds)]
    at_once, in_turn = [], []
    for _ in range(2 * rounds):
        at_once.append(first_calls(many, "at-once"))
        in_turn.append(first_calls(many, "in-turn"))
    job = statistics.median(one["used"] for one in alone)
    ratios = [a["total"] / b["total"] for a, b in zip(at_once, in_turn, strict=True)]
    totals = [[one["total"] for one in runs] for runs in (alone, at_once, in_turn)]
    more = [(one["used"] - job) / (many - 1) for one in at_once]
    return [
        Figure("first call of a program, server and channel included", totals[0], "ms", 1),
        Figure(f"first calls of {many} programs at once, until the last", totals[1], "ms", 0),
        Figure(f"first calls of {many} programs, one after the other", totals[2], "ms", 0),
        Figure(f"first calls of {many} programs, at once / one after the other", ratios, at_most=1),
        Figure("processor time of one more program, its start and end included", more, "ms", 1),
    ]


def imports(pairs: int) -> list[Figure]:
    """Return the time of `import torch` under the shim / without, processor time of the process."""
    program = (
        "import time; t = time.perf_counter(); import torch; "
        "print(time.perf_counter() - t, flush=True)"
    )
    plain = [sys.executable, "-c", program]
    ratios = []
    for _ in range(pairs + 1):
        proxied = float(under_pyft(plain))
        alone = float(subprocess.run(plain, stdout=subprocess.PIPE, check=True).stdout)
        ratios.append(proxied / alone)
    return [Figure("import torch, under the shim / without", ratios[1:], digits=3, at_most=1.15)]
