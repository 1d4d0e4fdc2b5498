"""Folders of jobs: where traces and meta.json lie."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

from pyft.agent.job import supervisors
from pyft.agent.job.meta_shape import damage
from pyft.errors import TraceError, UsageError

META = "meta.json"
TIMELINE = "timeline.jsonl"
NAME = re.compile(r"(\d{8}-\d{6}-)(\d+)(-place-\d+)?")  # a folder's: when, number, place
_NO_CHANNELS = '\n "channels": []'  # at the left: nothing inside of anything is there


def state_folder() -> Path:
    """Return the folder that holds the job folders."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):  # this user has no home, or the variable is wrong
        raise UsageError(
            f"the folder of jobs cannot be in [{base}]: set HOME or XDG_STATE_HOME to a path that "
            "begins with /, or name a folder by `pyft run --log-dir`"
        )
    return Path(base) / "pyft"


def new_job_name(place: int | None = None) -> str:
    """Return a name that sorts by time and is unique on this machine."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    # Hosts of one job may share the folder, and containers have equal process numbers.
    return name if place is None else f"{name}-place-{place}"


def create(folder: Path, is_new: bool = False) -> Path:
    """Create a job folder for this user only; `is_new`: raise FileExistsError if it is there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=not is_new)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        if is_new and isinstance(error, FileExistsError):
            raise
        reason = error.strerror or str(error)
    if reason:
        raise UsageError(
            f"the folder of the job [{folder}] cannot be used ({reason}): name another by --log-dir"
        )
    return folder


def jobs(state: Path | None = None) -> list[Path]:
    """Return the job folders, oldest first; raise TraceError if it cannot be known which there are."""
    state = state or state_folder()
    try:
        found = list(state.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TraceError(f"[{state}] cannot be read: {error.strerror}") from None
    return sorted(p for p in found if NAME.fullmatch(p.name) and os.path.isdir(p))


def links(state: Path) -> list[Path]:
    """Return the links to job folders that lie elsewhere, oldest first, wherever they lead."""
    return sorted(p for p in state.iterdir() if NAME.fullmatch(p.name) and p.is_symlink())


def is_job(folder: Path) -> bool:
    """Say whether a folder is one of a job that has begun, as far as this user may know."""
    return os.path.isfile(folder / META)


def named(target: str) -> Path | None:
    """Return the folder of a job by its path or its name, None when there is none."""
    if is_job(Path(target)):
        return Path(target)
    folder = state_folder() / target
    return folder if is_job(folder) else None


def write_meta(folder: Path, meta: dict[str, Any], channels: str | None = None) -> None:
    """Replace meta.json in one step, so that a reader never sees half of it.

    `channels`: the items of that list, should they be text already.
    """
    temporary = folder / f".{META}.{os.getpid()}"
    if channels is None:
        text = json.dumps(meta, indent=1)
    else:
        rest = json.dumps(meta | {"channels": []}, indent=1)
        items = f"\n{channels}\n " if channels else ""
        text = rest.replace(_NO_CHANNELS, f"{_NO_CHANNELS[:-1]}{items}]", 1)
    temporary.write_text(text + "\n")
    temporary.replace(folder / META)


def read_meta(folder: Path) -> dict[str, Any]:
    """Return meta.json, or nothing if there is none that can be read."""
    try:
        return load_meta(folder)
    except TraceError:
        return {}


def load_meta(folder: Path) -> dict[str, Any]:
    """Return meta.json; raise TraceError, with what is wrong with it, if it cannot be read."""
    path = folder / META
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise TraceError(f"[{path}] cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"[{path}] is damaged: it is no JSON ({error})") from None
    if why := damage(meta):
        raise TraceError(f"[{path}] is damaged: {why}")
    return meta


def is_live(meta: dict[str, Any]) -> bool:
    """Say whether the job still runs here: its supervisor does, whichever agent it has."""
    return supervisors.is_live(meta)
