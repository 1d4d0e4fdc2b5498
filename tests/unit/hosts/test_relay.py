"""Two relays on this machine, and between them what agents and head do: programs connect to each other."""

from __future__ import annotations

import base64
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from relays import ADDRESSES, LIBRARY, Relays
from strangers import as_nobody

from pyft.agent.supervisor.callers import listen
from pyft.agent.supervisor.link import SupervisorLink
from pyft.agent.supervisor.supervisor import Supervisor
from pyft.hosts.place import relayed
from pyft.hosts.relay import relay
from pyft.hosts.relay.pair import AGENT, BARE, MAC, OVER, Datagram, packed, target_of
from pyft.hosts.relay.streams import MOST_WAITING

Need = Callable[[str, bool, str], None]
PATIENCE_S = 20.0
KIND_AT = MAC + 28  # of a datagram

# Another process of this machine may come to its port as well: it looks for one that had it before.
SERVER = """
import socket, threading
whole = threading.Semaphore(0)
def answer(sock):
    count = 0
    try:
        while data := sock.recv(65536):
            sock.sendall(data)
            count += len(data)
        sock.close()
    except OSError:
        pass
    if count == 400_000:
        whole.release()
def serve():
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=answer, args=(sock,), daemon=True).start()
listener = socket.create_server(("", 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=serve, daemon=True).start()
for _ in range(2):
    whole.acquire()
"""
CLIENT = """
import os, socket, sys, threading
port = int(sys.argv[1])
try:
    socket.create_connection(("192.0.2.1", 1), 10)
except ConnectionRefusedError:
    print("refused", flush=True)
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "::ffff:192.0.2.1")):
    sock = socket.socket(family)
    sock.connect((address, port))
    sent = os.urandom(400_000)
    got = bytearray()
    def send():
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    while data := sock.recv(65536):
        got += data
    print("equal" if bytes(got) == sent else f"[{len(got)}] bytes of [{len(sent)}]", flush=True)
sys.exit(7)
"""

# The first connection is read when a line comes.
LATE_READER = """
import socket, sys, threading
listener = socket.create_server(("", 0))
print(listener.getsockname()[1], flush=True)
first = listener.accept()[0]
def answer():
    second = listener.accept()[0]
    second.sendall(second.recv(100))
threading.Thread(target=answer, daemon=True).start()
input()
count = 0
while data := first.recv(65536):
    count += len(data)
print(count, flush=True)
"""
# Sends until nothing is taken any more, and says how many bytes those were.
SENDER = """
import socket, sys
address = ("192.0.2.1", int(sys.argv[1]))
first = socket.create_connection(address)
first.settimeout(1.0)
count = 0
try:
    while True:
        count += first.send(bytes(65536))
except TimeoutError:
    print(count, flush=True)
if sys.argv[2] == "two":
    second = socket.create_connection(address, 20)
    second.sendall(b"answer me")
    print(second.recv(100).decode(), flush=True)
"""


class World(Relays):
    """Two places, of which one may lose datagrams; what is started is ended."""

    def __init__(self, drops: int) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.loses_end = False  # the next word of a place that it has ended
        super().__init__(drops)

    def carry(self, to: int, text: str) -> None:
        if self.loses_end and base64.b64decode(text)[KIND_AT] == OVER:
            self.loses_end = False
        else:
            super().carry(to, text)

    def start(self, *arguments: Any, **how: Any) -> subprocess.Popen[str]:
        process = super().start(*arguments, stdout=subprocess.PIPE, **how)
        self.processes.append(process)
        return process

    def end(self) -> None:
        super().end()
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()
            if process.stdin:
                process.stdin.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    monkeypatch.setenv("PYFT_TOKEN", secrets.token_hex(16))
    made = World(getattr(request, "param", 0))
    yield made
    made.end()


@pytest.mark.parametrize("world", [0, 5], indirect=True)
def test_programs_of_two_places_talk(world: World) -> None:
    """Also where a fifth of the datagrams is lost; nobody listens at port 1."""
    server = world.start(0, sys.executable, "-c", SERVER)
    assert server.stdout
    port = server.stdout.readline().strip()
    client = world.start(1, sys.executable, "-c", CLIENT, port)
    said, _ = client.communicate(timeout=180)  # 4 to 8 s where nothing else works
    assert said.split("\n") == ["refused", "equal", "equal", ""]
    assert client.returncode == 7
    assert server.wait(PATIENCE_S) == 0
    assert world.carried > 50


