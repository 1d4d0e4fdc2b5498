"""A rank attacks the ranks that it trains with, where descriptors are few: their bits stay equal."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import unix_names
from job import Job
from ranks import free_port
from recovery_run import RANKS

PROGRAM = str(Path(__file__).with_name("peer.py"))
ATTACKS = 11


@pytest.mark.parametrize("byte", [b"\0", b"@", b" ", b"\n", b"\r", b"\xff", b"\0@", b"a\n \0"])
def test_names_of_any_bytes_are_found(byte: bytes) -> None:
    """Each twentieth job has none that a reader of lines and words would find."""
    name = b"\0flexccl-" + secrets.token_bytes(16 - 2 * len(byte)).replace(b"@", b"a") + 2 * byte
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        listener.bind(name)
        listener.listen()
        other.bind(b"\0flexccl-" + secrets.token_bytes(16))
        found = unix_names.names({str(os.fstat(listener.fileno()).st_ino)})
        assert name in found
        assert {len(one) for one in found} == {len(name)}
        assert len(found) <= 1 << 8


def test_a_peer_that_attacks_changes_no_bit(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    pytest.importorskip("torch", reason="[torch]: no PyTorch")
    folder, port = tmp_path / "job", str(free_port())
    job = Job(
        folder,
        [sys.executable, RANKS, "3", PROGRAM],
        options=("--gpus", "soft:3", "--metrics-port", port),
        environment={"META": str(folder / "log" / "meta.json"), "METRICS": port},
        wrapper=("prlimit", "--nofile=1024:1024"),
    )
    try:
        assert job.wait(120) == 0, job.errors() + job.output()
        job.assert_nothing_left()
    finally:
        job.kill_everything()
    lines = job.output().splitlines()
    assert sorted(x for x in lines if x.startswith("rank=")) == [
        f"rank={rank} equal=True" for rank in range(3)
    ]
    done = dict(re.findall(r"^(\w+)=(\d+)$", job.output(), re.MULTILINE))
    assert len(done) == ATTACKS, done
    idle = {name for name, times in done.items() if times == "0"}
    assert idle <= ({"another_user"} if os.geteuid() else set()), job.output()
    assert done["handles"] == "5", "each call is refused"
    recovery = job.meta()["recovery"]
    assert recovery["agent_restarts"] == 0, job.errors()
    assert not [f for f in recovery["faults"] if f["outcome"] != "client ended"], recovery
    assert "Traceback" not in job.errors()
    assert "is lost" not in job.errors()
    need("root", not idle, "only root can become another user: all other attacks are fine")
