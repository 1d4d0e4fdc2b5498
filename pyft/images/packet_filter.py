"""Takes rules out of the network's filter that CRIU has left there: asked of the kernel by netlink.

While it dumps, CRIU cuts the tree's TCP connections, by a table of nf_tables of its own: `inet CRIU-` and
an id that it tells nothing else. It removes that table at its end. One that is killed leaves it, and so
does one that gives up because a process has died, or was stopped, while CRIU's own code ran in it. Then
the connections stay cut, also those that are restored from an image.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Collection, Iterator

from pyft.images import netlink
from pyft.images.netlink import attribute, attributes

_NEW_TABLE, _GET_TABLE, _DELETE_TABLE = 0xA00, 0xA01, 0xA02  # nf_tables is subsystem 10
_NEW_ELEMENTS, _GET_ELEMENTS = 0xA0C, 0xA0D
_BATCH_BEGIN, _BATCH_END, _NF_TABLES = 0x10, 0x11, 10
_INET = 1
_TABLE_NAME, _OF_TABLE, _OF_SET, _ELEMENTS = 1, 1, 2, 3
_GENERAL = struct.Struct(">BBH")  # struct nfgenmsg
_PREFIX = "CRIU-"
_SETS = ("conns4", "conns6")


def remove_rules(keys: Collection[bytes]) -> list[str]:
    """Remove the tables of CRIU that cut one of these connections; return their names.

    No CRIU may be at work on these. Raise OSError.
    """
    names = cutting(keys)
    with netlink.connect(netlink.NETFILTER) as link:
        for name in names:
            _remove(link, name)
    return names


def cutting(keys: Collection[bytes]) -> list[str]:
    """Return the tables of CRIU that cut one of these connections. Raise OSError.

    `keys`: as `key_of` returns them.
    """
    with netlink.connect(netlink.NETFILTER) as link:
        return [name for name in _tables(link) if not _cut_by(link, name).isdisjoint(keys)]


def key_of(source: tuple[bytes, int], target: tuple[bytes, int]) -> bytes:
    """Return a connection as CRIU's sets have it. Addresses are packed."""
    return b"".join(address + struct.pack(">HH", port, 0) for address, port in (source, target))


def _tables(link: socket.socket) -> list[str]:
    answers = _dump(link, _GET_TABLE, b"")
    names = [_text(dict(attributes(answer)).get(_TABLE_NAME, b"")) for answer in answers]
    return [name for name in names if name.startswith(_PREFIX)]


def _cut_by(link: socket.socket, table: str) -> set[bytes]:
    found = set()
    for name in _SETS:
        about = attribute(_OF_TABLE, _zero(table)) + attribute(_OF_SET, _zero(name))
        for answer in _dump(link, _GET_ELEMENTS, about):
            for number, elements in attributes(answer):
                if number == _ELEMENTS:
                    found.update(_keys_in(elements))
    return found


def _keys_in(elements: bytes) -> Iterator[bytes]:
    """Yield the keys of a list of elements: each is a value in a key in an element."""
    for _, element in attributes(elements):
        key = dict(attributes(element)).get(1, b"")
        yield dict(attributes(key)).get(1, b"")


def _remove(link: socket.socket, table: str) -> None:
    begin = _message(_BATCH_BEGIN, 0, b"", 0, _NF_TABLES)
    what = _message(_DELETE_TABLE, netlink.ACK, attribute(_TABLE_NAME, _zero(table)))
    link.send(begin + what + _message(_BATCH_END, 0, b"", 0, _NF_TABLES))
    next(netlink.answers(link))


def _dump(link: socket.socket, kind: int, about: bytes) -> list[bytes]:
    """Return the attributes of all that the kernel has; nothing if it is gone meanwhile."""
    link.send(_message(kind, netlink.DUMP, about))
    found = []
    with contextlib.suppress(FileNotFoundError):
        for answer, body in netlink.answers(link):
            if answer in (_NEW_TABLE, _NEW_ELEMENTS):
                found.append(body[_GENERAL.size :])
    return found


def _message(kind: int, flags: int, about: bytes, family: int = _INET, id: int = 0) -> bytes:
    return netlink.request(kind, flags, _GENERAL.pack(family, 0, id) + about)


def _zero(text: str) -> bytes:
    return text.encode() + b"\0"


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")
