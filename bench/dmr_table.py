"""The table and the plot of a campaign of silent faults (dmr_campaign.py)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

OUTCOMES = ("masked", "benign", "harmful", "crash", "hang", "not counted")
Z = 1.959964  # 95 %
MODES = ("checkpoint", "full", "audit")  # of --dmr


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the interval in which a share lies at 95 %."""
    if not of:
        return 0.0, 1.0
    share, square = hits / of, Z * Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def percent(hits: int, of: int) -> str:
    """Return a share with its interval."""
    if not of:
        return "–"
    low, high = wilson(hits, of)
    return f"{hits}/{of} = {100 * hits / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def phase(row: dict[str, Any], window: int) -> str:
    """Return what was hit: a product, or another kernel, of which half of the step."""
    what = "products" if row.get("kernel") == "cublas" else "kernels"
    return f"{what}, {'first' if row['at'] < window / 2 else 'second'} half of the step"


def markdown(found: dict[str, Any]) -> str:
    """Return outcomes by kind of fault, and what each check sees of the silent ones."""
    rows, window = found["trials"], found["launches"]["window"]
    lines = [f"{len(rows)} trials. Options: {found['options']}.", ""]
    lines += [f"| fault | {' | '.join(OUTCOMES)} | all |", f"|{'---|' * (len(OUTCOMES) + 2)}"]
    kinds = sorted({kind(row) for row in rows})
    for one in [*kinds, "all"]:
        counts = Counter(row["outcome"] for row in rows if one in ("all", kind(row)))
        cells = " | ".join(str(counts[name]) for name in OUTCOMES)
        lines.append(f"| {one} | {cells} | {sum(counts.values())} |")
    columns = " | ".join(f"`--dmr {mode}`" for mode in MODES)
    lines += [
        "",
        f"| silent, and bits differ | none | replica comparison | {columns} |",
    ]
    lines.append("|---|---|---|" + "---|" * len(MODES))
    wrong = [row for row in rows if row["outcome"] in ("benign", "harmful")]
    groups = {"all": wrong, "harmful": [row for row in wrong if row["outcome"] == "harmful"]}
    for row in wrong:
        groups.setdefault(phase(row, window), []).append(row)
    for name, group in groups.items():
        cells = (
            f"0/{len(group)}",
            percent(sum(row["replica"] for row in group), len(group)),
            *(seen(group, mode) for mode in MODES),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append("")
    for mode in MODES:
        masked = [row for row in rows if row["outcome"] == "masked" and row.get(mode) is not None]
        false = sum(row[mode] for row in masked)
        lines.append(
            f"* Masked, and seen by `--dmr {mode}` all the same: {false} of {len(masked)}."
        )
    return "\n".join(lines) + "\n"


def seen(group: list[dict[str, Any]], mode: str) -> str:
    """Return the share of trials that a mode of --dmr sees, of those that had the same fault there."""
    checked = [row for row in group if row.get(mode) is not None]
    return percent(sum(row[mode] for row in checked), len(checked))


def kind(row: dict[str, Any]) -> str:
    """Return the fault without its place."""
    what, *settings = row["fault"].split(",")
    model = [one.removeprefix("model=") for one in settings if one.startswith("model=")]
    return " ".join([what, *model])


COLORS = ("#4a9", "#fb5", "#d44", "#777", "#445", "#ddd")


def plot(found: dict[str, Any]) -> str:
    """Return a bar of outcomes for each kind of fault, as SVG."""
    rows = found["trials"]
    kinds = sorted({kind(row) for row in rows})
    height = 34 * len(kinds) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" '
        'font-family="sans-serif" font-size="13">'
    ]
    for line, one in enumerate(kinds):
        counts = Counter(row["outcome"] for row in rows if kind(row) == one)
        x, y, of = 140.0, 10 + 34 * line, sum(counts.values())
        parts.append(f'<text x="4" y="{y + 17}">{one} ({of})</text>')
        for name, color in zip(OUTCOMES, COLORS, strict=True):
            width = 600 * counts[name] / of
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="24" fill="{color}">'
                f"<title>{name}: {counts[name]}</title></rect>"
            )
            x += width
    for at, (name, color) in enumerate(zip(OUTCOMES, COLORS, strict=True)):
        x, y = 140 + at * 100, height - 30
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 11}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
