"""Files to which a place appends, with a copy of its image: those that a spare host has not travel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyft.hosts.wire import checked
from pyft.hosts.wire.link import LinkError
from pyft.images import appended, travelling
from pyft.images.appended import MOST_LOGS, Log


def wanted(record: dict[str, Any]) -> list[int]:
    """Return the indexes of those that this host has not; raise LinkError if it cannot have them."""
    logs = appended.from_notes(record.get("logs", []))
    which = [index for index, log in enumerate(logs) if log.lacks()]
    missing = [logs[index] for index in which]
    for why in (travelling.too_large(missing), *map(travelling.why_not_here, missing)):
        if why:
            raise LinkError(why)
    return which


def asked(said: dict[str, Any], record: dict[str, Any]) -> dict[str, Log]:
    """Return what another host has not, by their names among the files; raise LinkError."""
    which = checked.numbers(said, "logs", MOST_LOGS)
    logs = appended.from_notes(record.get("logs", []))
    if any(index >= len(logs) for index in which):
        raise LinkError("it asks for what the image has not")
    return travelling.copies(logs, which)


def check(logs: Mapping[str, Log], folder: Path) -> None:
    """Raise LinkError if one has not come as it was when the image was made."""
    for name, log in logs.items():
        if not log.is_copied(folder / name):
            raise LinkError(f"[{log.path}] was altered while it was sent")
