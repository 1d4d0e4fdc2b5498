"""Notes: what one agent writes down for the next, one JSON object in a memory object of its own.

A new note replaces the old one by its descriptor, so that none is ever read half. It is sealed:
nothing writes into one that is made, so the next agent believes it.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def make_note(name: str, values: dict[str, Any]) -> int:
    """Return the descriptor of a new note."""
    fd = os.memfd_create(f"pyft-note-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    data = json.dumps(values).encode()
    while data:
        data = data[os.write(fd, data) :]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def read_note(fd: int) -> dict[str, Any]:
    """Return what a note says, and close it."""
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return json.load(file)
