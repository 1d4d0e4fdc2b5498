"""Messages of the kernel's netlink, and their attributes: how they are framed, and what ends an answer."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

SOCK_DIAG, NETFILTER = 4, 12  # what answers: <linux/netlink.h>
ACK, DUMP = 4, 0x300  # flags of a request
ERROR, DONE = 2, 3  # kinds of answers that every family has
_REQUEST = 1
_SEQUENCE = 1  # a link has one request at a time, whose answers are all read
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_CODE = struct.Struct("=i")  # with this begins struct nlmsgerr
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_NUMBER = 0x3FFF  # of an attribute, without flags
_MOST = 1 << 18  # bytes at once; the kernel sends less
_TIMEOUT_S = 1.0


def connect(family: int) -> socket.socket:
    """Return a link to a part of the kernel. Its answers come at once, or reading raises OSError."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
    link.settimeout(_TIMEOUT_S)
    return link


def request(kind: int, flags: int, body: bytes) -> bytes:
    """Return a message to the kernel."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST, _SEQUENCE, 0) + body


def answers(link: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of all that the kernel answers, up to its end; an acknowledgement is one.

    Without DUMP and ACK the answer has no end: take the first. Raise OSError with the kernel's code.
    """
    while True:
        for kind, body in _messages(link.recv(_MOST)):
            if kind == DONE:
                return
            if kind == ERROR:
                _raise_error(body)
            yield kind, body
            if kind == ERROR:
                return


def _raise_error(body: bytes) -> None:
    """Raise OSError, unless this is an acknowledgement."""
    (code,) = _CODE.unpack_from(body)
    if code:
        raise OSError(-code, os.strerror(-code))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of the messages that have come at once."""
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each attribute."""
    while len(data) >= _ATTRIBUTE.size:
        length, number = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield number & _NUMBER, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def attribute(number: int, value: bytes) -> bytes:
    """Return an attribute with what fills it up to where the next one may begin."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, number) + value + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