def start_late_reader(world: World, kind: str) -> tuple[subprocess.Popen[str], ...]:
    """Return a program that reads when it gets a line, and one that has sent all that it could."""
    server = world.start(0, sys.executable, "-c", LATE_READER, stdin=subprocess.PIPE)
    assert server.stdout
    port = server.stdout.readline().strip()
    return server, world.start(1, sys.executable, "-c", SENDER, port, kind)


def test_a_connection_that_is_not_read_holds_up_no_other_one(world: World) -> None:
    server, client = start_late_reader(world, "two")
    assert client.stdout
    sent = client.stdout.readline().strip()
    assert client.stdout.readline() == "answer me\n"
    assert server.communicate("read\n", timeout=60)[0].strip() == sent


def test_a_slow_reader_gets_all_from_a_place_that_has_ended(world: World) -> None:
    """More than its credit, and it pauses for longer than a relay waits for those that are silent."""
    server, client = start_late_reader(world, "one")
    assert client.stdout
    sent = client.stdout.readline().strip()
    assert int(sent) > 2 * MOST_WAITING
    time.sleep(relay.LAST_S + 1)
    assert server.communicate("read\n", timeout=60)[0].strip() == sent
    assert client.wait(PATIENCE_S) == 0


def test_nothing_starts_before_all_places_are_there(world: World) -> None:
    process = world.start(0, "sh", "-c", "echo $PYFT_PLACES [$PYFT_RELAY_KEY]", welcome=False)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    world.ends[0].places = ADDRESSES
    assert process.stdout
    assert process.stdout.readline().strip() == f"{','.join(ADDRESSES)} []"
    assert process.wait(PATIENCE_S) == 0


def test_signals_and_ends_are_those_of_the_command(world: World) -> None:
    process = world.start(
        0, sys.executable, "-c", "print(1, flush=True)\nimport time\ntime.sleep(60)"
    )
    assert process.stdout
    assert process.stdout.readline() == "1\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert world.start(1, "/nowhere/program").wait(PATIENCE_S) == relay.NOT_FOUND


def test_a_command_that_is_killed_ends_its_relay_likewise(world: World) -> None:
    process = world.start(0, "sh", "-c", "kill -KILL $$", stderr=subprocess.PIPE)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert process.stderr
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_place_that_has_ended_refuses(world: World) -> None:
    """And who asks what cannot be is answered, or let go."""
    world.start(0, "true").wait(PATIENCE_S)
    client = world.start(1, "sleep", "60")
    name = relayed.name_of(world.names[1])
    wait_until(lambda: asked(name, question(1, 80)) == (0, 80))
    assert asked(name, question(5, 80))[0] == errno.ENETUNREACH
    assert asked(name, question(0, 70000))[0] == errno.ENETUNREACH
    assert asked(name, b"abc") is None
    assert client.poll() is None


def test_the_end_of_a_place_is_heard_though_its_first_word_is_lost(world: World) -> None:
    """Else each connect() would wait for it in vain."""
    client = world.start(1, "sleep", "60")
    name = relayed.name_of(world.names[1])
    wait_until(lambda: asked(name, question(1, 80)) == (0, 80))
    world.loses_end = True
    world.start(0, "true").wait(PATIENCE_S)
    assert not world.loses_end
    assert asked(name, question(0, 80)) == (errno.ECONNREFUSED, 0)
    assert client.poll() is None


def test_the_agents_end_takes_nothing_but_datagrams(world: World) -> None:
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    carried: list[int] = []
    name = f"pyft-test-{secrets.token_hex(6)}"
    end = relayed.Relayed(name, 0, lambda to, _: carried.append(to), relayed.opened(name))
    end.places = ADDRESSES
    where = "\0" + relay.outer_name(end._name)
    for data in (b"", b"x", bytes(200), secrets.token_bytes(4000)):
        stranger.sendto(data, where)
        end.heard(True)
    assert all(to != AGENT for to in carried)  # the others are refused by head and relay
    assert target_of(b"") == AGENT
    stranger.close()


