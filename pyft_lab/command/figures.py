"""Figures of a matrix, as SVG and PNG. Equal results make equal files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from pyft_lab.command.report import Comparison, labels, lost_of  # noqa: E402
from pyft_lab.matrix.runner import Result  # noqa: E402
from pyft_lab.sim.sweep import Point  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "pyft lab"
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: smaller, and can be searched


def write(figure: Figure, path: Path) -> Path:
    """Write both forms; return the SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    figure.savefig(path.with_suffix(".png"), dpi=120, bbox_inches="tight")
    plt.close(figure)
    return path


def mean_phases(results: list[Result]) -> dict[str, dict[str, float]]:
    """Return for each mechanism the seconds of a fault by what they went to.

    Means over all of its faults: one that has not had a phase has spent no time in it.
    """
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    count: dict[str, int] = defaultdict(int)
    called = labels(results)
    for result in results:
        for fault in result.data.get("faults", []) if lost_of(result) else []:
            row = called[result.cell.substrate, result.cell.mechanism_name]
            count[row] += 1
            for name, seconds in fault["phases_s"].items():
                spent[row][name] += seconds
    return {
        row: {name: seconds / count[row] for name, seconds in parts.items()}
        for row, parts in spent.items()
    }


def phases(results: list[Result], folder: Path) -> Path:
    """Draw what a fault costs each mechanism, stacked by what the time went to."""
    spent = mean_phases(results)
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(spent) + 1.2))
    names = list(dict.fromkeys(name for parts in spent.values() for name in parts))
    rows = sorted(spent, reverse=True)
    left = [0.0] * len(rows)
    for number, name in enumerate(names):
        width = [spent[row].get(name, 0.0) for row in rows]
        color = plt.get_cmap("tab20")(number % 20)
        axes.barh(rows, width, left=left, label=name, color=color)
        left = [one + other for one, other in zip(left, width, strict=True)]
    axes.set_xlabel("seconds that a fault costs (mean)")
    if names:
        axes.legend(fontsize=7, ncols=2)
    return write(figure, folder / "lost-time.svg")


def ratios(compared: list[Comparison], folder: Path) -> Path:
    """Draw both ratios of each mechanism with their intervals."""
    figure, pair = plt.subplots(1, 2, figsize=(9, 0.4 * len(compared) + 1.4), sharey=True)
    base = " or ".join(dict.fromkeys(one.base for one in compared))
    titles = (f"cost of a fault / that of {base}", "time of the steps / reference's")
    for axes, title, field in zip(pair, titles, ("cost", "overhead"), strict=True):
        for row, one in enumerate(compared):
            ratio = getattr(one, field)
            if ratio is not None:
                spread = [[ratio.ratio - ratio.low], [ratio.high - ratio.ratio]]
                axes.errorbar([ratio.ratio], [row], xerr=spread, fmt="o", capsize=3, color="C0")
        axes.axvline(1, color="gray", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel(title)
        axes.set_yticks(range(len(compared)), [one.mechanism for one in compared])
    return write(figure, folder / "ratios.svg")


def goodput(points: list[Point], path: Path) -> Path:
    """Draw goodput against scale, with the bands that the constants' bounds give."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, name in enumerate(dict.fromkeys(point.mechanism for point in points)):
        of = [point for point in points if point.mechanism == name]
        gpus, color = [point.gpus for point in of], f"C{number}"
        axes.plot(gpus, [p.summary.goodput for p in of], marker="o", label=name, color=color)
        lows, highs = [p.summary.low for p in of], [p.summary.high for p in of]
        axes.fill_between(gpus, lows, highs, alpha=0.12, color=color)
    axes.set_xscale("log", base=2)
    scales = list(dict.fromkeys(point.gpus for point in points))
    axes.set_xticks(scales, [f"{gpus:,}" for gpus in scales], fontsize=7)
    axes.set_ylim(0, 1)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("goodput; bands: 5 to 95 % of runs with drawn constants")
    axes.legend(fontsize=8)
    return write(figure, path.with_suffix(".svg"))
