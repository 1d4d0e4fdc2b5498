"""What the kernel has left of a connection whose ends are closed, before CRIU restores it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from pyft.images import leftovers, tree


def ends_of(one: socket.socket) -> tuple[str, str]:
    """Return both ends of a connection of this process."""
    ends = {row.local: (row.local, row.remote) for row in tree._connections(os.getpid())}
    port = f":{one.getsockname()[1]:04X}"
    return next(both for local, both in ends.items() if local.endswith(port))


def is_there(ends: tuple[str, str]) -> bool:
    return ends in {(row.local, row.remote) for row in tree._connections(os.getpid())}


def connected(family: socket.AddressFamily, address: str) -> tuple[socket.socket, socket.socket]:
    with socket.create_server((address, 0), family=family) as server:
        ours = socket.create_connection(server.getsockname()[:2])
        return ours, server.accept()[0]


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_what_is_left_of_a_connection_goes_and_no_other(
    need: Callable[[str, bool, str], None], family: socket.AddressFamily, address: str
) -> None:
    need("root", os.geteuid() == 0, "ends connections of which no process has a socket")
    ours, theirs = connected(family, address)
    others, other_theirs = connected(family, address)
    ends, other = ends_of(ours), ends_of(others)
    with theirs, other_theirs:
        assert leftovers.end({ends}) == 0, "a process has it"
        assert is_there(ends)
        for one in (ours, others):
            one.close()
    assert is_there(ends)
    assert is_there(other)
    assert leftovers.end({ends}) == 1
    assert not is_there(ends)
    assert is_there(other)
    assert leftovers.end({ends}) == 0
