"""Two real heads with a real etcd: one dies, is paused, or etcd is away; the job goes on.

The hosts are stand-ins (stand_in_hosts.py) that speak to the heads as hosts do.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import etcd_server
import pytest
from job import wait_for
from stand_in_hosts import Job

from pyft.cli import hosts
from pyft.errors import UsageError
from pyft.hosts.etcd import opening

SECRET = "0123456789abcdef"
LEASE = 3.0


class Heads:
    """So many heads of one job."""

    def __init__(self, folder: Path, ledger: str, count: int = 2) -> None:
        self.folder, self._ledger = folder, ledger
        self.addresses = [f"127.0.0.1:{_free_port()}" for _ in range(count)]
        self.processes: list[subprocess.Popen[bytes]] = []
        for number, address in enumerate(self.addresses):
            arguments = ["head", "--places", "2", "--listen", address, "--ledger", ledger]
            arguments += ["--lease", f"{LEASE:g}", "--image-every", "0.2"]
            with open(folder / f"head-{number}", "ab") as out:
                made = subprocess.Popen(
                    [sys.executable, "-m", "pyft", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=folder,
                    env=os.environ | {"PYFT_TOKEN": SECRET},
                )
            self.processes.append(made)
            if not number:
                wait_for(lambda: "waits at" in self.said(0), 20, self.everything)

    @property
    def all(self) -> str:
        """Return their addresses, as hosts are told them."""
        return ",".join(self.addresses)

    def said(self, number: int) -> str:
        """Return what one of them has said."""
        return (self.folder / f"head-{number}").read_text()

    def everything(self) -> str:
        """Return what all have said."""
        return "\n".join(f"--- head {n}\n{self.said(n)}" for n in range(len(self.processes)))

    def wait_for(self, number: int, text: str, seconds: float = 20) -> None:
        """Wait until one of them has said something."""
        wait_for(lambda: text in self.said(number), seconds, self.everything)

    def end(self) -> None:
        """End all of them."""
        for one in self.processes:
            one.kill()
            one.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def etcd(tmp_path: Path, need: Any) -> Iterator[etcd_server.Etcd]:
    """A real etcd."""
    why = etcd_server.lacks()
    need("etcd", not why, why)
    made = etcd_server.Etcd(tmp_path / "etcd")
    yield made
    made.end()


@pytest.fixture
def heads(tmp_path: Path, etcd: etcd_server.Etcd) -> Iterator[Heads]:
    """Two heads, of which the first one decides."""
    made = Heads(tmp_path, etcd.url)
    yield made
    made.end()


@pytest.fixture
def job(heads: Heads) -> Iterator[Job]:
    """Two places and a spare host, with a line."""
    made = Job(heads.all, SECRET.encode(), LEASE)
    made.start(2, 1)
    wait_for(made.has_line, 30, heads.everything)
    yield made
    made.end()


def ends_well(job: Job, heads: Heads, of: list[int]) -> None:
    """End the job: its heads say so."""
    for one in job.living():
        one.done()
    for number in of:
        assert heads.processes[number].wait(60) == 0, heads.everything()
    job.check_owners()


def test_a_head_is_killed_and_then_a_host_is_lost(heads: Heads, job: Job) -> None:
    heads.wait_for(1, "decides for this job; this one waits")
    heads.processes[0].send_signal(signal.SIGKILL)
    wait_for(lambda: job.answered_by(2), 30, heads.everything)
    first = [one.host for one in job.living()]
    assert first == ["h0", "h1"], heads.everything()
    job.owners[1].die()
    heads.wait_for(1, "host [s0] takes place [1]")
    heads.wait_for(1, "all have come back, and go on")
    wait_for(lambda: len(job.owners) == 3, 20, heads.everything)
    assert job.owners[2].life == 2
    ends_well(job, heads, [1])


@pytest.mark.long
def test_a_paused_head_says_nothing_when_it_wakes(
    heads: Heads, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hosts have another head by then; it stands for election, and decides when that dies."""
    monkeypatch.setenv("PYFT_TOKEN", SECRET)
    heads.processes[0].send_signal(signal.SIGSTOP)
    wait_for(lambda: job.answered_by(2), 30, heads.everything)
    heads.processes[0].send_signal(signal.SIGCONT)
    heads.wait_for(0, "decides no more: ")
    heads.wait_for(0, "this one waits")
    assert hosts.ask(heads.all, "status")["term"] == 2
    heads.processes[1].send_signal(signal.SIGKILL)
    wait_for(lambda: job.answered_by(3), 30, heads.everything)
    assert "is lost" not in heads.everything()
    assert [one.life for one in job.living()] == [1, 1]
    ends_well(job, heads, [0])


@pytest.mark.long
def test_etcd_is_away_for_a_while(heads: Heads, job: Job, etcd: etcd_server.Etcd) -> None:
    """No head decides meanwhile, and no host is lost by that."""
    etcd.pause()
    heads.wait_for(0, "etcd has confirmed nothing for")
    etcd.go_on()
    wait_for(lambda: max(max(one.terms) for one in job.living()) > 1, 30, heads.everything)
    wait_for(lambda: len({max(one.terms) for one in job.living()}) == 1, 30, heads.everything)
    assert "is lost" not in heads.everything()
    for one in job.living():
        one.done()
    for process in heads.processes:  # the one that waits is told by the ledger
        assert process.wait(60) == 0, heads.everything()
    job.check_owners()


def test_etcd_by_tls(tmp_path: Path, need: Any) -> None:
    why = etcd_server.lacks()
    need("etcd", not why, why)
    made = etcd_server.Etcd(tmp_path / "etcd", "--auto-tls")
    try:
        url = f"etcds://{made.address}:{made.port}"
        authority = next(made.folder.glob("data-*/fixtures/client/cert.pem"))
        trusting = opening.opened(url, b"s" * 16, "h", {"PYFT_ETCD_CA": str(authority)})
        trusting.stand(2, print)
        trusting.write({"kind": "term", "term": 1})
        trusting.close()
        with pytest.raises(UsageError, match="is not trusted, see PYFT_ETCD_CA"):
            opening.opened(url, b"s" * 16, "h", {}).stand(2, print)
    finally:
        made.end()