def test_the_next_agent_hears_what_is_said_from_then_on(
    need: Need, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name stays the job's between two agents; what was said before may be of no line."""
    need("root", os.geteuid() == 0, "becomes another user")
    monkeypatch.setenv("PYFT_TOKEN", secrets.token_hex(16))
    name = f"pyft-test-{secrets.token_hex(6)}"
    carried: list[int] = []

    def agent() -> relayed.Relayed:
        kept = socket.socket(fileno=os.dup(held.fileno()))  # as it is handed over
        return relayed.Relayed(name, 0, lambda to, _: carried.append(to), kept)

    with relayed.opened(name) as held, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        where = "\0" + relay.outer_name(relayed.name_of(name))
        agent().socket.close()
        assert as_nobody(lambda: bound(where)) == "OSError"
        own.sendto(said(1), where)
        after = agent()
        own.sendto(said(2), where)
        after.heard(True)
        after.socket.close()
    assert carried == [2]


def test_each_agent_is_given_what_hears_the_relay() -> None:
    name = f"pyft-test-{secrets.token_hex(6)}"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher, _ = socket.socketpair()
    with ours, theirs, launcher:
        supervisor = Supervisor(SimpleNamespace(head="h:1"), launcher, 0, name)  # type: ignore[arg-type]
        supervisor._orders, supervisor._relay = listen(f"{name}-orders"), relayed.opened(name)
        supervisor._agent = ours
        supervisor._hand_over()
        got = SupervisorLink(theirs).take_over()
        assert got.relay
        assert got.orders
        with got.relay, got.orders, supervisor._orders, supervisor._relay:
            assert got.relay.getsockname().decode() == "\0" + relay.outer_name(f"{name}-relay")
            assert got.orders.getsockname().decode() == f"\0{name}-orders"


STRANGER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
relay = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
relay.bind("\\0" + sys.argv[1])
relay.listen()
own = socket.create_server(("127.0.0.1", 0))
print("up", flush=True)
asker = relay.accept()[0]
if asker.recv(8):
    asker.send(b"".join(n.to_bytes(4, sys.byteorder) for n in (0, own.getsockname()[1])))
asker.recv(8)
"""
CALLER = """
import errno, socket
try:
    print(socket.create_connection(("192.0.2.1", 80), 10).getpeername())
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_another_user_who_has_a_relays_name_is_told_nothing(need: Need) -> None:
    need("root", os.geteuid() == 0, "becomes another user")
    name = f"pyft-test-{secrets.token_hex(6)}"
    command = [sys.executable, "-c", STRANGER, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout
        assert stranger.stdout.readline() == "up\n"
        own = {"LD_PRELOAD": str(LIBRARY), "PYFT_RELAY": name, "PYFT_PLACES": "192.0.2.1"}
        caller = subprocess.run(
            [sys.executable, "-c", CALLER],
            **{"env": os.environ | own, "stdout": subprocess.PIPE, "text": True},
            timeout=PATIENCE_S,
            check=True,
        )
    assert caller.stdout == "ENETUNREACH\n"


def bound(where: str) -> str:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(where)
    return "bound"


def said(to: int) -> bytes:
    """Return what a relay says to that of another place."""
    return packed(bytes(16), Datagram(0, to, 1, 0, 0, BARE))


def question(place: int, port: int) -> bytes:
    """Return what shim/places.cc asks."""
    return b"".join(n.to_bytes(4, sys.byteorder) for n in (place, port))


def asked(name: str, question: bytes) -> tuple[int, int] | None:
    """Ask a relay as shim/places.cc does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect("\0" + name)
        sock.sendall(question)
        sock.shutdown(socket.SHUT_WR)
        answer = sock.recv(8)
    return (
        (int.from_bytes(answer[:4], "little"), int.from_bytes(answer[4:], "little"))
        if answer
        else None
    )


def wait_until(is_so: object) -> None:
    """Wait for something; who is asked too early refuses the connection."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            if is_so():  # type: ignore[operator]
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("it does not come about")


def test_what_is_gated_does_not_leave(world: World) -> None:
    world.is_open = [False, False]
    world.start(0, "sleep", "60")
    world.start(1, sys.executable, "-c", CLIENT, "1")
    time.sleep(1.0)
    assert world.carried == 0
