"""What is known of an image, besides CRIU's files and the copies of memory: in notes, for each agent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyft._native import linux
from pyft.agent.command import NOTE as JOB
from pyft.agent.job.options import JobOptions
from pyft.agent.members.member import Member
from pyft.agent.restoring import NOTE as RESTORING
from pyft.agent.restoring import is_kept, kept_name
from pyft.agent.supervisor.link import Handover
from pyft.images import image_folder, reopened, sockets, tree
from pyft.images.appended import Log

NOTE = "images"


def begun(
    folder: Path,
    options: JobOptions,
    pids: list[int],
    members: Sequence[Member],
    own: dict[str, Any],
) -> tuple[dict[str, Any], str]:
    """Make the folder of an image; return its record, with what is the caller's own in it.

    And why there can be no image, empty otherwise; without a folder there is no record either.
    """
    try:
        image_folder.make(folder, options.memory_folder, tree.resident_bytes(pids))
        links = {str(m.id): sockets.peer_of(m.connection.fileno()) for m in members}
    except OSError as error:
        return {}, f"{error.strerror} [{error.filename or 'sock_diag'}]"
    standard = tree.standard_files(os.getppid())
    logs, why = _logs_of(pids, standard)
    record = own | {
        "folder": str(folder),
        "pids": pids,
        "sockets": links,
        "standard": [(fd, tree.inherit_key(link)) for fd, link in standard.values()],
        "logs": [log.note() for log in logs],
        "reopened": reopened.of_image(options.log_dir / reopened.NAME, logs),
        "connections": sorted(tree.connections(pids)),
        "clocks": linux.clocks(),
    }
    return record, why


def left_behind(
    record: dict[str, Any], memory: dict[int, list[int]], plan: dict[str, int]
) -> dict[str, tuple[dict[str, Any], list[int]]]:
    """Return what an agent leaves that dies while it puts all back to an image: notes, descriptors.

    So a job can go on from an image elsewhere: the next agent begins the restore again.
    """
    number, step = record["number"], record["step"]
    plan = {"number": number, "current": number, "current_step": step, "restores": 0} | plan
    meta = {"state": "running"}
    kept: dict[str, tuple[dict[str, Any], list[int]]] = {
        RESTORING: (record, []),
        JOB: ({"meta": meta, "stop_reason": "", "signalled": False}, []),
        NOTE: ({"plan": plan, "records": {str(number): record}}, []),
    }
    for id, note in record["clients"].items():
        kept[kept_name(number, int(id))] = (note, memory[int(id)])
    return kept


def memory_of(record: dict[str, Any], handover: Handover) -> dict[int, list[int]]:
    """Return the memory that an agent before this one has copied for an image."""
    ids = map(int, record.get("clients", {}))
    return {id: handover.fds.get(kept_name(record["number"], id), []) for id in ids}


def unfinished(records: Mapping[int, dict[str, Any]], handover: Handover) -> list[str]:
    """Return under which names there is memory of images whose making the agent before began only."""
    whole = {
        kept_name(number, int(id)) for number, r in records.items() for id in r.get("clients", {})
    }
    return [name for name in handover.notes if is_kept(name) and name not in whole]


def _logs_of(
    pids: list[int], standard: dict[tuple[int, int], tuple[int, str]]
) -> tuple[list[Log], str]:
    """Return the files that are only appended to, and why an image is impossible now."""
    logs: dict[str, Log] = {}
    for file in _written(pids):
        if file.identity in standard:
            continue
        if not file.flags & os.O_APPEND:
            return [], f"[{file.link}] is open for writing in [pid {file.pid}]"
        try:
            logs[file.link] = Log.of(file.link)
        except OSError as error:
            return [], f"[{file.link}] cannot be read: {error.strerror}"
    return list(logs.values()), ""


def _written(pids: list[int]) -> Iterator[tree.OpenFile]:
    return (file for file in tree.open_files(pids) if file.is_written)
