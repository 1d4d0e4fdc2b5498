"""Makes docs/figures.md from bench/results/*.json and tools/gen/figures.toml.

`figures.py` writes the page. The TOML file has the order of the tables and the words around them. A
measured value in these words is `{key}`, a row of bench/results/sentences.json.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
SECTIONS = Path(__file__).with_name("figures.toml")
PAGE = ROOT / "docs" / "figures.md"
SENTENCES = RESULTS / "sentences.json"
KEY = re.compile(r"\{([a-z-]+)\}")

Row = dict[str, Any]


def number(value: float) -> str:
    """Return a number with all digits before the point, and four where it has fewer."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def value(row: Row) -> str:
    """Return "median (min to max, n=N) unit", or "min to max unit" where there is no median."""
    if "median" not in row:
        return f"{number(row['min'])} to {number(row['max'])} {row.get('unit', '')}".rstrip()
    text = number(row["median"])
    if "min" in row:
        count = f", n={row['n']}" if "n" in row else ""
        text += f" ({number(row['min'])} to {number(row['max'])}{count})"
    return f"{text} {row.get('unit', '')}".rstrip()


def target(row: Row) -> str:
    """Return the target, and whether it is met or missed on purpose."""
    if "at_most" in row:
        words = f"<= {row['at_most']:g}"
    elif "at_least" in row:
        words = f">= {row['at_least']:g}"
    else:
        return ""
    if not missed(row):
        return words
    why = row.get("missed_on_purpose", "")
    return f"{words}: **missed**: {why}" if why else f"{words}: **missed**"


def missed(row: Row) -> bool:
    """Say whether there is a target that is missed."""
    low, high = row.get("at_least", row["median"]), row.get("at_most", row["median"])
    return not low <= row["median"] <= high


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table without columns that have nothing in any row."""
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [[head[i] for i in used], ["---"] * len(used), *([r[i] for i in used] for r in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def plain(rows: Sequence[Row]) -> list[str]:
    """Return the table of figures of which each stands alone."""
    head = ("figure", "value", "target", "of")
    cells = [(row["name"], value(row), target(row), row.get("note", "")) for row in rows]
    return table(head, cells)


def grid(rows: Sequence[Row]) -> list[str]:
    """Return the table of figures that stand in columns."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    lines = []
    for name, note in dict.fromkeys((row["name"], row.get("note", "")) for row in rows):
        mine = [row for row in rows if (row["name"], row.get("note", "")) == (name, note)]
        cells = {row["column"]: value(row) for row in mine}
        targets = ", ".join(dict.fromkeys(filter(None, map(target, mine))))
        lines.append([name, *(cells.get(column, "") for column in columns), targets, note])
    return table(["figure", *columns, "target", "of"], lines)


def filled(text: str) -> str:
    """Return words with the measured values in place of their keys."""
    rows = {row["key"]: row for row in json.loads(SENTENCES.read_text())["figures"]}
    return KEY.sub(lambda found: value(rows[found[1]]), text)


def section(words: dict[str, str]) -> list[str]:
    """Return heading, table and words of one file of results."""
    found = json.loads((RESULTS / f"{words['results']}.json").read_text())
    rows = found["figures"]
    source = f"`{found['command']}`, commit {found['commit']}, {found['date']}."
    return [
        *("", f"## {words['title']}", ""),
        *words.get("before", "").strip().splitlines(),
        *("", source, f"Machine: {found['machine']}.", ""),
        *(grid(rows) if any("column" in row for row in rows) else plain(rows)),
        *(["", *words["after"].strip().splitlines()] if "after" in words else []),
    ]


def page() -> str:
    """Return docs/figures.md."""
    words = tomllib.loads(SECTIONS.read_text())
    lines = ["# Figures", "", *words["before"].strip().splitlines()]
    for one in words["section"]:
        lines += section(one)
    return filled("\n".join([*lines, "", *words["after"].strip().splitlines()]) + "\n")


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
