"""How a client has ended, which is no child of the agent's: by a fault, or because it was asked to.

The kernel tells it of a pidfd from Linux 6.15 on, once the parent has fetched the status. Before that
a client that has ended without a goodbye counts as lost.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import time

_INFO = struct.Struct("=QQ11Ii")  # struct pidfd_info, as it was first
_PIDFD_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_PATIENCE_S = 0.25  # for the parent
# What a launcher or a user sends to a process that is to end.
ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def status_of(pidfd: int) -> int | None:
    """Return the status of a process that has ended, as wait() would; None if nothing tells."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        raw = bytearray(_INFO.size)
        _INFO.pack_into(raw, 0, _PIDFD_INFO_EXIT, *[0] * 13)
        try:
            fcntl.ioctl(pidfd, _PIDFD_GET_INFO, raw)
        except ProcessLookupError:
            return None
        except OSError:  # an older kernel
            return None
        mask, *_, status = _INFO.unpack(raw)
        if mask & _PIDFD_INFO_EXIT:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def is_lost(pidfd: int) -> bool:
    """Say whether a client that has said no goodbye was ended by a fault."""
    status = status_of(pidfd)
    if status is None:
        return True
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) not in ASKED
