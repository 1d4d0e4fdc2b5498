"""What a matrix leaves behind: tables, figures, and one page that opens without a network."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from pyft_lab.command import figures, report
from pyft_lab.matrix.runner import Result

CELL_COLUMNS = ("key", "substrate", "workload", "mechanism", "ranks", "steps", "interval", "seed",
                "status", "good", "attempts", "step_s", "wall_s", "replayed", "run_s",
                "load1", "left_out")  # fmt: skip
FAULT_COLUMNS = ("key", "mechanism", "kind", "moment", "step", "lost_s", "again", "away_s",
                 "phases_s", "answer")  # fmt: skip


def cell_row(result: Result) -> dict[str, Any]:
    """Return a result by the columns of the table of cells."""
    cell, data = result.cell, result.data
    both = {**vars(cell), **data, "key": result.folder.name,
            "mechanism": cell.mechanism_name}  # fmt: skip
    return {name: both.get(name) for name in CELL_COLUMNS}


def fault_rows(result: Result) -> list[dict[str, Any]]:
    """Return the faults of a result by the columns of the table of faults."""
    more = {"key": result.folder.name, "mechanism": result.cell.mechanism_name}
    faults = result.data.get("faults", [])
    return [{name: {**more, **fault}.get(name) for name in FAULT_COLUMNS} for fault in faults]


def write_tables(results: list[Result], out: Path) -> None:
    """Write results and faults, as CSV and as lines of JSON."""
    out.mkdir(parents=True, exist_ok=True)
    rows = {
        "results": (CELL_COLUMNS, [cell_row(r) for r in results]),
        "faults": (FAULT_COLUMNS, [row for r in results for row in fault_rows(r)]),
    }
    for name, (columns, found) in rows.items():
        with (out / f"{name}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, columns)
            table.writeheader()
            table.writerows(found)
        lines = "".join(json.dumps(row) + "\n" for row in found)
        (out / f"{name}.jsonl").write_text(lines)


def machine() -> list[str]:
    """Return what the results were taken with."""
    versions = [f"{name} {metadata.version(name)}" for name in ("pyft", "torch")]
    return [
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        f"Python {platform.python_version()}, {', '.join(versions)}",
    ]


def loads(results: list[Result]) -> str:
    """Return a sentence about what else the machine did."""
    found = [r.data["load1"] for r in results if r.data["claimed"]]
    if not found:
        return "Nothing was run."
    least, most = min(found), max(found)
    told = f"The load of the machine was {least:.1f} to {most:.1f} at the ends of cells"
    busy = most > 1.5 * (os.cpu_count() or 1)
    return f"{told}. It was busy: times are no figures of it, ratios are." if busy else f"{told}."


def outcomes(results: list[Result]) -> dict[str, dict[str, list[str]]]:
    """Return per mechanism and kind of fault what the oracles said, once each."""
    found: dict[str, dict[str, list[str]]] = {}
    called = report.labels(results)
    for result in results:
        name = called[result.cell.substrate, result.cell.mechanism_name]
        word = "equal" if result.data["good"] else "wrong"
        word = word if result.data["claimed"] else "not claimed"
        for kind in {fault.kind for fault in result.cell.faults}:
            words = found.setdefault(name, {}).setdefault(kind, [])
            words += [word] if word not in words else []
    return found


def write(results: list[Result], out: Path, command: str) -> Path:
    """Write everything into `out`; return the page."""
    write_tables(results, out)
    compared = report.compare(results)
    drawn = [figures.phases(results, out / "figures"), figures.ratios(compared, out / "figures")]
    kinds = sorted({fault.kind for r in results for fault in r.cell.faults})
    bad = [(r.cell.name, r.folder) for r in results if not r.data["good"]]
    text = (resources.files("pyft_lab") / "data" / "page.html").read_text()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    path = out / "report.html"
    page = environment.from_string(text).render(
        command=command, machine=machine(), loads=loads(results), kinds=kinds, bad=bad,
        sentences=report.sentences(results), outcomes=outcomes(results),
        figures=[inline(svg) for svg in drawn], headings=report.HEADINGS,
        rows=[report.row_of(r) for r in results], keys=[r.folder.name for r in results],
    )  # fmt: skip
    path.write_text(page)
    return path


def inline(svg: Path) -> markupsafe.Markup:
    """Return a figure as a part of HTML, which needs neither names of XML nor descriptions."""
    text = svg.read_text()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return markupsafe.Markup(re.sub(r' xmlns(:\w+)?="[^"]*"', "", text))
