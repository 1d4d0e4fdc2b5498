"""A dump that nothing waits for any more: it ends by itself, or leaves no rule in the network's filter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from job import wait_for

from pyft.agent import ended_dump
from pyft.agent.ended_dump import end_dump
from pyft.images import packet_filter
from pyft.images import tree as of_tree

# One end of each connection is this process's, the other one that of a thread of it.
CONNECTED = """
import socket, sys
kept = []
for family, where in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((where, 0), family=family)
    one = socket.create_connection(server.getsockname()[:2])
    kept += [server, one, server.accept()[0]]
    print(one.getsockname()[1], one.getpeername()[1], flush=True)
sys.stdin.read()
"""

# As CRIU leaves both ends where it gives up: what is sent then is refused.
HALTED = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname())
other = server.accept()[0]
for end in (one, other):
    end.setsockopt(socket.IPPROTO_TCP, 19, 1)  # TCP_REPAIR
try:
    one.sendall(b"early")
except OSError:
    print("halted", flush=True)
sys.stdin.readline()
one.sendall(b"late")
print(other.recv(8).decode(), flush=True)
for end in (one, other, server):
    print(end.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR), flush=True)
"""


@pytest.fixture
def tree() -> Iterator[tuple[int, set[bytes]]]:
    """Return a process and its connections, as the network's filter knows them."""
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", CONNECTED], **ends)
    assert process.stdout
    keys = set()
    for family, where in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        address = socket.inet_pton(family, where)
        one, other = ((address, int(port)) for port in process.stdout.readline().split())
        keys |= {packet_filter.key_of(one, other), packet_filter.key_of(other, one)}
    yield process.pid, keys
    process.communicate()


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[set[bytes]]:
    """Return of which connections rules were removed."""
    found: list[set[bytes]] = []
    monkeypatch.setattr(ended_dump.packet_filter, "remove_rules", found.append)
    return found


def dump(program: str) -> subprocess.Popen[bytes]:
    """Start what stands for CRIU; its end is waited for, as the supervisor does."""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    Thread(target=process.wait, daemon=True).start()
    return process


def test_one_that_ends_by_itself_is_not_killed(
    tree: tuple[int, set[bytes]], removed: list[set[bytes]]
) -> None:
    """It may have left all cut: it leaves at once when a process dies in which it works."""
    process = dump("import sys; sys.stdin.read()")
    assert process.stdin
    process.stdin.close()
    end_dump(process.pid, tree[0], 60, with_tree=False)
    assert process.poll() == 0
    assert removed == [tree[1]]


def test_one_that_hangs_is_killed_and_cuts_nothing_any_more(
    tree: tuple[int, set[bytes]], removed: list[set[bytes]]
) -> None:
    process = dump("import time; time.sleep(600)")
    end_dump(process.pid, tree[0], 0.0, with_tree=False)
    wait_for(lambda: process.poll() is not None, 30, "it is gone")
    assert process.poll() == -signal.SIGKILL
    assert removed == [tree[1]]


def test_its_tree_ends_first(tree: tuple[int, set[bytes]], removed: list[set[bytes]]) -> None:
    """Killed with it alone, CRIU would let it go on in the middle of something."""
    process = dump(f"import time\nwhile open('/proc/{tree[0]}/cmdline').read(): time.sleep(0.01)")
    end_dump(process.pid, tree[0], 60, with_tree=True)
    wait_for(lambda: process.poll() is not None, 30, "it is gone")
    assert process.poll() == 0
    assert removed == [tree[1]]


def test_without_connections_the_filter_is_not_asked(removed: list[set[bytes]]) -> None:
    ended_dump.let_go(set())
    assert removed == []


def test_rules_that_cannot_be_removed_are_told_of(
    tree: tuple[int, set[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refused(_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(ended_dump.packet_filter, "remove_rules", refused)
    end_dump(dump("import time; time.sleep(600)").pid, tree[0], 0.0, with_tree=False)
    said = capfd.readouterr().err
    assert "CRIU's rules stay in the network's filter: Operation not permitted" in said


def test_connections_that_a_failed_dump_has_halted_go_on(
    need: Callable[[str, bool, str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    need("root", os.geteuid() == 0, "halts connections as CRIU does")
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", HALTED], **ends)
    assert process.stdout
    assert process.stdout.readline() == "halted\n"
    ended_dump.let_go(of_tree.connections([process.pid]), [process.pid])
    said, _ = process.communicate("\n", timeout=30)
    assert said.split() == ["late", "1", "1", "1"]
    assert capfd.readouterr().err == ""
