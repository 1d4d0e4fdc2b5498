"""Takes TCP connections of other processes out of repair mode, in which CRIU has left them.

While it dumps, CRIU puts the tree's connections into the kernel's repair mode, to read their queues. It
takes them out at its end. One that gives up at once, since a process has died in which its code ran, or
that is killed, leaves them so: what their processes send or receive then is refused, for ever.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection

from pyft._native import linux
from pyft.images import tree

_TCP_REPAIR, _OFF = 19, 0


def end(pids: Collection[int]) -> int:
    """Take all connections of processes out of it; return how many were in it.

    No CRIU may be at work on these. Raise OSError where that is not allowed.
    """
    done, seen = 0, set[int]()
    for file in tree.open_files(pids):
        if not file.link.startswith("socket:") or file.inode in seen:
            continue
        seen.add(file.inode)
        try:
            fd = linux.descriptor_of(file.pid, file.fd)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EBADF):  # it has ended, or closed it
                raise
            continue
        with socket.socket(fileno=fd) as one:
            done += _end(one)
    return done


def _end(one: socket.socket) -> bool:
    if one.proto != socket.IPPROTO_TCP or not one.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR):
        return False
    one.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)
    # With it the kernel forgets this option. A program that listens has it as a rule, and could not
    # begin again at its port; to others it makes no difference.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
