"""Which rings `pyft trace TARGET` means: a saved file, a job, or a live process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft.agent.job import job_folder, supervisors
from pyft.agent.job.supervisors import ELSEWHERE
from pyft.errors import TraceError


@dataclass(frozen=True)
class Ring:
    """One log object to read: a saved file, or live memory through the agent's descriptor."""

    title: str
    path: Path
    live: bool = False


def find(target: str | None) -> list[Ring]:
    """Return the rings of a file, folder, job name or process id (default: the latest job)."""
    if target is None:
        if not (latest := _latest()):
            raise TraceError(f"there is no job with a ring in [{job_folder.state_folder()}]")
        return of_job(latest)
    path = Path(target)
    if os.path.isfile(path):
        return [Ring(path.name, path)]
    if folder := job_folder.named(target):
        return of_job(folder)
    if target.isdecimal():
        return of_process(int(target))
    raise TraceError(f"[{target}] is no trace file, no job and no process id")


def folder_of(target: str | None) -> Path | None:
    """Return the folder of the job that `find` takes its rings from, None of a file."""
    if target is None:
        return _latest()
    if os.path.isfile(target):
        return None
    if folder := job_folder.named(target):
        return folder
    found = _of_pid(int(target)) if target.isdecimal() else None
    return found[0] if found else None


def _latest() -> Path | None:
    """Return the latest job that has a ring: one with --direct has none."""
    jobs = [folder for folder in job_folder.jobs() if has_rings(job_folder.read_meta(folder))]
    return jobs[-1] if jobs else None


def _of_pid(pid: int) -> tuple[Path, set[str] | None] | None:
    """Return the job of a process, and the names of its rings; of the agent None: all."""
    for folder in reversed(job_folder.jobs()):
        meta = job_folder.read_meta(folder)
        if meta.get("agent_pid") == pid:
            return folder, None
        entries = [*meta.get("live", []), *meta.get("channels", [])]
        mine = {e.get("name") for e in entries if pid in (e.get("pid"), e.get("server_pid"))}
        if mine:
            return folder, mine
    return None


def has_rings(meta: dict[str, Any]) -> bool:
    """Say whether any client of the job has attached."""
    return bool(meta.get("channels") or meta.get("live"))


def of_job(folder: Path) -> list[Ring]:
    """Return the rings of a job, saved and live ones."""
    meta = job_folder.load_meta(folder)
    rings = []
    for entry in meta.get("channels", []):
        if entry.get("file"):
            path = folder / Path(entry["file"]).name
            rings.append(Ring(path.stem, path))
    if job_folder.is_live(meta):
        rings += [live_ring(meta, entry) for entry in meta.get("live", [])]
    if rings:
        return rings
    if meta.get("direct"):
        raise TraceError(f"the job [{folder.name}] ran with --direct, which has no ring")
    if supervisors.is_elsewhere(meta):
        raise TraceError(f"the job [{folder.name}] {ELSEWHERE}")
    if meta.get("state") == "running" and not job_folder.is_live(meta):
        raise TraceError(
            f"launcher and agent of the job [{folder.name}] died before they could save"
        )
    raise TraceError(f"no process of the job [{folder.name}] has used a GPU")


def of_process(pid: int) -> list[Ring]:
    """Return the rings of the job in which `pid` is the agent, a client or a server."""
    if not (found := _of_pid(pid)):
        raise TraceError(f"the process [{pid}] belongs to no job in [{job_folder.state_folder()}]")
    folder, names = found
    return [ring for ring in of_job(folder) if names is None or ring.title in names]


def live_ring(meta: dict[str, Any], entry: dict[str, Any]) -> Ring:
    """Return the agent's descriptor of a live log object."""
    return Ring(entry["name"], live_descriptor(meta, entry, "log"), live=True)


def live_descriptor(meta: dict[str, Any], entry: dict[str, Any], part: str) -> Path:
    """Return the path of a memory object of a live channel: the same user may open it.

    The object has the name of the attach, at which the rank may not have been known.
    """
    path = Path(f"/proc/{meta['agent_pid']}/fd/{entry[f'{part}_fd']}")
    try:
        memory = os.readlink(path)
    except OSError as error:
        raise TraceError(f"[{path}] cannot be opened: {error.strerror}") from None
    name = entry.get("memory", entry["name"])  # older versions had no other one
    if memory.removesuffix(" (deleted)") != f"/memfd:pyft-{part}-{name}":
        raise TraceError(f"[{path}] is no longer the {part} of [{entry['name']}]: try again")
    return path
