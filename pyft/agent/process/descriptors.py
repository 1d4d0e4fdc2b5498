"""Descriptors: each client costs agent and supervisor several, and many shells allow 1024.

Without one left, a message of a client or a server would come without its descriptors, and end the
process that reads it. So a client for which there would be too few is refused.
"""

from __future__ import annotations

import contextlib
import resource

Limits = tuple[int, int]  # what counts now, and the most to which the user may raise it

PER_CLIENT = 10  # its memory, its process and its server, in the supervisor: it has most
OWN = 32  # of a process, and what it needs for a moment
MOST_WAITING = 256  # clients that no agent has answered; a quarter of the descriptors, if less


def raise_limit() -> Limits:
    """Take as many as the user may have; return the limits as they were, for the user's command."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the administrator has lowered the kernel's
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def lower_limit(limits: Limits) -> None:
    """Go back to limits as they were, or to the most that is allowed now, if that is less."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], most), min(limits[1], most)))


def most_waiting() -> int:
    """Return how many clients may wait: supervisor and agent both hold each of them."""
    return min(MOST_WAITING, _limit() // 4)


def why_too_few(clients: int) -> str:
    """Return why there can be no more than so many clients, empty if there can."""
    if (clients + 1) * PER_CLIENT + most_waiting() + OWN <= _limit():
        return ""
    return (
        f"the job has [{clients}] clients, and for one more the limit [{_limit()}] of descriptors "
        "is too low: raise it for pyft run (`ulimit -Hn`)"
    )


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
