"""Figures of single calls and of whole programs, proxied and direct in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, quantile
from training import PYFT, ROOT, Training, train

MODELS = {
    "GPT": "train_gpt.py",
    "BERT": "train_bert.py",
    "T5": "train_t5.py",
    "CNN": "train_cnn.py",
}


class BenchError(Exception):
    """A measured program has failed; the sentence says which and how."""


def built(name: str) -> str:
    """Return the path of a C++ benchmark that meson has built."""
    folder = Path(os.environ.get("BENCH_BUILD", ROOT / "build" / "meson"))
    found = [path for path in folder.rglob(name) if path.is_file()]
    if not found:
        raise BenchError(f"[{name}] is not built: run make build")
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
        Figure("launch enqueued, median", medians("launch, enqueued", 1), "ns", 0, 200),
        Figure("launch enqueued, p99", [quantile(v, 0.99) for v in launches], "ns", 0, 2000),
        Figure("launch enqueued, p99.9", [quantile(v, 0.999) for v in launches], "ns", 0),
        Figure("round trip of a call with an answer", medians(trip, 1e-3), "us", 1, 5),
        Figure("launch and synchronize", medians(both, 1e-3), "us", 1, 5),
        Figure("cudaEventQuery", medians(query, 1), "ns", 0, 50),
        Figure(
            "64 MiB pageable to the GPU, of memcpy",
            share_of_memcpy("64 MiB to the GPU"),
            "%",
            0,
            at_least=80,
        ),
        Figure(
            "the same, until it has landed", share_of_memcpy("64 MiB to the GPU, landed"), "%", 0
        ),
        Figure(
            "64 MiB to pageable memory, of memcpy",
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


def run_model(script: str, mode: str, steps: int, **environment: str) -> Training:
    """Train once; the environment is for this run only."""
    # What captures cost is measured apart (capture.py).
    options = ("--protect", "none") if mode == "proxied" else ()
    arguments = ["--steps", str(steps)]
    run = train(mode, arguments, ranks=0, script=script, environment=environment, options=options)
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
        found.append(Figure(f"{name} step, proxied / direct", ratios, digits=3, at_most=1.03))
        if name == "GPT":
            found += ring_bytes(runs["proxied"][0], steps)
    return found


def ring_bytes(run: Training, steps: int) -> list[Figure]:
    """Return what the log takes, of the difference between a long and a short run."""
    short = run_model(MODELS["GPT"], "proxied", steps // 2)

    def count(training: Training, what: str) -> float:
        return float(sum(channel[what] for channel in training.report["channels"]))

    names = {"entries_total": "entries", "appended": "bytes of ring", "arena_head": "payload bytes"}
    return [
        Figure(f"GPT step: {name}", [(count(run, key) - count(short, key)) / (steps - steps // 2)],
               digits=0)
        for key, name in names.items()
    ]  # fmt: skip


def kept_log(steps: int, pairs: int) -> list[Figure]:
    """Return keeping the log / discarding it: rings of 64 and of 1 MiB, arenas of 256 and 8 MiB."""
    small = {"PYFT_RING_MB": "1", "PYFT_ARENA_MB": "8"}
    keep, discard = [], []
    for _ in range(pairs):
        keep.append(run_model(MODELS["GPT"], "proxied", steps))
        discard.append(run_model(MODELS["GPT"], "proxied", steps, **small))
    launches = [
        statistics.median(call_times()["launch, enqueued"])
        / statistics.median(call_times(environment=small)["launch, enqueued"])
        for _ in range(pairs)
    ]
    return [
        Figure(
            "GPT step, log kept / discarded", step_ratios(keep, discard), digits=3, at_most=1.02
        ),
        Figure("launch enqueued, log kept / discarded", launches, digits=2),
    ]


def starts(rounds: int) -> list[Figure]:
    """Return what the first call takes: of one program, and of 32 that start at once."""
    many = 32
    alone = [json.loads(under_pyft([built("start_bench"), "1"]))[0] for _ in range(2 * rounds)]
    crowds = [json.loads(under_pyft([built("start_bench"), str(many)])) for _ in range(rounds)]
    each = [crowd[-1] / many for crowd in crowds]
    return [
        Figure("first call of a program", alone, "ms", 1),
        Figure(f"first call, {many} programs at once: slowest", [c[-1] for c in crowds], "ms", 0),
        Figure(
            f"the same / {many} programs one after the other",
            [one / statistics.median(alone) for one in each],
            at_most=1.0,
        ),
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
