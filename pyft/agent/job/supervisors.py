"""Which process a job's supervisor is: hosts and containers may share the folder of jobs.

Each has a process of the same number. So meta.json says on which boot of a machine it is, in which
PID namespace, and when it began.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyft._native import linux

AGAIN_S = 3600.0  # meta.json of a job that runs is not older
SILENT_S = 86400.0  # a job elsewhere whose meta.json is older has died; clocks of hosts may differ
ELSEWHERE = "runs on another host or in another container, or has died with it: ask there"
_NEAR_TICKS = 1  # two times that were rounded


def identity(pid: int) -> dict[str, Any]:
    """Return what tells a process from all others of its number, as meta.json has it."""
    return _here() | {"supervisor_started": _started(pid)}


def is_live(meta: Mapping[str, Any]) -> bool:
    """Say whether the job's supervisor runs on this machine, in this namespace."""
    pid = meta.get("supervisor_pid")
    if not _says_running(meta) or not isinstance(pid, int) or _is_of_another_place(meta):
        return False
    started, wanted = _started(pid), meta.get("supervisor_started")
    if started is None or not isinstance(wanted, int):  # of an older version
        return started is not None and "boot_id" not in meta and _is_pyft(pid)
    return abs(started - wanted) <= _NEAR_TICKS


def is_elsewhere(meta: Mapping[str, Any]) -> bool:
    """Say whether the job may run on another host or in another container."""
    written = meta.get("written")
    young = isinstance(written, (int, float)) and time.time() - written < SILENT_S
    return _says_running(meta) and young and _is_of_another_place(meta)


def _says_running(meta: Mapping[str, Any]) -> bool:
    return meta.get("state") == "running"


def _is_of_another_place(meta: Mapping[str, Any]) -> bool:
    return any(name in meta and meta[name] != value for name, value in _here().items())


def _here() -> dict[str, Any]:
    boot, namespace = "", 0
    with suppress(OSError):
        boot = linux.boot_id()
    with suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return {"boot_id": boot, "pid_namespace": namespace}


def _started(pid: int) -> int | None:
    """Return how many ticks after the first process of its namespace a process has begun.

    A time namespace, as that of a job that was resumed, moves both alike.
    """
    own, first = _ticks(pid), _ticks(1)
    return None if own is None else own - (first or 0)


def _ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[19])  # starttime, behind the name
    except (OSError, ValueError, IndexError):
        return None


def _is_pyft(pid: int) -> bool:
    try:
        return "pyft" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False
