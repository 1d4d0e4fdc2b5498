"""A fault every other step: the training must be equal, and nothing may grow with the faults.

    python bench/fault_leaks.py [--steps 200] [--ranks 2] [--kinds server-kill,sticky]

The ranks lose their servers in turn, at places that differ. Prints the slopes of memory and descriptors
of all processes, and how many processes and files there are at first and at the end, beside those of the same
without faults. The agent keeps each fault for the report, some kB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from training import BIN, PYFT, ROOT, TRAIN

sys.path.insert(0, str(ROOT / "tests"))

from growth import Growth, lines, watch  # noqa: E402 - what the test of growth uses as well

EVERY = 2  # steps from fault to fault
PLACES = (3, 20, 41, 67, 88, 110)


def injections(steps: int, ranks: int, kinds: list[str]) -> list[str]:
    """Return faults for each rank's servers in turn; a new server counts its steps from its start."""
    words = []
    for number in range((steps - 2) // EVERY):
        rank, turn = number % ranks, number // ranks
        step = 1 + rank * EVERY if turn == 0 else ranks * EVERY
        kind, call = kinds[turn % len(kinds)], PLACES[number % len(PLACES)]
        words += ["--inject", f"{kind},rank={rank},step={step},call={call},server={turn + 1}"]
    return words


def train(steps: int, ranks: int, options: list[str]) -> tuple[Growth, dict]:
    """Train under pyft; return what was seen, and the report on faults."""
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]
    program = [*(launcher if ranks > 1 else [sys.executable]), TRAIN, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        line = ["--gpus", f"soft:{ranks}", "--report", str(report), *options]
        growth = watch(PYFT, program, Path(folder) / "log", options=line)
        return growth, json.loads(report.read_text())["recovery"]


def results(growth: Growth) -> list[str]:
    """Return the lines that have to be equal."""
    return sorted(line for line in growth.output if "loss=" in line or "sha256=" in line)


def main() -> int:
    parser = argparse.ArgumentParser(description="what grows with the number of faults")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kinds", default="server-kill", help="by commas, of each rank in turn")
    args = parser.parse_args()
    faults = injections(args.steps, args.ranks, args.kinds.split(","))
    wanted, _ = train(args.steps, args.ranks, [])
    growth, found = train(args.steps, args.ranks, faults)
    equal = results(growth) == results(wanted)
    for title, one in (("without faults:", wanted), ("with faults:", growth)):
        print("\n  ".join([title, *lines(one, args.steps // 4)]))
    for fault in found["faults"]:
        if fault["fault"] not in ("server-killed", "context-lost", "gpu-lost", "ordered"):
            print(
                f"{fault['began']:.1f} s, rank {fault['rank']}: {fault['fault']}: {fault['evidence']}"
            )
    print(
        f"{len(found['faults'])} faults of [{len(faults) // 2}] that were asked for, "
        f"{found['recovered']} recovered, verdict [{found['verdict']}], "
        f"{'equal' if equal else 'NOT EQUAL'}; {found['lost_seconds']:.1f} s lost"
    )
    return not (equal and found["recovered"] == len(found["faults"]) > 0)


if __name__ == "__main__":
    sys.exit(main())
