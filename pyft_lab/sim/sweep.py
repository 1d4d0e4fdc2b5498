"""`pyft lab simulate`: goodput against scale, for all mechanisms, with bands and assumptions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from pyft_lab.sim import constants, simulate
from pyft_lab.sim.cluster import Cluster

SCALES = (1024, 4096, 16384, 32768, 65536, 100_000)


@dataclass(frozen=True)
class Point:
    """One mechanism at one scale."""

    gpus: int
    mechanism: str
    mtbf_h: float
    spares: int
    interval_s: float
    disk_interval_s: float
    summary: simulate.Summary


def points_of(
    cluster: Cluster, known: dict[str, constants.Constants], hours: float, trials: int, seed: int
) -> list[Point]:
    """Simulate all mechanisms at one scale: with their values, and with drawn ones for the band."""
    step, disk = constants.step_s(), known["restart"]
    chosen = {name: simulate.configure(cluster, c, disk, step) for name, c in known.items()}
    fixed = {name: np.tile(np.array(m.numbers()), (trials, 1)) for name, m in chosen.items()}
    bands = {name: simulate.drawn(m, known[name], disk, trials, seed) for name, m in chosen.items()}
    found = simulate.run(cluster, fixed, hours, seed)
    spread = simulate.run(cluster, bands, hours, seed)
    return [
        Point(
            cluster.gpus, name, cluster.mtbf_h, cluster.spares, m.interval * 3600,
            m.disk_interval * 3600 if m.copies else 0.0,
            simulate.summarise(found[name], spread[name], hours),
        )
        for name, m in chosen.items()
    ]  # fmt: skip


def sweep(
    scales: Sequence[int], trace: str, days: float, trials: int, seed: int, weibull: float = 1.0
) -> list[Point]:
    """Simulate all mechanisms at all scales."""
    rate, _ = constants.rate_of(trace)
    found = []
    for gpus in scales:
        cluster = Cluster(gpus, rate, weibull=weibull)
        cluster = replace(cluster, spares=simulate.enough_spares(cluster))
        known = constants.mechanisms()
        found += points_of(cluster, known, days * 24, trials, seed)
    return found


def table_of(points: list[Point]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in (
        "GPUs", "mechanism", "goodput", "+- 95 %", "band 5-95 %", "interval s", "disk s",
        "P(state lost)", "lost %", "recovery %", "stall %", "overhead %", "waiting %",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "mechanism" else "right")
    last = 0
    for p in points:
        s = p.summary
        shares = (s.lost, s.recovering, s.stall, s.overhead, s.waiting)
        memory = f"{s.p_state_lost:.3f}" if p.disk_interval_s else "-"
        table.add_row(
            f"{p.gpus:,}" if p.gpus != last else "", p.mechanism, f"{s.goodput:.4f}",
            f"{s.goodput_error:.4f}", f"{s.low:.3f} .. {s.high:.3f}", f"{p.interval_s:.0f}",
            f"{p.disk_interval_s:.0f}" if p.disk_interval_s else "-",
            memory, *(f"{100 * share:.2f}" for share in shares),
        )  # fmt: skip
        last = p.gpus
    return table


def assumptions(trace: str, cluster: Cluster) -> list[str]:
    """Return a line per constant: value, bounds, provenance."""
    rate, source = constants.rate_of(trace)
    lines = [
        f"faults: {rate:g} per 1000 node-days ({source})",
        f"assumed: {cluster.node_share:.0%} of faults take a node, {cluster.rack_share:.0%} a rack of "
        f"{cluster.nodes_per_rack}; repair lognormal, median {cluster.repair_median_h:g} h, sigma "
        f"{cluster.repair_sigma:g}; Weibull shape {cluster.weibull:g}; spares for 99 % and two racks",
        f"step: {constants.step_s():g} s; intervals are the best ones for each scale",
    ]
    for name, c in constants.mechanisms().items():
        for span, where in c.provenance.items():
            value, low, high = getattr(c, span)
            lines.append(f"{name}.{span} = {value:g} ({low:g} to {high:g}): {where}")
    return lines


def report(points: list[Point], trace: str, weibull: float, path: Path | None) -> None:
    """Print the table and what it rests on; write both as JSON if asked to."""
    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    console.print(table_of(points))
    trials = points[-1].summary.trials
    console.print(
        f"+- is Student's t over {trials} runs. What happens in less than {300 / trials:.2g} % of runs "
        "may be in none of them, and is not in it then."
    )
    lines = assumptions(trace, Cluster(points[-1].gpus, 1.0, weibull=weibull))
    console.print("\nWhat this rests on:")
    for line in lines:
        console.print(f"  {line}", markup=False)
    if path:
        data = {"points": [asdict(p) for p in points], "assumptions": lines}
        path.write_text(json.dumps(data, indent=1) + "\n")
