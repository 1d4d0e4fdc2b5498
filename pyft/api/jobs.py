"""The jobs that run now, and which of them is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyft import config
from pyft.agent.job import job_folder, supervisors
from pyft.agent.job.supervisors import ELSEWHERE
from pyft.errors import TraceError

Found = tuple[Path, dict[str, Any]]  # folder and meta.json


def live_jobs(target: str | None) -> list[Found]:
    """Return folder and meta of the live jobs; TraceError when the named one is not among them."""
    if target and job_folder.is_job(Path(target)):
        folders = [Path(target).resolve()]  # this one, wherever it lies
        target = folders[0].name
    else:
        folders = job_folder.jobs()
    found = [(folder, job_folder.read_meta(folder)) for folder in folders]
    alive = [(folder, meta) for folder, meta in found if job_folder.is_live(meta)]
    if target is None:
        return _where(alive)
    names = {target, os.path.basename(target.rstrip("/"))}
    mine = [
        (folder, meta)
        for folder, meta in alive
        if folder.name in names or str(meta.get("agent_pid")) == target
    ]
    if not mine:
        named = [meta for folder, meta in found if folder.name in names]
        elsewhere = any(supervisors.is_elsewhere(meta) for meta in named)
        raise TraceError(f"[{target}] {ELSEWHERE if elsewhere else 'is no running job'}")
    return _where(mine)


def _where(found: list[Found]) -> list[Found]:
    """Return jobs with the folders themselves: of one with --log-dir a link is listed."""
    return [(folder.resolve() if folder.is_symlink() else folder, meta) for folder, meta in found]


def only(target: str | None, how: str = "by --job") -> Found:
    """Return the job that orders are for: it has servers, and no other one could be meant.

    `how`: in which words one of several can be named.
    """
    alive = live_jobs(target)
    found = [one for one in alive if not one[1].get("direct")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(meta["job"] for _, meta in found or alive)
    if found:
        raise TraceError(f"jobs [{names}] run: say which {how}")
    what = f"[{names}] runs with --direct: it has no server, and takes no orders"
    raise TraceError(what if alive else "no job is running")


def own() -> str | None:
    """Return the folder of the job in which this process runs, None outside of jobs."""
    return config.get_str("PYFT_JOB_FOLDER") or None
