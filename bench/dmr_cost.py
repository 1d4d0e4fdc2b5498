"""What --dmr costs: steps with it, as ratios to steps without it in the same round.

    python bench/dmr_cost.py --rounds 5 -- --steps 20          # arguments of examples/train_gpt.py

Each round runs without it and all --modes, in another order. Processor time of client and servers is told beside the
time of the clock, which means little on a machine that does other things as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from pathlib import Path

from training import Training, spread, train

MODES = ("off", "checkpoint", "idle", "full")


def one(mode: str, arguments: list[str], ranks: int) -> Training:
    """Run a training to its end."""
    options = ["--dmr", mode] if mode != "off" else []
    run = train("proxied", arguments, ranks, options=options, processor_time=True)
    if run.exit_code:
        raise SystemExit(f"--dmr {mode} has ended with [{run.exit_code}]")
    return run


def figures(run: Training) -> dict[str, object]:
    """Return what is kept of a run."""
    dmr = run.report["channels"][0]["dmr"]
    return {
        "step_ms": 1e3 * statistics.median(run.step_seconds()),
        "processor_ms": 1e3 * run.step_processor_seconds(),
        "parameters": run.parameters,
        "dmr": dmr,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=0, help="0: one, without torchrun")
    parser.add_argument("--modes", nargs="*", choices=MODES[1:], default=MODES[1:])
    parser.add_argument("--json", type=Path)
    parser.add_argument("arguments", nargs="*")
    args = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    rounds: list[dict[str, dict]] = []
    for number in range(args.rounds):
        order = random.Random(number).sample(["off", *args.modes], 1 + len(args.modes))
        rounds.append({mode: figures(one(mode, args.arguments, args.ranks)) for mode in order})
        if len({str(run["parameters"]) for run in rounds[-1].values()}) > 1:
            raise SystemExit(f"parameters are not the same: {rounds[-1]}")
    print(f"load {load:.1f} to {os.getloadavg()[0]:.1f}, {time.monotonic() - began:.0f} s")
    for mode in args.modes:
        for what in ("processor_ms", "step_ms"):
            ratios = [one[mode][what] / one["off"][what] for one in rounds]
            print(f"{mode:10} {what:12} x {spread(ratios, digits=3)}")
        print(f"{'':10} {rounds[-1][mode]['dmr']}")
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
