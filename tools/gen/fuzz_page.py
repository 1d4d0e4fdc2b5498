"""Makes the table of docs/operate/security.md about `make fuzz` from docs/operate/fuzz.json.

python tools/gen/fuzz_page.py [build/fuzz/agent/counts.json]   # copies that file into the docs first
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "operate" / "fuzz.json"
PAGE = ROOT / "docs" / "operate" / "security.md"
BEGIN, END = "<!-- made by tools/gen/fuzz_page.py -->", "<!-- end of what is made -->"
INPUTS = {
    "memory": "log header, ring, control page",
    "attach": "attach requests",
    "orders": "the orders socket",
    "http": "`--metrics-port`",
    "server": "messages of servers, one after another, and their stores",
    "packet": "one message of a server",
    "sockets": "connections that come to a listener and go, in any order",
}


def table(counts: dict[str, Any]) -> str:
    """Return what stands between the marks."""
    lines = ["| input | of | mutations | that ended an agent | last |", "|---|---|---|---|---|"]
    for name, what in INPUTS.items():
        row = counts[name]
        last = f"{row['date']}, {row['commit']}"
        cells = (f"`{name}`", what, f"{row['mutations']:,}", row["ended"] or "none", last)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with a new table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(json.loads(DATA.read_text()))}\n\n{END}{after}"


def main() -> None:
    if len(sys.argv) > 1:
        shutil.copyfile(sys.argv[1], DATA)
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
