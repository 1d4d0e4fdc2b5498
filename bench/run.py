"""`make bench`: first figures of ring, proxy and soft GPU, each as median (min to max, n)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from training import BIN, MODES, ROOT, Training, spread, train

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


def micro() -> bool:
    title("cost of a call to the script, microseconds")
    results = {}
    for mode in ("proxied", "direct"):
        how = ["--direct"] if mode == "direct" else []
        script = str(Path(__file__).with_name("micro.py"))
        command = [str(BIN / "pyft"), "run", "--gpus", "soft:1", *how, "--"]
        done = subprocess.run(
            [*command, sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=300
        )
        if done.returncode:
            print(f"bench: micro.py, {mode}, ended with [{done.returncode}]", file=sys.stderr)
            return False
        results[mode] = json.loads(done.stdout.splitlines()[-1])
    for name, proxied in results["proxied"].items():
        print(f"  {name}")
        print(f"    proxied  {spread(proxied)}")
        print(f"    direct   {spread(results['direct'][name])}")
    return True


def ratio(a: Training, b: Training) -> str:
    """Compare steps pairwise: both runs do the same work in the same step."""
    pairs = zip(a.step_seconds(), b.step_seconds(), strict=False)
    return spread([x / y for x, y in pairs], digits=2)


def training(steps: int) -> bool:
    title(f"examples/train_gpt.py, {steps} steps, milliseconds per step")
    runs = {mode: train(mode, ["--steps", str(steps)], torchrun=False) for mode in MODES}
    failed = [mode for mode, run in runs.items() if run.exit_code]
    if failed:
        print(f"bench: training {failed} failed", file=sys.stderr)
        return False
    for mode, run in runs.items():
        print(f"  {mode:<16} {spread(run.step_seconds(), 1e3)}")
    print(f"  proxied/direct   {ratio(runs['proxied'], runs['direct'])}")
    print(f"  soft GPU/CPU     {ratio(runs['direct'], runs['cpu'])}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    steps = max(parser.parse_args().steps, 8)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{platform.machine()}, {cores} cores, Linux {platform.release()}; median (min to max, n)"
    )
    good = [native_benches(), micro(), training(steps)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
