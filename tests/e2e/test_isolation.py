"""What one client that damages its memory, one death or another user does to other ranks: nothing.

`tests/hostile` has more of it, with servers that only
speak the protocols.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import TRAIN, Job, wait_for
from strangers import NOBODY, as_nobody

PROGRAMS = Path(__file__).with_name("programs")
HOLDER = str(PROGRAMS / "holder.py")
STEPS = 4
VANDALS = [("noise", 1), ("noise", 2), ("entries", 3), ("entries", 4), ("end", 5), ("lost", 6)]
PAINTERS = [("geometry", 7), ("page", 8)]  # whom the agent ends
UNAVAILABLE = 46  # cudaErrorDevicesUnavailable
# How the server says that it has stopped reading, whatever it found.
REFUSED = re.compile(r"pyft-server: device \[0\], client \[(\d+)\]: .*(?:entry|ring)")
DAMAGED = re.compile(
    r"^pyft: the server .* of client \[pid (\d+), rank \d+\].*: its memory is damaged: ",
    re.MULTILINE,
)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start jobs in folders of their own and end what is left of them."""
    started: list[Job] = []

    def start(*command: str) -> Job:
        folder = tmp_path / f"job{len(started)}"
        folder.mkdir()
        started.append(Job(folder, command))
        return started[-1]

    yield start
    for job in started:
        job.kill_everything()


def training_lines(job: Job) -> list[str]:
    """Return the losses and hashes that the training has printed."""
    return [line for line in job.output().splitlines() if line.startswith(("step=", "rank="))]


def test_nonsense_in_a_ring_costs_its_own_server_only(jobs: Callable[..., Job]) -> None:
    train = f"{sys.executable} {TRAIN} --steps {STEPS}"
    alone = jobs("sh", "-c", train)
    vandals = [
        f"{sys.executable} {PROGRAMS}/vandal.py {kind} {seed}" for kind, seed in VANDALS + PAINTERS
    ]
    crowd = jobs("sh", "-c", f"{train} & {' & '.join(vandals)} & wait")
    assert alone.wait(120) == 0, alone.errors()
    assert crowd.wait(120) == 0, crowd.errors()
    assert len(training_lines(alone)) == STEPS + 1
    assert training_lines(crowd) == training_lines(alone)
    found = re.findall(r"^(\w+) pid=(\d+) code=(-?\d+)$", crowd.output(), re.MULTILINE)
    assert sorted(kind for kind, _, _ in found) == sorted(kind for kind, _ in VANDALS + PAINTERS)
    # Who has written an error into the own page gets that one.
    codes = {pid: code for kind, pid, code in found}
    theirs = {code for kind, _, code in found if kind not in ("lost", "page")}
    assert theirs == {str(UNAVAILABLE)}
    refused, damaged = REFUSED.findall(crowd.errors()), DAMAGED.findall(crowd.errors())
    assert sorted(refused + damaged) == sorted(codes), "whose servers have ended"
    assert len(damaged) == len(PAINTERS), crowd.errors()
    assert not re.search(r"GPU \[\d+\] is lost", crowd.errors())
    told = crowd.meta()["recovery"]
    assert told["agent_restarts"] == 0
    assert [one["restored_bytes"] for one in told["faults"]] == [0] * len(codes), "read nowhere"


def shared_memory_of(pid: int) -> list[str]:
    """Return who holds the memory of this client's channel."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if "memfd:pyft-" in target and f"-pid{pid}-" in target:
            found.append(f"{entry} {target}")
    return found


def test_killed_clients_and_launchers_leave_nothing(jobs: Callable[..., Job]) -> None:
    job = jobs("sh", "-c", f"{sys.executable} {HOLDER} & {sys.executable} {HOLDER}; sleep 60")
    wait_for(lambda: job.output().count("ready") == 2, 60, f"two clients: {job.errors()}")
    wait_for(lambda: len(job.meta()["live"]) == 2, 5, "the agent writes down what is live")
    one, other = job.meta()["live"]
    assert len(shared_memory_of(one["pid"])) >= 3 * 4  # client, server and agent
    os.kill(one["pid"], signal.SIGKILL)
    wait_for(lambda: not shared_memory_of(one["pid"]), 2, "the memory of a killed client goes")
    assert one["server_pid"] not in job.processes()
    assert {other["pid"], other["server_pid"]} <= set(job.processes())
    os.kill(job.launcher, signal.SIGKILL)
    job.assert_nothing_left(5)
    assert not shared_memory_of(other["pid"])


def test_other_users_get_in_nowhere(
    jobs: Callable[..., Job], need: Callable[[str, bool, str], None]
) -> None:
    need("root", os.geteuid() == 0, "only root can become another user")
    job = jobs(sys.executable, HOLDER)
    wait_for(lambda: "ready" in job.output(), 60, f"a client: {job.errors()}")
    job.wait_attached()
    (live,) = job.meta()["live"]
    agent = job.meta()["agent_pid"]
    environment = Path(f"/proc/{live['pid']}/environ").read_bytes().split(b"\0")
    (name,) = (
        v[len("PYFT_AGENT=") :].decode() for v in environment if v.startswith(b"PYFT_AGENT=")
    )

    def connect() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent_socket:
            agent_socket.settimeout(10)
            agent_socket.connect("\0" + name)
            message, descriptors, _, _ = socket.recv_fds(agent_socket, 4096, 8)
            return f"{len(message)} bytes, {len(descriptors)} descriptors"

    assert as_nobody(connect) in ("0 bytes, 0 descriptors", "ConnectionResetError")
    wait_for(
        lambda: f"refused a connection of another user [uid {NOBODY}]" in job.errors(), 5, "a line"
    )
    for pid in (agent, live["pid"], live["server_pid"]):
        assert as_nobody(lambda pid=pid: str(os.listdir(f"/proc/{pid}/fd"))) == "PermissionError"
    for fd in (live["log_fd"], live["control_fd"]):
        assert as_nobody(lambda fd=fd: str(os.open(f"/proc/{agent}/fd/{fd}", os.O_RDONLY))) == (
            "PermissionError"
        )
    # Saved traces are as private as the memory was.
    assert job.log_dir.stat().st_mode & 0o077 == 0
    os.kill(live["pid"], signal.SIGKILL)
    job.wait(30)
    (saved,) = job.log_dir.glob("*.ring")
    assert saved.stat().st_mode & 0o077 == 0
