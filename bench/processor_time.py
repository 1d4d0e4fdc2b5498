"""Processor time of a job's client and servers, for costs that a busy machine would hide."""

from __future__ import annotations

import os
from pathlib import Path

_NS = 1e-9


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
        except OSError:
            continue  # it has ended
        found.setdefault(int(after_name.split()[1]), []).append(int(entry))
    return found


def _seconds(pid: int) -> float:
    """Return what all threads of a process have used, user and system."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total * _NS


def used(launcher: int, script: str) -> float:
    """Return the seconds that a script, or program, and its servers have used so far.

    `launcher`: the process of `pyft run`.
    """
    children, todo, total = _children(), [launcher], 0.0
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            program = b"/" + script.encode()
            is_script = any(word.endswith(program) for word in words[:2])
            if is_script or words[0].endswith(b"pyft-server"):
                total += _seconds(pid)
        except OSError:
            continue
    return total
