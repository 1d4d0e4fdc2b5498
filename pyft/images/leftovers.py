"""Ends what the kernel has left of TCP connections whose processes are gone (netlink's sock_diag).

A process that is killed leaves the last words of its connections to the kernel, for up to a minute. As
long as CRIU cannot restore the same connection from an image. While CRIU dumps the words cannot even be
said.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Iterator

from pyft.images import netlink
from pyft.images.tree import end_of

_BY_FAMILY, _DESTROY = 20, 21
_ASKED = struct.Struct("=BBBBI48s")  # struct inet_diag_req_v2
_ANSWER = struct.Struct("=BBBB48sIIIII")  # struct inet_diag_msg
_ID = struct.Struct("=2s2s16s16s12s")  # struct inet_diag_sockid: ports and addresses
_ALL_BUT_LISTENING = 0xFFF & ~(1 << 10)


def end(connections: Collection[tuple[str, str]]) -> int:
    """End what is left of these, of which no process has a socket; return how many there were.

    Both ends are as in /proc/net/tcp. Raise OSError if the kernel does not do that, or not for us.
    """
    ended = 0
    with netlink.connect(netlink.SOCK_DIAG) as link:
        for family in (socket.AF_INET, socket.AF_INET6):
            left = [id for ends, id in _without_process(link, family) if ends in connections]
            for id in left:
                _ask(link, _DESTROY, netlink.ACK, family, id)
                ended += any(_answers(link))
    return ended


def _without_process(link: socket.socket, family: int) -> Iterator[tuple[tuple[str, str], bytes]]:
    _ask(link, _BY_FAMILY, netlink.DUMP, family, bytes(_ID.size))
    for body in list(_answers(link)):
        if len(body) < _ANSWER.size:
            continue
        _, _, _, _, id, _, _, _, _, inode = _ANSWER.unpack_from(body)
        if inode == 0:
            source, target, here, there, _ = _ID.unpack(id)
            yield (_end(family, here, source), _end(family, there, target)), id


def _end(family: int, address: bytes, port: bytes) -> str:
    words = 4 if family == socket.AF_INET6 else 1
    numbers = struct.unpack_from(f"={words}I", address)
    text = "".join(f"{number:08X}" for number in numbers)
    number = int.from_bytes(port, "big")
    return end_of(f"{text}:{number:04X}")


def _ask(link: socket.socket, kind: int, flags: int, family: int, id: bytes) -> None:
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_BUT_LISTENING, id)
    link.send(netlink.request(kind, flags, body))


def _answers(link: socket.socket) -> Iterator[bytes]:
    """Yield what the kernel answers up to its end; an acknowledgement is one. Raise OSError.

    A connection that has come to its end by itself is no error, and no answer.
    """
    try:
        yield from (body for _, body in netlink.answers(link))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
