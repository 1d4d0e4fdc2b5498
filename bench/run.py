"""`make bench`: figures of ring, proxy and soft GPU, each as median (min to max, n).

Runs that are compared take turns, round by round, so that what else happens on the machine meets
all of them. Ends with a table of the figures that have targets; docs/figures.md says what they mean.
Ends with 1 when a target is missed, unless the figure says that it is missed on purpose.
With --json they are written to a file; what the C++ programs measure is only printed.
With --busy other programs want all cores all the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from figures import Figure, exit_code, print_table
from kept_log import kept_log
from leaks import leaks
from load import busy
from programs import BenchError, built, calls, imports, models, starts, under_pyft
from result_file import write
from snapshot import snapshot_cost
from training import PYFT, TRAIN, Training, spread, train

NATIVE_BENCHES = ("ring_bench", "exec_bench")


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def native_benches() -> list[Figure]:
    """Run the C++ benchmarks that meson has built; what they measure is only printed."""
    for name in NATIVE_BENCHES:
        title(name)
        done = subprocess.run([built(name)], timeout=300)
        if done.returncode:
            raise BenchError(f"[{name}] ended with [{done.returncode}]")
    return []


def micro(rounds: int) -> list[Figure]:
    title("cost of a call to the script, microseconds")
    modes: dict[str, list[str]] = {"proxied": [], "direct": ["--direct"]}
    results: dict[str, dict[str, list[float]]] = {mode: {} for mode in modes}
    script = str(Path(__file__).with_name("micro.py"))
    for _ in range(rounds):
        for mode, how in modes.items():
            found = json.loads(under_pyft([sys.executable, script], *how).splitlines()[-1])
            for name, values in found.items():
                results[mode].setdefault(name, []).extend(values)
    for name in results["proxied"]:
        print(f"  {name}")
        for mode in modes:
            print(f"    {mode:<8} {spread(results[mode][name])}")
    found = [(mode, *item) for mode in modes for item in results[mode].items()]
    return [Figure(name, values, "us", 1, column=mode) for mode, name, values in found]


def cpu(steps: int, rounds: int) -> list[Figure]:
    """Compare the soft GPU with PyTorch on the CPU."""
    title(f"examples/train_gpt.py, {rounds} times {steps} steps, milliseconds per step")
    runs: dict[str, list[Training]] = {"direct": [], "cpu": []}
    for _ in range(rounds):
        for mode, done in runs.items():
            done.append(train(mode, ["--steps", str(steps)], ranks=0))
    figures = []
    for mode, done in runs.items():
        times = [t * 1e3 for run in done for t in run.step_seconds()]
        print(f"  {mode:<16} {spread(times)}")
        figures.append(Figure(f"GPT step, {mode}", times, "ms", 1))
    pairs = zip(runs["direct"], runs["cpu"], strict=True)
    ratios = [
        a / b for x, y in pairs for a, b in zip(x.step_seconds(), y.step_seconds(), strict=False)
    ]
    print(f"  soft GPU/CPU     {spread(ratios, digits=2)}")
    return [*figures, Figure("GPT step, soft GPU / CPU", ratios)]


def kernel_rate(threads: int, steps: int) -> float:
    """Return million warp instructions per second of kernel time of the GPT, launch cost included."""
    done = subprocess.run(
        [PYFT, "run", "--gpus", "soft:1", "--direct", "--", sys.executable, TRAIN]
        + ["--steps", str(steps)],
        env={**os.environ, "SOFTGPU_THREADS": str(threads), "SOFTGPU_PROFILE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    total = re.search(r"([\d.]+)  all kernels$", done.stderr, re.MULTILINE)
    if done.returncode or not total:
        raise BenchError(f"training with SOFTGPU_PROFILE ended with [{done.returncode}]")
    return float(total.group(1))


def kernels(steps: int, rounds: int) -> list[Figure]:
    figures = []
    title("the GPT's kernels, million warp instructions per second of kernel time")
    for threads in sorted({1, min(len(os.sched_getaffinity(0)), 8)}):
        rates = [kernel_rate(threads, steps) for _ in range(rounds)]
        print(f"  SOFTGPU_THREADS={threads:<3} {spread(rates)}")
        name = f"warp instructions a second, SOFTGPU_THREADS={threads}"
        figures.append(Figure(name, rates, "M", 0))
    return figures


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="how often the runs take turns")
    parser.add_argument(
        "--pairs", type=int, default=7, help="of proxied and direct runs, each model"
    )
    parser.add_argument("--leak-steps", type=int, default=10_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--only", help="name of one part: " + ", ".join([*TARGETS, *OTHERS]))
    parser.add_argument("--busy", action="store_true", help="with programs that want all cores")
    return parser.parse_args()


def main() -> int:
    arguments = options()
    cores = len(os.sched_getaffinity(0))
    print(
        f"{platform.machine()}, {cores} cores, Linux {platform.release()}; median (min to max, n)"
    )
    figures: list[Figure] = []
    try:
        with busy() if arguments.busy else contextlib.nullcontext():
            for name, part in TARGETS.items():
                if arguments.only in (None, name):
                    title(name)
                    figures += part(arguments)
            for name, other in OTHERS.items():
                if arguments.only in (None, name):
                    figures += other(arguments)
    except BenchError as error:
        sys.exit(f"bench: {error}")
    finally:
        title("figures with targets, and those beside them")
        print_table([figure for figure in figures if not figure.column])
    if arguments.json:
        write(arguments.json, figures, note="busy" if arguments.busy else "")
    return exit_code("bench", figures)


TARGETS: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "calls": lambda a: calls(a.rounds),
    "models": lambda a: models(max(a.steps, 8), a.pairs),
    "snapshot": lambda a: snapshot_cost(max(a.steps, 30), a.pairs),
    "log": lambda a: kept_log(max(a.steps, 24), a.pairs),
    "import": lambda a: imports(a.pairs),
    "starts": lambda a: starts(a.rounds),
    "leaks": lambda a: leaks(a.leak_steps),
}
OTHERS: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "native": lambda a: native_benches(),
    "micro": lambda a: micro(a.rounds),
    "cpu": lambda a: cpu(max(a.steps, 8), a.rounds),
    "kernels": lambda a: kernels(max(a.steps, 8), a.rounds),
}


if __name__ == "__main__":
    sys.exit(main())
