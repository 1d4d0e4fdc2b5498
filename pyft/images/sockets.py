"""Which socket is at the other end of one of ours: asked of the kernel by netlink (sock_diag)."""

from __future__ import annotations

import os
import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_ANSWER = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_NO_COOKIE = 0xFFFFFFFF


def inode_of(fd: int) -> int:
    """Return the number by which /proc knows a socket."""
    return os.fstat(fd).st_ino


def peer_of(fd: int) -> int:
    """Return the inode of the socket at the other end; raise OSError if there is none."""
    request = _REQUEST.pack(
        socket.AF_UNIX, 0, 0, 0xFFFFFFFF, inode_of(fd), _UDIAG_SHOW_PEER, _NO_COOKIE, _NO_COOKIE
    )
    length = _HEADER.size + len(request)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(1.0)
        link.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
        return _peer_in(link.recv(65536))


def _peer_in(answer: bytes) -> int:
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        raise OSError(-code, os.strerror(-code))
    at = _HEADER.size + _ANSWER.size
    while at + _ATTRIBUTE.size <= length:
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        if name == _UNIX_DIAG_PEER:
            (inode,) = struct.unpack_from("=I", answer, at + _ATTRIBUTE.size)
            return inode
        at += max(_ATTRIBUTE.size, (size + 3) & ~3)
    raise OSError(107, "the socket has no other end")
