"""`make bench`: first figures of ring, proxy and soft GPU, each as median (min to max, n).

Runs that are compared take turns, round by round, so that what else happens on the machine meets
all of them. docs/figures.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from training import BIN, MODES, ROOT, TRAIN, Training, spread, train

NATIVE_BENCHES = ("ring_bench", "exec_bench")


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def native_benches() -> bool:
    """Run the C++ benchmarks that meson has built; they print their own spread."""
    good = True
    for name in NATIVE_BENCHES:
        found = [p for p in (ROOT / "build" / "meson").rglob(name) if p.is_file()]
        if not found:
            print(f"bench: [{name}] is not built: run make build", file=sys.stderr)
            good = False
            continue
        title(name)
        result = subprocess.run([str(found[0])], timeout=300)
        good = good and result.returncode == 0
    return good


def micro_once(mode: str) -> dict[str, list[float]] | None:
    """Run micro.py in one of two ways: name -> microseconds of every repeat."""
    how = ["--direct"] if mode == "direct" else []
    script = str(Path(__file__).with_name("micro.py"))
    command = [str(BIN / "pyft"), "run", "--gpus", "soft:1", *how, "--"]
    done = subprocess.run(
        [*command, sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=300
    )
    if done.returncode:
        print(f"bench: micro.py, {mode}, ended with [{done.returncode}]", file=sys.stderr)
        return None
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def micro(rounds: int) -> bool:
    title("cost of a call to the script, microseconds")
    modes = ("proxied", "direct")
    results: dict[str, dict[str, list[float]]] = {mode: {} for mode in modes}
    for _ in range(rounds):
        for mode in modes:
            found = micro_once(mode)
            if found is None:
                return False
            for name, values in found.items():
                results[mode].setdefault(name, []).extend(values)
    for name in results["proxied"]:
        print(f"  {name}")
        for mode in modes:
            print(f"    {mode:<8} {spread(results[mode][name])}")
    return True


def ratio(a: list[Training], b: list[Training]) -> str:
    """Compare steps pairwise: the runs of a round do the same work in the same step."""
    ratios = []
    for one, other in zip(a, b, strict=True):
        pairs = zip(one.step_seconds(), other.step_seconds(), strict=False)
        ratios += [x / y for x, y in pairs]
    return spread(ratios, digits=2)


def training(steps: int, rounds: int) -> bool:
    title(f"examples/train_gpt.py, {rounds} times {steps} steps, milliseconds per step")
    runs: dict[str, list[Training]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            run = train(mode, ["--steps", str(steps)], ranks=0)
            if run.exit_code:
                print(f"bench: training, {mode}, ended with [{run.exit_code}]", file=sys.stderr)
                return False
            runs[mode].append(run)
    for mode, done in runs.items():
        print(f"  {mode:<16} {spread([t for run in done for t in run.step_seconds()], 1e3)}")
    print(f"  proxied/direct   {ratio(runs['proxied'], runs['direct'])}")
    print(f"  soft GPU/CPU     {ratio(runs['direct'], runs['cpu'])}")
    return True


def kernel_rate(threads: int, steps: int) -> float | None:
    """Return million warp instructions per second of kernel time of the GPT, launch cost included."""
    how = [str(BIN / "pyft"), "run", "--gpus", "soft:1", "--direct", "--"]
    done = subprocess.run(
        [*how, sys.executable, TRAIN, "--steps", str(steps)],
        env={**os.environ, "SOFTGPU_THREADS": str(threads), "SOFTGPU_PROFILE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    total = re.search(r"([\d.]+)  all kernels$", done.stderr, re.MULTILINE)
    if done.returncode or not total:
        print(
            f"bench: training with SOFTGPU_PROFILE ended with [{done.returncode}]", file=sys.stderr
        )
        return None
    return float(total.group(1))


def kernels(steps: int, rounds: int, cores: int) -> bool:
    title("the GPT's kernels, million warp instructions per second of kernel time")
    rates: dict[int, list[float]] = {threads: [] for threads in sorted({1, cores})}
    for _ in range(rounds):
        for threads, found in rates.items():
            rate = kernel_rate(threads, steps)
            if rate is None:
                return False
            found.append(rate)
    for threads, found in rates.items():
        print(f"  SOFTGPU_THREADS={threads:<3} {spread(found)}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="how often the runs take turns")
    arguments = parser.parse_args()
    steps, rounds = max(arguments.steps, 8), max(arguments.rounds, 1)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{platform.machine()}, {cores} cores, Linux {platform.release()}; median (min to max, n)"
    )
    good = [native_benches(), micro(rounds), training(steps, rounds)]
    good.append(kernels(steps, rounds, min(cores, 8)))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
