"""What must hold of a run whose ranks come and go: those that are there train on.

Such a run leaves out samples, and its mean is another one than that of all ranks. So it is compared
with a run in which the same ranks are away in the same steps by plan: to that it must be equal, in
samples, losses and state. What it left out is counted, and must follow from its faults.

Which ranks took part in a step say those that did, in their lines. If a rank did a step that others
did again without it, its line counts for nothing: none has that state any more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyft_lab.oracles import oracle
from pyft_lab.oracles.oracle import Committed, Verdict, lines_of

Span = tuple[int, int, int]  # rank, first step without it, first step with it again


def newest(folder: Path, ranks: int) -> list[Committed]:
    """Return per rank the last line of each step."""
    return [{line["step"]: line for line in lines_of(folder, rank)} for rank in range(ranks)]


def present(lines: list[Committed]) -> dict[int, set[int]]:
    """Return which ranks took part in each step, by its newest line."""
    last: dict[int, dict[str, Any]] = {}
    for step, line in (item for of in lines for item in of.items()):
        if step not in last or line["t"] > last[step]["t"]:
            last[step] = line
    return {step: {*line["with"]} for step, line in last.items()}


def absences(folder: Path, ranks: int, steps: int) -> list[Span]:
    """Return when which rank was away."""
    there, found = present(newest(folder, ranks)), []
    for rank in range(ranks):
        away = [step for step in range(steps) if rank not in there.get(step, {rank})]
        for step in away:
            if step - 1 not in away:
                back = next(s for s in range(step, steps + 1) if s not in away)
                found.append((rank, step, back))
    return found


def committed(
    lines: list[Committed], planned: list[Committed], faults: Sequence[Any]
) -> list[Committed]:
    """Return per rank the line that counts for each step.

    A rank that died when it had given its share said nothing of that step; the plan does. Whether
    the share was that one, the losses of the others show.
    """
    there = present(lines)
    found = [
        {step: line for step, line in of.items() if rank in there[step]}
        for rank, of in enumerate(lines)
    ]
    for fault in faults:
        if fault.rank in there.get(fault.step, ()) and fault.step in planned[fault.rank]:
            found[fault.rank].setdefault(fault.step, planned[fault.rank][fault.step])
    return found


def check_present(run: list[Committed]) -> list[str]:
    """All that took part in a step say the same of which did."""
    found, there = [], present(run)
    for rank, of in enumerate(run):
        for step, line in of.items():
            if {*line["with"]} != there[step]:
                others = f"others {sorted(there[step])}"
                found.append(f"step {step}: rank {rank} trained with {line['with']}, {others}")
    return found


def check_spans(spans: Sequence[Span], faults: Sequence[Any]) -> list[str]:
    """A rank is away after a fault of its own only, from that step or the next one on."""
    left, found = list(faults), []
    for rank, first, back in spans:
        why = [f for f in left if f.rank == rank and f.step in (first - 1, first)]
        if why:
            left.remove(why[0])
        else:
            found.append(f"rank {rank} was away in steps {first} to {back - 1} without a fault")
    return found


def left_out(run: list[Committed], all_there: list[Committed], steps: int) -> tuple[int, list[str]]:
    """Return how many samples no rank trained with, and what is wrong: samples of other steps."""
    missing, found = 0, []
    for step in range(steps):
        want = Counter(i for of in all_there for i in of.get(step, {}).get("ids", []))
        have = Counter(i for of in run for i in of.get(step, {}).get("ids", []))
        missing += (want - have).total()
        if extra := (have - want).total():
            found.append(f"step {step}: {extra} samples of other steps or twice")
    return missing, found


def judge(
    run: Path, planned: Path, all_there: Path, ranks: int, steps: int, faults: Sequence[Any]
) -> tuple[Verdict, int]:
    """Ask all oracles; also return how many samples were left out."""
    want, spans = newest(planned, ranks), absences(run, ranks, steps)
    have = committed(newest(run, ranks), want, faults)
    missing, others = left_out(have, newest(all_there, ranks), steps)
    samples = oracle.check_samples(have, want, steps) + others
    verdict = Verdict(
        samples + check_present(have) + check_spans(spans, faults),
        oracle.check_losses(have, want, steps),
        oracle.check_state(run, planned, ranks),
    )
    return verdict, missing


def progress(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """Return the first line of each step, whichever rank did it: what the job has come to."""
    first: dict[int, dict[str, Any]] = {}
    every = (line for rank in range(ranks) for line in lines_of(folder, rank))
    for line in sorted(every, key=lambda line: line["t"]):
        first.setdefault(line["step"], line)
    return list(first.values())


def costs(folder: Path, faults: Sequence[Any], ranks: int) -> list[dict[str, Any]]:
    """Return per fault how long the job made no new step, and how long its rank did not."""
    found, job = [], progress(folder, ranks)
    for number, fault in enumerate(faults):
        mark = folder / f"fired-{number}"
        if not mark.exists():
            continue
        fired = json.loads(mark.read_text())["t"]
        lost = oracle.lost_seconds(job, fired)
        away = oracle.lost_seconds(lines_of(folder, fault.rank), fired)
        cost = {"kind": fault.kind, "moment": fault.moment, "step": fault.step, "lost_s": lost}
        found.append(cost | {"away_s": away, "phases_s": {"others wait": lost or 0.0}})
    return found
