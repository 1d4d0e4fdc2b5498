"""What comes to a job's sockets from elsewhere: damage, silence, floods, other users."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable

import pytest
from job import Job, wait_for
from ranks import free_port
from stand_ins import CLIENT, Start, scrape, wait_serving
from strangers import NOBODY, as_nobody

from pyft.agent.operators import orders
from pyft.agent.process import messages
from pyft.errors import UsageError

Need = Callable[[str, bool, str], None]
FEW = 64  # descriptors
FLOOD = 400  # connections


def caller(name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect("\0" + name)  # waits for room in the queue
    made.settimeout(20)
    return made


def clients_name(job: Job) -> str:
    return job.meta()["orders"].removesuffix("-orders")


def serving(start: Start, *options: str) -> Job:
    """Start a job whose client stays for a while."""
    job = start(1, *options, AFTER_S="60")
    wait_serving(job, 1)
    return job


def end(job: Job) -> None:
    """End the client, which is how the job ends."""
    os.kill(job.victim("client"), signal.SIGTERM)
    job.wait(30)


def test_damaged_orders_are_answered(start: Start) -> None:
    job = serving(start)
    agent = job.victim("agent")
    for data in (b"{", b"[]", b'{"rank": 0}', b'{"kind": 1}', b"\0" * 60000):
        with caller(job.meta()["orders"]) as connection:
            connection.send(data)
            got = messages.receive(connection)
            assert got is not None
            assert "is damaged" in got[0]["problem"]
    assert job.ask("drain", "--gpu", "7").returncode == 1
    assert job.victim("agent") == agent
    end(job)


def test_silent_connections_keep_nobody_out(start: Start) -> None:
    job = start(1, command=("sh", "-c", "sleep 60"))
    wait_for((job.log_dir / "meta.json").exists, 20, "a job")
    silent = [caller(job.meta()["orders"]) for _ in range(100)]
    asks = job.ask("replace", "--rank", "0")
    assert "rank [0] has no server" in asks.stderr
    for one in silent:
        one.close()
    os.kill(job.launcher, signal.SIGTERM)
    job.wait(30)


def test_a_client_that_asks_for_nothing_is_sent_away(start: Start) -> None:
    job = serving(start)
    with caller(clients_name(job)) as silent:
        assert silent.recv(1) == b""
    assert f"[pid {os.getpid()}] connects and asks for nothing within [10 s]" in job.errors()
    end(job)


def test_silent_clients_take_no_descriptor_that_is_needed(start: Start) -> None:
    """As under `ulimit -n 64`: of so many connections the agent keeps enough for its work."""
    job = serving(start)
    agent = job.victim("agent")
    for pid in (agent, job.victim("supervisor")):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    silent = []
    for _ in range(2 * FEW):
        silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        silent[-1].connect("\0" + clients_name(job))
    assert job.ask("replace", "--rank", "0").returncode == 0
    wait_for(lambda: "rank [0] goes on after" in job.errors(), 30, "a new server")
    assert job.victim("agent") == agent, job.errors()
    for one in silent:
        one.close()
    end(job)


def test_a_flood_of_another_user_ends_no_agent(start: Start, need: Need) -> None:
    need("root", os.geteuid() == 0, "only root can become another user")
    port = free_port()
    job = serving(start, "--metrics-port", str(port))
    agent = job.victim("agent")
    scrape(port)
    for pid in (agent, job.victim("supervisor")):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, FEW))

    def flood() -> str:
        held = []
        for _ in range(FLOOD):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            held.append(one)
        time.sleep(1)  # they are silent
        return str(len(held))

    assert as_nobody(flood) == str(FLOOD)
    assert "pyft_epoch 1.0" in scrape(port)
    names = (clients_name(job), job.meta()["orders"])

    def knock() -> str:
        for name in names:
            for _ in range(FLOOD):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
                    one.connect("\0" + name)
        return "done"

    assert as_nobody(knock) == "done"
    assert job.ask("drain", "--gpu", "7").returncode == 1
    assert job.victim("agent") == agent
    end(job)
    lines = [line for line in job.errors().splitlines() if "of another user" in line]
    assert len(lines) == 2
    assert job.errors().count(f"refused [{FLOOD - 1}] more connections of users [{NOBODY}]") == 2


def test_nobody_else_takes_an_order(start: Start, need: Need) -> None:
    need("root", os.geteuid() == 0, "only root can become another user")
    job = serving(start)
    meta = job.meta()
    end(job)
    ready, told = os.pipe()

    def squat() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0" + meta["orders"])
            listener.listen(8)
            listener.settimeout(20)
            os.write(told, b"x")
            connection, _ = listener.accept()
            connection.settimeout(20)
            return f"heard {connection.recv(4096)!r}"

    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if as_nobody(squat) == "heard b''" else 2
        finally:
            os._exit(code)
    assert os.read(ready, 1) == b"x"
    with pytest.raises(UsageError, match=rf"belongs to another user \[uid {NOBODY}\]"):
        orders.give(meta, "drain", gpu=0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(ready)
    os.close(told)


def test_names_of_sockets_cannot_be_guessed(start: Start) -> None:
    job = start(1, command=(sys.executable, "-c", CLIENT))
    job.wait(30)
    name, meta = job.meta()["orders"], job.meta()
    assert len(name) - len(f"pyft-{meta['job']}-") - len("-orders") >= 16
