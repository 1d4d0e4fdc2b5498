"""`pyft lab verify`: every record is computed again; what does not follow shows its arithmetic."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from pyft_lab.anchors.formulas import FORMULAS
from pyft_lab.anchors.record import Anchor, Check, Status, check, load
from pyft_lab.errors import SpecError


def verify(anchor: Anchor) -> Check:
    """Compute one record again."""
    if anchor.formula not in FORMULAS:
        raise SpecError(f"anchor [{anchor.name}] names no formula: [{anchor.formula}]")
    return check(anchor, FORMULAS[anchor.formula](**anchor.inputs))


def verify_all(prefix: str = "") -> list[Check]:
    """Compute all records again whose names begin with `prefix`."""
    return [verify(anchor) for anchor in load() if anchor.name.startswith(prefix)]


def table_of(checks: list[Check]) -> Table:
    """Return a row per record."""
    table = Table(box=None, pad_edge=False)
    for heading in ("anchor", "published", "ours", "unit", "status", "source"):
        table.add_column(heading, justify="right" if heading in ("published", "ours") else "left")
    for row in checks:
        anchor = row.anchor
        status = anchor.status.value if row.holds else f"WRONG: {row.problem}"
        values = (f"{anchor.published:.6g}", f"{row.computed.value:.6g}")
        table.add_row(anchor.name, *values, anchor.unit, status, anchor.source)
    return table


def print_table(checks: list[Check], verbose: bool) -> None:
    """Print all records, then the arithmetic of those that do not follow (or of all)."""
    # As wide as its longest row where nothing says how wide a terminal is.
    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    console.print(table_of(checks))
    for row in checks:
        if verbose or not row.holds or row.anchor.status is Status.NOT_REPRODUCIBLE:
            console.print(f"\n{row.anchor.name}: {row.anchor.note}", markup=False)
            for step in row.computed.steps:
                console.print(f"  {step}", markup=False)
    notes = sum(row.anchor.transcribed_from == "notes" for row in checks)
    if notes:
        console.print(
            f"\n{notes} records were transcribed from notes about the papers, not from the papers: "
            f"compare those that you publish with them"
        )
    counts = Counter(row.anchor.status.value if row.holds else "wrong" for row in checks)
    console.print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))
