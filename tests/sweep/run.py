"""`make kill-sweep`: trainings with faults at many places, each of which must change nothing.

A run is good when it ends well, its losses and parameters are, bit for bit, those of the same
training without faults and without protection, no fault has become an error, the verdict is
`exact`, and nothing of it is left behind. One in which a fault has not happened has shown nothing,
and counts as a failure as well: places are those of the undisturbed run. What may not come, a point
within a server or a moment, is tried sooner, and at last replaced by the death of a server at an
entry; its line says instead of what. A bad one keeps its folder, and its line can be repeated with
--repeat. The exit code says whether all were good.

A seed gives each place of a case by itself: the n-th is the same whatever became of those before.

With --noise float atomics give other last digits in each execution, as those of real GPUs do, and
no two runs have equal bits. A run is good then when all its lines are there, no fault has become an
error, and the verdict is `exact` or `equivalent`: what was told wrong would be `corrected`. Where
two undisturbed runs are equal nevertheless, so has to be each disturbed one.

With --rehearse copies, ring and deadlines have the ratios of a large job on eight GPUs beside that,
and all ranks replay, as with stock NCCL (tests/sweep/rehearse.py, docs/research/rehearsal.md). A run
is good then when no fault was given up, no rank replayed more than twice for each of them, and each
loss is near that of the undisturbed run. What differs is named.

    make kill-sweep                                       # random places, one in each case
    make kill-sweep SWEEP="--case gpt --rank 1 --step 2 --stride 5"
    make kill-sweep SWEEP="--random 5 --moments 8"        # servers and agents, whatever they do
    make kill-sweep SWEEP="--random 10 --seed 7 --kinds server-kill,sticky,gpu-lost --per-run 3"
    make kill-sweep SWEEP="--random 2 --noise 7"
    make kill-sweep SWEEP="--total 100"                   # over all cases, two or three in each
    make kill-sweep SWEEP="--rehearse 8b --random 10"     # or 70b; --case moe-8 with cores for that
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import rehearse  # noqa: E402
from case_runs import Outcome, Sweep  # noqa: E402
from cases import CASES, REHEARSED  # noqa: E402
from places import Place, shared_out  # noqa: E402


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="faults at many places of many trainings")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="default: all")
    parser.add_argument("--rank", type=int, help="whose servers; default: any, or each in turn")
    parser.add_argument("--steps", type=int, default=0, help="default: 4, in a rehearsal 8")
    parser.add_argument("--stride", type=int, default=0, help="kill at each K-th entry of --step")
    parser.add_argument("--first", type=int, default=1, help="first entry of --stride")
    parser.add_argument("--step", type=int, default=2, help="the step, with --stride")
    parser.add_argument("--random", type=int, default=1, help="so many random places per case")
    parser.add_argument(
        "--total", type=int, default=0, help="instead: so many random places over all the cases"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--kinds", default="server-kill", help="of random faults, by commas")
    parser.add_argument("--per-run", type=int, default=1, help="at most so many faults in a run")
    parser.add_argument(
        "--moments", type=int, default=0, help="instead: so many deaths at random times"
    )
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--protect", default="snapshot", choices=("snapshot", "jit"))
    parser.add_argument("--noise", default="", help="a seed: see above")
    parser.add_argument("--rehearse", default="", choices=["", *rehearse.LARGE], help="see above")
    parser.add_argument("--repeat", default="", help="a line of the table")
    parser.add_argument("--folder", type=Path, help="where bad runs are kept; default: a new one")
    args = parser.parse_args(words)
    if args.total and (args.stride or args.repeat):
        parser.error("--total is of random places: not with --stride or --repeat")
    args.steps = args.steps or (8 if args.rehearse else 4)
    if args.rehearse:
        args.noise = args.noise or "7"
        args.case = args.case or list(REHEARSED)
    return args


def verdict(place: Place, outcome: Outcome) -> str:
    """Say what came of a place, as the table prints it behind that."""
    if outcome.complaint:
        said = f"BAD {outcome.complaint}: {outcome.folder}"
    else:
        equal = outcome.recovery.get("verdict") or "equal"
        equal = "equal" if equal == "exact" else equal
        said = f"MISSED {outcome.missed}: {outcome.folder}" if outcome.missed else equal
    return f"{said} (instead of [{place.replaces}], which did not come)" if place.replaces else said


def main() -> int:
    args = parse()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kill-sweep-"))
    runs = bad = faults = missed = 0
    cases = args.case or list(CASES)
    counts = shared_out(args.total, cases) if args.total else dict.fromkeys(cases, args.random)
    seen: list[tuple[Place, Mapping]] = []
    for name, count in counts.items():
        if not count:
            continue
        sweep = Sweep(name, CASES[name], folder, args)
        sweep.undisturbed()
        for place, outcome in (found for p in sweep.places(count) for found in sweep.outcomes(p)):
            seen.append((place, outcome.recovery))
            runs, faults, bad = runs + 1, faults + outcome.faults, bad + bool(outcome.complaint)
            missed += bool(outcome.missed and not outcome.complaint)
            print(
                f"{name:<16} {outcome.seconds:5.1f} s {outcome.faults:3} faults  {place}  "
                f"{verdict(place, outcome)}",
                flush=True,
            )
        shutil.rmtree(folder / f"{name}-1", ignore_errors=True)
        shutil.rmtree(folder / f"{name}-2", ignore_errors=True)
    print(f"{runs} runs with {faults} faults, {bad} of them bad; {missed} have shown nothing")
    if args.rehearse:
        print(rehearse.summary(seen))
    return bool(bad or missed)


if __name__ == "__main__":
    sys.exit(main())
