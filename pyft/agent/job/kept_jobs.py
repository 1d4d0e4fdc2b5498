"""Which finished jobs are kept: the last ones of each kind, so that none pushes out what is of more use.

A job with faults is looked at again, for its report. A typing error is not.
"""

from __future__ import annotations

import enum
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyft import config
from pyft.agent.job import job_folder, supervisors
from pyft.errors import PyftError

BEGINS_S = 600.0  # a folder without meta.json belongs to a job that begins, unless it is older


class Kind(enum.IntEnum):
    """What a job has left; those of the first kind go first when all together are too large."""

    UNUSED = 0  # no process has used a GPU
    PLAIN = 1
    FAULTY = 2


def kind_of(meta: Mapping[str, Any]) -> Kind:
    """Return the kind of a finished job."""
    recovery = meta.get("recovery") or {}
    if recovery.get("faults") or recovery.get("earlier"):
        return Kind.FAULTY
    # With --direct pyft sees no client.
    direct = meta.get("direct") and meta.get("state") != "not started"
    return Kind.PLAIN if meta.get("channels") or meta.get("live") or direct else Kind.UNUSED


def rule() -> str:
    """Return what is kept, in a sentence for users."""
    return (
        f"the last {config.get_int('PYFT_KEEP_JOBS')} jobs are kept of each kind: with faults, "
        f"without, and those that used no GPU; {config.get_int('PYFT_KEEP_GB')} GB at most"
    )


def remove_old(own: Path) -> None:
    """Remove what is too much beside this job, which has ended and stays."""
    with suppress(OSError, PyftError):  # the command has run: its exit code counts
        state = job_folder.state_folder().resolve()
        if own.parent == state:
            _remove_beside(own)
        for link in superfluous_links(state, own, config.get_int("PYFT_KEEP_JOBS")):
            link.unlink()


def _remove_beside(own: Path) -> None:
    folders = [folder for folder in job_folder.jobs(own.parent) if not folder.is_symlink()]
    sizes = {folder: _size(folder) for folder in folders}
    keep, most = config.get_int("PYFT_KEEP_JOBS"), config.get_int("PYFT_KEEP_GB") << 30
    if len(sizes) <= keep and sum(sizes.values()) <= most:
        return
    for folder in superfluous(sizes, own, keep, most):
        shutil.rmtree(folder, ignore_errors=True)


def superfluous(sizes: Mapping[Path, int], own: Path, keep: int, most: int) -> list[Path]:
    """Return which of these folders, the oldest first, are to go: too many, or too large."""
    mine: dict[Kind, list[Path]] = {kind: [] for kind in Kind}
    for folder in sizes:
        meta = job_folder.read_meta(folder)
        runs = job_folder.is_live(meta) or supervisors.is_elsewhere(meta)
        if folder == own or not (runs or _begins(folder)):
            damaged = not meta and (folder / job_folder.META).exists()
            mine[Kind.PLAIN if damaged else kind_of(meta)].append(folder)
    many = {kind: max(0, len(folders) - max(0, keep)) for kind, folders in mine.items()}
    gone = [folder for kind, folders in mine.items() for folder in folders[: many[kind]]]
    left = [folder for kind, folders in mine.items() for folder in folders[many[kind] :]]
    room = sum(sizes[folder] for folder in left)
    for folder in left:
        if room <= most:
            break
        gone.append(folder)
        room -= sizes[folder] if folder != own else 0
    return [folder for folder in gone if folder != own]


def superfluous_links(state: Path, own: Path, keep: int) -> list[Path]:
    """Return which links to folders of --log-dir are to go; the folders stay.

    One that leads nowhere may be of another host. A job that runs renews its link every hour.
    """
    links = [link for link in job_folder.links(state) if os.readlink(link) != str(own)]
    gone, ended = [], []
    for link in links:
        meta = job_folder.read_meta(link)
        if not meta and time.time() - link.lstat().st_mtime > supervisors.SILENT_S:
            gone.append(link)
        elif meta and not (job_folder.is_live(meta) or supervisors.is_elsewhere(meta)):
            ended.append(link)
    return gone + ended[: max(0, len(ended) - max(0, keep))]


def _begins(folder: Path) -> bool:
    with suppress(OSError):
        young = time.time() - folder.stat().st_mtime < BEGINS_S
        return young and not (folder / job_folder.META).exists()
    return False


def _size(folder: Path) -> int:
    """Return what a folder's own files take on disk: saved traces have holes."""
    total = 0
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                total += path.lstat().st_blocks * 512
    return total
