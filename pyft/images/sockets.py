"""Which socket is at the other end of one of ours: asked of the kernel by netlink (sock_diag)."""

from __future__ import annotations

import errno
import os
import socket
import struct

from pyft.images import netlink

_SOCK_DIAG_BY_FAMILY = 20
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_REQUEST = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_ANSWER = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_INODE = struct.Struct("=I")
_NO_COOKIE = 0xFFFFFFFF


def inode_of(fd: int) -> int:
    """Return the number by which /proc knows a socket."""
    return os.fstat(fd).st_ino


def peer_of(fd: int) -> int:
    """Return the inode of the socket at the other end; raise OSError if there is none."""
    asked = _REQUEST.pack(
        socket.AF_UNIX, 0, 0, 0xFFFFFFFF, inode_of(fd), _UDIAG_SHOW_PEER, _NO_COOKIE, _NO_COOKIE
    )
    with netlink.connect(netlink.SOCK_DIAG) as link:
        link.send(netlink.request(_SOCK_DIAG_BY_FAMILY, 0, asked))
        _, answer = next(netlink.answers(link), (netlink.DONE, b""))
    peer = dict(netlink.attributes(answer[_ANSWER.size :])).get(_UNIX_DIAG_PEER)
    if peer is None:
        raise OSError(errno.ENOTCONN, "the socket has no other end")
    (inode,) = _INODE.unpack(peer)
    return inode
