"""`pyft top`: a job that runs, live: ranks, speed, protection, faults; keys give orders."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyft.agent.job import job_folder
from pyft.agent.operators import orders
from pyft.api import jobs
from pyft.errors import UsageError
from pyft.top.dialog import Dialog
from pyft.top.look import look

if TYPE_CHECKING:
    from rich.live import Live


def top(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Its name, folder, or the agent's pid."),
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.1, max=3600.0, help="Seconds between two looks.")
    ] = 1.0,
) -> None:
    """Show a running job on the terminal: ranks, GPUs, step rate, snapshots, faults.

    Keys replace a rank, drain or add a GPU, or inject a fault; each asks before it does so.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("pyft top needs a terminal: `pyft status --json` is for programs")
    from rich.console import Console  # here, since other commands need not wait for it (0.1 s)
    from rich.live import Live

    folder, meta = job_of(target)

    def give(kind: str, **values: Any) -> None:
        orders.give(job_folder.read_meta(folder), kind, **values)

    dialog = Dialog(give)
    with _keys() as source, Live(screen=True, auto_refresh=False, console=Console()) as shown:
        while not dialog.done and _show(folder, dialog, shown):
            for key in _pressed(source, every):
                dialog.press(key)
                _show(folder, dialog, shown)
    if not dialog.done:
        print(f"job {meta['job']} has ended: `pyft report {folder}` shows what has happened")


def job_of(target: str | None) -> jobs.Found:
    """Return the job that is shown."""
    return jobs.only(target, "as in `pyft top JOB`")


def _show(folder: Path, dialog: Dialog, shown: Live) -> bool:
    """Show the job as it is now; say whether it still runs."""
    from pyft.top import screen

    view = look(folder)
    shown.update(screen.page(view, dialog), refresh=True)
    return view.state == "running"


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Have the terminal hand over each key at once, and put it back at the end."""
    source = sys.stdin.fileno()
    before = termios.tcgetattr(source)
    tty.setcbreak(source)
    try:
        yield source
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _pressed(source: int, seconds: float) -> str:
    """Wait for keys, so long; return those that were pressed."""
    ready, _, _ = select.select([source], [], [], seconds)
    if not ready:
        return ""
    found = os.read(source, 64).decode(errors="replace")
    return found or "q"  # the terminal is gone
