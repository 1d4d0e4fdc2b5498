"""Results of a matrix: a table, and what comparing them says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from rich.table import Table

from pyft_lab.matrix.runner import Result
from pyft_lab.matrix.spec import BATCH
from pyft_lab.statistics import Ratio, ratio_of_pairs

HEADINGS = ("run", "faults", "result", "attempts", "step ms", "lost s", "replayed", "load")


def row_of(result: Result) -> tuple[str, ...]:
    """Return a result's cells of the table."""
    data, faults = result.data, result.cell.faults
    places = ", ".join(f"rank {f.rank}, step {f.step}, {f.moment}" for f in faults) or "-"
    if not data["claimed"]:
        return (result.cell.name, places, data["status"], *["-"] * 5)
    return (
        result.cell.name,
        places,
        in_short(result),
        str(data["attempts"]),
        f"{1e3 * data['step_s']:.1f}",
        ", ".join(f"{s:.2f}" for s in lost_of(result)) or "-",
        f"{data['replayed']:.0f}",
        f"{data['load1']:.1f}",
    )


def in_short(result: Result) -> str:
    """Return the verdict, and what was done about faults of storage."""
    if not result.data["good"]:
        return first_problem(result.data)
    told = [f["answer"] for f in result.data["faults"] if "answer" in f]
    if left_out := result.data.get("left_out"):
        told.append(f"{left_out} samples left out, of ranks that were away")
    return "; ".join(["good", *told])


def lost_of(result: Result) -> list[float]:
    """Return the seconds that each fault of a good run has cost."""
    if not (result.data["claimed"] and result.data["good"]):
        return []
    return [f["lost_s"] for f in result.data["faults"] if f["lost_s"] is not None]


def first_problem(data: dict[str, Any]) -> str:
    """Return the first thing that an oracle has found."""
    found = [text for texts in data["oracle"].values() for text in texts]
    return data["status"] if not found else f"{data['status']}; {found[0]}"


def last_words(results: list[Result]) -> list[str]:
    """Return what the processes of runs that did not end in order said last."""
    return [
        f"{result.cell.name}, {name}: {line}"
        for result in results
        for name, line in result.data.get("said", {}).items()
    ]


def table_of(results: list[Result]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading)
    for result in results:
        table.add_row(*row_of(result))
    return table


@dataclass(frozen=True)
class Comparison:
    """What a mechanism's faults cost by those of `base`, and its steps by those of the reference.

    `goodput` is that of whole runs with faults, by that of `base`: samples that count per second.
    """

    mechanism: str
    base: str
    cost: Ratio | None
    overhead: Ratio | None
    goodput: Ratio | None


def steady_seconds(result: Result) -> float:
    """Return how long a run would have taken without what its faults cost."""
    return float(result.data["wall_s"] - sum(lost_of(result)))


def trained_share(result: Result) -> float:
    """Return the share of its samples that a run has trained with: ranks may have been away."""
    return 1 - result.data.get("left_out", 0) / (BATCH * result.cell.steps)


Pairs = dict[str, dict]  # by mechanism, then by block: the same faults, neighbours in time


def pairs_of(results: list[Result]) -> tuple[Pairs, Pairs, Pairs]:
    """Return cost per fault, steady time by the reference's, and time of whole runs.

    Steady times are lists by reference, the others values by block.
    """
    steady = {r.cell: r.data["wall_s"] for r in results if r.cell == r.cell.reference}
    costs: Pairs = defaultdict(dict)
    overheads: Pairs = defaultdict(dict)
    walls: Pairs = defaultdict(dict)
    for result in results:
        cell, lost = result.cell, lost_of(result)
        if cell == cell.reference or not (result.data["claimed"] and result.data["good"]):
            continue
        name = cell.mechanism_name
        block = replace(cell, mechanism="")  # all but that is the same in a pair
        if lost and (cost := sum(lost) / len(lost)) > 0:
            costs[name][block] = cost
        if lost and result.data["wall_s"] > 0:
            walls[name][block] = result.data["wall_s"] / trained_share(result)
        if (plain := steady.get(cell.reference, 0)) > 0 and steady_seconds(result) > 0:
            ratio = steady_seconds(result) / plain
            overheads[name].setdefault(cell.reference, []).append(ratio)
    return costs, overheads, walls


def against(of: dict, to: dict) -> Ratio | None:
    """Return the ratio over the blocks that both have; of one there is no interval."""
    both = [(value, to[block]) for block, value in of.items() if block in to]
    return ratio_of_pairs(*zip(*both, strict=True)) if len(both) > 1 else None


def labels(results: list[Result]) -> dict[tuple[str, str], str]:
    """Return what to call a mechanism of a substrate: with its substrate, if there are several."""
    pairs = {(r.cell.substrate, r.cell.mechanism_name) for r in results}
    several = len({substrate for substrate, _ in pairs}) > 1
    return {(of, name): f"{name} ({of})" if several else name for of, name in pairs}


def compare(results: list[Result]) -> list[Comparison]:
    """Compare over pairs, those of each substrate apart: the same faults, and neighbours in time."""
    by: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by[result.cell.substrate].append(result)
    called = labels(results)
    return [
        replace(one, mechanism=called[substrate, one.mechanism])
        for substrate, of in sorted(by.items())
        for one in compare_alike(of)
    ]


def compare_alike(results: list[Result]) -> list[Comparison]:
    """Compare results of one substrate."""
    costs, overheads, walls = pairs_of(results)
    base = "blocking" if "blocking" in costs else "none"
    found = []
    for name in sorted({*costs, *overheads}):
        other = name != base
        cost = against(costs[name], costs[base]) if other else None
        goodput = against(walls[base], walls[name]) if other else None
        # Runs that share a reference share its luck: together they are one pair.
        pairs = [geometric_mean(of) for of in overheads[name].values()]
        overhead = ratio_of_pairs(pairs, [1.0] * len(pairs)) if len(pairs) > 1 else None
        found.append(Comparison(name, base, cost, overhead, goodput))
    return found


def sentences(results: list[Result]) -> list[str]:
    """Return what the comparison says, one sentence each."""
    found = []
    for c in compare(results):
        if c.cost:
            of_base = f"{in_words(c.cost)} of what one costs {c.base}"
            found.append(f"a fault costs {c.mechanism} {of_base}")
        if c.goodput:
            found.append(f"goodput with {c.mechanism} is {in_words(c.goodput)} of {c.base}'s")
        if c.overhead:
            found.append(f"steps of {c.mechanism} take {in_words(c.overhead)} of the reference's")
    return found


def in_words(r: Ratio, *, with_method: bool = True) -> str:
    middle, low, high = (f"{100 * value:.3g}" for value in (r.ratio, r.low, r.high))
    method = f", {r.method}" if with_method else ""
    return f"{middle} % ({low} to {high} %, {r.pairs} pairs{method})"
