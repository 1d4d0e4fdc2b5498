"""What cells leave on the disk: little of a good one, of bad ones no more than a bound."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pyft_lab.errors import LabError

MB = 1 << 20
KEPT = (
    "cell.json",
    "result.json",
    "report-",
    "job-",
    "launch.json",
    "ranks",
    "final-",
    "fired-",
    "output",
    "dropped",
    "io-",
)  # beginnings of names; judging again and the page need no more
BAD_MB = 2048  # of all cells that are not good, together
FIRST_MB = {"soft": 3072, "cpu": 64}  # that a cell takes while it runs, until one has told more
GROWTH = 2  # a cell may take so many times what the largest one before it took


def size(path: Path) -> int:
    """Return the bytes of the disk that a file or a folder takes."""
    found = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:  # the job is just ending
                continue
    return found


def heavy_parts(folder: Path) -> list[Path]:
    """Return what of a cell nothing reads after it was judged: logs, checkpoints."""
    return [path for path in folder.iterdir() if not path.name.startswith(KEPT)]


def slim(folder: Path) -> None:
    """Remove from a cell what nothing reads any more."""
    for path in heavy_parts(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def bound_bad(folders: Iterable[Path], bound: int = BAD_MB * MB) -> list[str]:
    """Keep logs of the newest bad cells up to the bound; return a sentence per cell without them.

    The sentence is in the cell's file `dropped` as well.
    """
    told, left = [], bound
    for folder in sorted(folders, key=lambda f: f.stat().st_mtime_ns, reverse=True):
        taken = sum(size(path) if path.is_dir() else 0 for path in heavy_parts(folder))
        if taken <= left:
            left -= taken
            continue
        slim(folder)
        more = f"[{taken // MB} MB] of logs and checkpoints of [{folder.name}] are dropped"
        told.append(f"{more}: cells that are not good may keep [{bound // MB} MB] together")
        (folder / "dropped").write_text(told[-1] + "\n")
    return told


def check_free(out: Path, needed: int) -> None:
    """Raise if the disk has less room than a cell takes."""
    free = shutil.disk_usage(out).free
    if free < needed:
        raise LabError(
            f"the disk of [{out}] has [{free // MB} MB] free and the next cell may take "
            f"[{needed // MB} MB]: free some, or take another with --out; cells that are done stay"
        )


def clear_left(cells: Path) -> None:
    """Remove folders of runners that are no more: their cells begin anew."""
    for folder in cells.glob("*.*"):  # KEY.PID
        if not Path("/proc", folder.suffix[1:]).exists():
            shutil.rmtree(folder, ignore_errors=True)
