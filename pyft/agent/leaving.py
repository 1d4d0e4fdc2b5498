"""The end of a place on a host that is drained: all of it ends, and its image goes to the launcher.

So the image outlives agent and supervisor, and the launcher can go on with it, as a spare host does
(pyft/hosts/spare/leaving.py). An agent that dies meanwhile has another one begin again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyft.agent.process import messages
from pyft.agent.process.notes import make_note
from pyft.agent.restoring import end_all


@dataclass(frozen=True)
class Image:
    """From which the place goes on. `about`: options, name and reason."""

    record: dict[str, Any]
    memory: dict[int, list[int]]
    about: dict[str, Any]


def leave(image: Image, launcher: socket.socket, ended: Callable[[], object]) -> None:
    """End all processes, then hand the image over; raise RestoreError, OSError."""
    end_all(image.record["pids"], ended)
    for client, fds in image.memory.items():
        _send(launcher, "left part", tuple(fds), client=client)
    fd = make_note("left", image.about | {"record": image.record})
    _send(launcher, "left", (fd,))
    os.close(fd)


def _send(launcher: socket.socket, kind: str, fds: tuple[int, ...], **values: Any) -> None:
    if not messages.send(launcher, kind, fds, **values):
        raise OSError("the launcher has ended")
