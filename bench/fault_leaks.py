"""A fault every other step: the training must be equal, and nothing may grow with the faults.

    python bench/fault_leaks.py [--steps 200] [--ranks 2] [--kinds server-kill,sticky]

The ranks lose their servers in turn, at places that differ. Prints the slopes of memory and descriptors
of all processes, and how many processes and files there are at first and at the end, beside those of the same
without faults. Ends with 1 when a fault takes more than its target: what grows with the steps grows in
both runs, and is left out. The agent keeps the last 1024 faults for the report, some kB each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from figures import Figure, exit_code, print_table
from training import BIN, PYFT, ROOT, TRAIN

sys.path.insert(0, str(ROOT / "tests"))

from growth import Growth, grown, lines, slope, slope_of, watch  # noqa: E402 - as the test of growth

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


def per_fault(bare: Growth, faulty: Growth, who: str, warm_up: int) -> list[float]:
    """Return the kB that each fault adds to a process; nothing where it was not seen."""
    runs = [growth.after(warm_up).get(who, []) for growth in (faulty, bare)]
    if min(map(len, runs)) < 2:
        return []
    more, less = (slope(samples, "kilobytes") for samples in runs)
    return [(more - less) * EVERY / 1000]


def figures_of(bare: Growth, faulty: Growth, warm_up: int, ranks: int) -> list[Figure]:
    """Return what grows with the faults. A server that is new has nothing to add up."""
    stay = [
        "agent",
        "supervisor",
        "launcher",
        "client",
        *(f"client {rank}" for rank in range(1, ranks)),
    ]
    found = []
    for who in stay:
        memory = per_fault(bare, faulty, who, warm_up)
        samples = faulty.after(warm_up).get(who, [])
        descriptors = [grown([(s.step, s.descriptors) for s in samples])] if memory else []
        found += [
            Figure(f"{who}: memory of a fault", memory, "kB", 1, at_most=30),
            Figure(f"{who}: descriptors, growth", descriptors, digits=0, at_most=0),
        ]
    more, less = (
        slope_of([count for count in growth.object_kilobytes if count[0] > warm_up])
        for growth in (faulty, bare)
    )
    # With each fault, and so replay, more of what is reserved is filled a first time.
    objects = (more - less) * EVERY / 1000
    return [
        *found,
        Figure("shared memory of a fault", [objects], "kB", 0, at_most=2000),
        Figure("memory objects of the job, growth", [grown(faulty.objects)], digits=0, at_most=0),
        Figure("processes of the job, growth", [grown(faulty.processes)], digits=0, at_most=0),
        Figure("files of the job, growth", [grown(faulty.files)], digits=0, at_most=0),
    ]


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
    figures = figures_of(wanted, growth, args.steps // 4, args.ranks)
    print_table(figures)
    recovered = equal and found["recovered"] == len(found["faults"]) == len(faults) // 2
    return exit_code("fault-leaks", figures) or int(not recovered)


if __name__ == "__main__":
    sys.exit(main())
