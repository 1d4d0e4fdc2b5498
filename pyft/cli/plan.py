"""`pyft plan`: what a redundancy costs and saves, before it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyft.cli.flushed import EVERY_S
from pyft.errors import UsageError
from pyft.flush import manifest, reader
from pyft.flush.cost import Cost, failed_by
from pyft.flush.manifest import DamagedError

CODES = ((1, 0), (2, 1), (3, 1), (5, 1), (3, 2), (6, 2), (10, 2), (9, 3))  # folders, parity
MOST_GB = 1e9
COLUMNS = ("folders", "parity", "disk", "copies", "GB each", "MB/s", "MB memory", "lost")


def plan(
    flushed: Annotated[
        list[Path] | None,
        typer.Option(
            "--flush",
            metavar="DIR",
            help="Folders of a job that is flushed: how large its lines are.",
        ),
    ] = None,
    gigabytes: Annotated[
        float | None,
        typer.Option(min=0.0, max=MOST_GB, help="Or: how large a line is (all processes' memory)."),
    ] = None,
    every: Annotated[
        float, typer.Option("--flush-every", min=1.0, help="Seconds between two lines.")
    ] = EVERY_S,
    mean: Annotated[
        float, typer.Option("--mtbf", min=1.0, help="Hours after which a folder fails, on average.")
    ] = 10000.0,
    shape: Annotated[
        float, typer.Option(min=0.1, max=10.0, help="Weibull's shape of that; 1: exponential.")
    ] = 1.0,
    hours: Annotated[
        float, typer.Option(min=0.0, help="How long lost folders stay lost: then all are replaced.")
    ] = 24.0,
) -> None:
    """Say what a job's lines on disk cost, and how likely they are lost, for several redundancies."""
    line = _line(flushed or [], gigabytes)
    failed = failed_by(hours, mean, shape)
    print(f"line [{line / 1e9:.3f} GB] each [{every:g} s], folders fail after [{mean:g} h]")
    rows = [_row(Cost(line, every, folders, parity), failed) for folders, parity in CODES]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(
        "disk: bytes on disk for each of a line; copies: of copies that survive the same losses. "
        f"lost: how likely a line is within [{hours:g} h]. At most [{every:g} s], two images and one "
        "flush are computed again."
    )


def _row(cost: Cost, failed: float) -> tuple[str, ...]:
    return (
        str(cost.folders),
        str(cost.parity),
        f"{cost.factor:.2f}",
        f"{cost.copies:.0f}",
        f"{cost.each_folder / 1e9:.2f}",
        f"{cost.traffic / 1e6:.2f}",
        f"{cost.memory / 1e6:.0f}",
        f"{cost.loss(failed):.2g}",
    )


def _line(folders: list[Path], gigabytes: float | None) -> int:
    """Return the bytes of a line, measured or as the user says."""
    if bool(folders) == (gigabytes is not None):
        raise UsageError("say how large a line is: --flush DIR of a job, or --gigabytes N")
    if gigabytes is not None:
        return int(gigabytes * 1e9)
    for number in manifest.lines_in(folders):
        try:
            return reader.parts_of(folders, number)[0].bytes
        except DamagedError:
            continue
    raise UsageError(f"[{folders[0]}] has no line that can be read")
