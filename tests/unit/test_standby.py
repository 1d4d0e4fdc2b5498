"""Servers that stand by: which are started, taken and ended; with a program that only sleeps."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from job import wait_for

from pyft.agent.standby.standby import ANY, Standby

ENVIRONMENT = {"PATH": os.environ["PATH"], "A": "1"}


class Parent:
    """What a pool uses of its supervisor: here the test is the servers' parent."""

    def start(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(arguments, env=dict(environment))
        process.returncode = 0  # reaped by the test
        return process.pid, ours

    def kill(self, pid: int, number: int) -> None:
        os.kill(pid, number)

    def forget(self, pid: int) -> None:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Standby]:
    program = tmp_path / "server"
    program.write_text('#!/bin/sh\nexec sleep "1000$PYFT_STANDBY"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    made = Standby(Parent(), program)
    yield made
    made.end()
    for pid in made.pids:
        os.waitpid(pid, 0)


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_server_stands_by_for_each_gpu(pool: Standby) -> None:
    pool.fill(ENVIRONMENT, [0, 2], lambda gpu: {"PYFT_STANDBY": str(gpu)})
    assert len(pool.pids) == 2
    server = pool.take(ENVIRONMENT | {"A": "2"}, 5, 2)
    assert server is not None
    assert (server.epoch, server.gpu, server.settings) == (5, 2, "A=2")
    wait_for(lambda: "10002" in command(server.pid), 20, "it was started for GPU 2")
    assert pool.take(ENVIRONMENT, 6, 2) is None, "the other one is for GPU 0"
    pool.fill(ENVIRONMENT, [0, 2], lambda gpu: {"PYFT_STANDBY": str(gpu)})
    assert len(pool.pids) == 2
    server.kill()
    os.waitpid(server.pid, 0)


def test_servers_for_gpus_that_nobody_wants_are_ended(pool: Standby) -> None:
    pool.fill(ENVIRONMENT, [0, 1])
    (kept, *others) = sorted(pool.pids)
    pool.fill(ENVIRONMENT, [0])
    for pid in others:
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        pool.reaped(pid)
    assert pool.pids == {kept}
    assert pool.take(ENVIRONMENT, 2, 1) is None


@pytest.mark.parametrize("name", ["SOFTGPU_FAULT", "SOFTGPU_CONTROL"])
def test_one_that_would_hear_of_no_fault_is_left_to_others(pool: Standby, name: str) -> None:
    """Its soft GPU is there already. So the first server of a rank, which is to fail, is started."""
    pool.fill(ENVIRONMENT, [1])
    assert pool.take(ENVIRONMENT | {name: "lost"}, 1, 1) is None
    server = pool.take(ENVIRONMENT, 2, 1)
    assert server is not None
    server.kill()
    os.waitpid(server.pid, 0)


def test_a_server_for_any_gpu_is_the_second_choice(pool: Standby) -> None:
    pool.fill(ENVIRONMENT, [ANY, 1])
    first, second = pool.take(ENVIRONMENT, 2, 1), pool.take(ENVIRONMENT, 2, 1)
    assert first is not None
    assert second is not None
    assert pool.take(ENVIRONMENT, 2, 1) is None
    assert first.pid > second.pid, "the one for GPU 1 was started later"
    for server in (first, second):
        server.kill()
        os.waitpid(server.pid, 0)
