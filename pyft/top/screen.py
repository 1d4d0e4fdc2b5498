"""The terminal page: a head, a table of ranks, the last faults, and a line for questions."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pyft.recovery.report import number_of_faults, span
from pyft.report.chart import clock
from pyft.top.dialog import Dialog
from pyft.top.look import Row, View
from pyft.top.rates import spread

MOST_FAULTS = 8
TAKEN = {0: "-", 1: "every cut"}  # by the cuts from snapshot to snapshot
SILENT_S = 5.0  # a heartbeat older than this is shown in red
HELP = "r replace a rank   d drain a GPU   s add a spare   i inject a fault   q quit"


def page(view: View, dialog: Dialog) -> RenderableType:
    """Return all that is shown."""
    parts: list[RenderableType] = [_head(view), _ranks(view), _faults(view)]
    question = Text(dialog.question, style="bold yellow") if dialog.question else Text(HELP, "dim")
    return Group(*parts, Text(dialog.answer, style=dialog.style), question)


def _head(view: View) -> RenderableType:
    found = view.recovery
    spares = int(view.meta.get("spares") or 0)
    left = int(view.meta.get("spares_left", spares))
    protected = sum(row.protected for row in view.rows)
    rates = spread(row.pace.rate for row in view.rows if row.pace.steps)
    first = Text.assemble(
        (f"job {view.meta.get('job', '?')}", "bold"),
        f"  {view.state} {clock(round(view.seconds))}  {view.meta.get('gpus', '?')}",
        f" and {spares} spare{'s' * (spares != 1)}, {left} left" if spares or left else "",
    )
    share = f"{protected} of {len(view.rows)}"
    second = Text.assemble(
        ("protected ", "dim"),
        (share, "green" if protected == len(view.rows) else "bold red"),
        (" ranks   steps/s ", "dim"),
        rates,
        ("   recovered ", "dim"),
        f"{found.get('recovered', 0)} of {number_of_faults(found)} faults",
        ("   at work ", "dim"),
        f"{found.get('goodput', 1.0):.2%}",
    )
    command = Text(
        " ".join(map(str, view.meta.get("command", []))), style="dim", overflow="ellipsis"
    )
    command.no_wrap = True
    return Panel(Group(first, second, command), title="pyft top", title_align="left")


def _ranks(view: View) -> RenderableType:
    table = Table(expand=True, box=None, header_style="dim")
    for name in ("rank", "GPU", "pid", "state", "steps", "steps/s", "snapshot of", "taken", "lag"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    table.add_column("protection", ratio=1, overflow="fold")
    for row in view.rows:
        table.add_row(*_rank(row))
    if not view.rows:
        why = "--direct: no servers" if view.meta.get("direct") else "no rank uses a GPU yet"
        return Text(f"  {why}", style="dim")
    return table


def _rank(row: Row) -> tuple[RenderableType, ...]:
    well = row.status == "serving" and row.heartbeat_age < SILENT_S
    gpu = row.pace.gpu if row.pace.gpu >= 0 else row.device
    taken = TAKEN.get(row.pace.interval, f"every {row.pace.interval} cuts")
    cut = f"cut {row.pace.snapshot}" if row.pace.snapshot else "-"
    return (
        *(str(row.rank), str(gpu), str(row.pid)),
        Text(row.status, style="green" if well else "bold red"),
        *(str(row.pace.steps), f"{row.pace.rate:.2f}", cut, taken, f"{row.lag} B"),
        Text(
            row.lacks or row.protection, style="bold red" if row.lacks or not row.protected else ""
        ),
    )


def _faults(view: View) -> RenderableType:
    faults = view.recovery.get("faults", [])
    if not faults:
        return Text("\n  no faults so far\n", style="dim")
    table = Table(expand=True, box=None, header_style="dim", title=None)
    for name in ("at", "rank", "fault", "GPU", "stood still"):
        table.add_column(name, justify="right" if name != "fault" else "left", no_wrap=True)
    table.add_column("outcome", ratio=1)
    for one in faults[-MOST_FAULTS:]:
        ended = one.get("outcome", "?")
        moved = one.get("gpu_to", -1) not in (-1, one.get("gpu_from"))
        gpu = f"{one['gpu_from']} > {one['gpu_to']}" if moved else str(one.get("gpu_from"))
        style = {"recovered": "green", "under way": "yellow"}.get(ended, "bold red")
        verdict = f", {one['verdict']}" if one.get("verdict") else ""
        table.add_row(
            *(f"{one.get('noticed', 0.0):.1f} s", str(one.get("rank")), str(one.get("fault")), gpu),
            span(one["total_ms"] / 1e3) if one.get("ended") else "...",
            Text(f"{ended}{verdict}", style=style),
        )
    return Group(Text(""), table, Text(""))
