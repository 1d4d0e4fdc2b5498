"""Makes the tables of docs/spec/mutants.md: results from mutants.json, reasons from the two TOML files.

python tools/gen/mutants_page.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "check"))

import mutation_results  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = ROOT / "docs" / "spec" / "mutants.md"
BEGIN, END = "<!-- made by tools/gen/mutants_page.py -->", "<!-- end of what is made -->"
TABLES = {"mutants.toml": ("module", "name"), "source_mutants.toml": ("source", "file")}


def rows() -> dict[str, dict[str, Any]]:
    """Return the rows of both tables by name."""
    found = {}
    for file, (kind, key) in TABLES.items():
        text = (ROOT / "tools" / "check" / file).read_text()
        found |= {row[key]: row for row in tomllib.loads(text)[kind]}
    return found


def extent(result: Mapping[str, Any]) -> str:
    """Return how many of the mutants were tried."""
    if result["tried"] == result["of"]:
        return "all"
    return f"{result['tried']} of {result['of']}, {result['how']}"


def tables() -> str:
    """Return what stands between the marks."""
    results = mutation_results.known()
    head = "| file or module | tests | tried | killed | may survive | day, load |"
    lines, reasons = [head, "|---|---|---|---|---|---|"], []
    for name, row in rows().items():
        tests = ", ".join(f"`{Path(test).name}`" for test in row["tests"])
        survivors = row.get("survivors", {})
        if name not in results:
            lines.append(f"| `{name}` | {tests} | not yet | | | |")
            continue
        got = results[name]
        share = f"{got['killed']} of {got['tried']}, {got['killed'] / max(got['tried'], 1):.0%}"
        when = f"{got['date']}, {got['load'] or 'not noted'}"
        cells = (f"`{name}`", tests, extent(got), share, len(survivors) or "none", when)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        reasons += [(name, text, why) for text, why in survivors.items()]
        reasons += [
            (name, text, "**not explained yet**") for text in got["alive"] if text not in survivors
        ]
    if reasons:
        lines += ["", "| in | survives | why |", "|---|---|---|"]
        for name, text, why in reasons:
            lines.append(f"| `{Path(name).name}` | `{text.replace('|', chr(92) + '|')}` | {why} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with new tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
