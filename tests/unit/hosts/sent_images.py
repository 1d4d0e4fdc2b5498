"""Images that are sent to a host that takes them, for tests of both sides."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyft.hosts.place import mirror
from pyft.hosts.place.mirror import Outgoing, Receiver, Stored
from pyft.images import memory
from pyft.images.memory import PARTS

SECRET = b"0123456789abcdef"
SIZE = 64 << 20
CLOCKS = {"monotonic": 10**15, "boottime": 10**15}


@contextlib.contextmanager
def receiving(folder: Path) -> Iterator[tuple[Receiver, tuple[str, int], list[Stored]]]:
    """Yield one that listens, where, and what it has."""
    listener = socket.create_server(("127.0.0.1", 0))
    have: list[Stored] = []
    made = Receiver(listener, SECRET, folder, have.append)
    yield made, listener.getsockname(), have
    made.end()


def outgoing(folder: Path) -> Outgoing:
    """Return an image of one client."""
    folder.mkdir()
    (folder / "pages-1.img").write_bytes(os.urandom(3 << 20))
    (folder / "core-1.img").write_bytes(b"core")
    fds = []
    for part in PARTS:
        fd = memory.new(f"pyft-{part}-c", SIZE)
        os.pwrite(fd, part.encode(), 1 << 20)
        os.pwrite(fd, os.urandom(5000), SIZE - 5000)
        fds.append(fd)
    clients = {"4": {"id": 4, "environment": {}, "channel": {"name": "c"}}}
    record = {"number": 3, "step": 9, "folder": str(folder), "clients": clients, "clocks": CLOCKS}
    return Outgoing(1, record, {4: fds}, {"job": "j"}, "pyft-j-1")


def sent(where: tuple[str, int], image: Outgoing) -> list[str]:
    """Send an image; return why that has failed."""
    failed: list[tuple[str, str]] = []
    told = [lambda *why: failed.append(why), lambda: None]
    mirror.send([("s0", *where)], SECRET, image, *told).join(20)
    return [why for _, why in failed]


WHOLE = [[4, part, 8, []] for part in range(len(PARTS))]
REST = WHOLE[1:]


def announced(**more: Any) -> dict[str, Any]:
    """Return what is said before a small image."""
    record = {"number": 3, "clients": {"4": {"channel": {"name": "c"}}}, "clocks": CLOCKS}
    header = {"place": 1, "record": record, "options": {}, "clients_name": "n"}
    return header | {"files": [], "memory": WHOLE} | more


def digest_of(data: bytes) -> str:
    """Return the right digest."""
    hashed = mirror.digest_for(SECRET)
    hashed.update(data)
    return hashed.hexdigest()
