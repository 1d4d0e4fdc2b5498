"""Takes rules out of the network's filter that CRIU has left there: asked of the kernel by netlink.

While it dumps, CRIU cuts the tree's TCP connections, by a table of nf_tables of its own: `inet CRIU-` and
an id that it tells nothing else. It removes that table at its end. One that is killed leaves it, and the
connections stay cut, also those that are restored from an image.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Collection, Iterator

_NETLINK_NETFILTER = 12
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP = 1, 4, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE = 0xA00, 0xA01, 0xA02  # nf_tables is subsystem 10
_NEW_ELEMENTS, _GET_ELEMENTS = 0xA0C, 0xA0D
_BATCH_BEGIN, _BATCH_END, _NF_TABLES = 0x10, 0x11, 10
_INET = 1
_TABLE_NAME, _OF_TABLE, _OF_SET, _ELEMENTS = 1, 1, 2, 3
_TYPE = 0x3FFF  # of an attribute, without flags
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_GENERAL = struct.Struct(">BBH")  # struct nfgenmsg
_ATTRIBUTE = struct.Struct("=HH")
_TIMEOUT_S = 1.0
_PREFIX = "CRIU-"
_SETS = ("conns4", "conns6")


def remove_rules(keys: Collection[bytes]) -> list[str]:
    """Remove the tables of CRIU that cut one of these connections; return their names.

    No CRIU may be at work on these. Raise OSError.
    """
    names = cutting(keys)
    with _filter() as link:
        for name in names:
            _remove(link, name)
    return names


def cutting(keys: Collection[bytes]) -> list[str]:
    """Return the tables of CRIU that cut one of these connections. Raise OSError.

    `keys`: as `key_of` returns them.
    """
    with _filter() as link:
        return [name for name in _tables(link) if not _cut_by(link, name).isdisjoint(keys)]


def key_of(source: tuple[bytes, int], target: tuple[bytes, int]) -> bytes:
    """Return a connection as CRIU's sets have it. Addresses are packed."""
    return b"".join(address + struct.pack(">HH", port, 0) for address, port in (source, target))


def _filter() -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    link.settimeout(_TIMEOUT_S)
    return link


def _tables(link: socket.socket) -> list[str]:
    answers = _dump(link, _GET_TABLE, b"")
    names = [_text(dict(_attributes(answer)).get(_TABLE_NAME, b"")) for answer in answers]
    return [name for name in names if name.startswith(_PREFIX)]


def _cut_by(link: socket.socket, table: str) -> set[bytes]:
    found = set()
    for name in _SETS:
        about = _attribute(_OF_TABLE, _zero(table)) + _attribute(_OF_SET, _zero(name))
        for answer in _dump(link, _GET_ELEMENTS, about):
            for number, elements in _attributes(answer):
                if number == _ELEMENTS:
                    found.update(_keys_in(elements))
    return found


def _keys_in(elements: bytes) -> Iterator[bytes]:
    """Yield the keys of a list of elements: each is a value in a key in an element."""
    for _, element in _attributes(elements):
        key = dict(_attributes(element)).get(1, b"")
        yield dict(_attributes(key)).get(1, b"")


def _remove(link: socket.socket, table: str) -> None:
    begin = _message(_BATCH_BEGIN, 0, b"", 0, _NF_TABLES)
    what = _message(_DELETE_TABLE, _NLM_F_ACK, _attribute(_TABLE_NAME, _zero(table)))
    link.send(begin + what + _message(_BATCH_END, 0, b"", 0, _NF_TABLES))
    for kind, body in _messages(link.recv(1 << 16)):
        if kind == _NLMSG_ERROR:
            _raise_error(body)


def _dump(link: socket.socket, kind: int, attributes: bytes) -> list[bytes]:
    """Return the attributes of all that the kernel has; nothing if it is gone meanwhile."""
    link.send(_message(kind, _NLM_F_DUMP, attributes))
    found = []
    while True:
        for answer, body in _messages(link.recv(1 << 18)):
            if answer == _NLMSG_DONE:
                return found
            if answer == _NLMSG_ERROR:
                with contextlib.suppress(FileNotFoundError):
                    _raise_error(body)
                return found
            if answer in (_NEW_TABLE, _NEW_ELEMENTS):
                found.append(body[_GENERAL.size :])


def _raise_error(body: bytes) -> None:
    (code,) = struct.unpack_from("=i", body)
    if code:
        raise OSError(-code, "the network's filter refuses it")


def _message(kind: int, flags: int, attributes: bytes, family: int = _INET, id: int = 0) -> bytes:
    body = _GENERAL.pack(family, 0, id) + attributes
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | _NLM_F_REQUEST, 1, 0) + body


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, number = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield number & _TYPE, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _attribute(number: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, number) + value + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _zero(text: str) -> bytes:
    return text.encode() + b"\0"


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")
