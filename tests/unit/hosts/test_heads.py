"""Two real heads with a real etcd: one dies, is paused, or etcd is away; the job goes on.

And one head with a file, which is paused.

The hosts are stand-ins (stand_in_hosts.py) that speak to the heads as hosts do.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import etcd_server
import pytest
from job import wait_for
from real_heads import LEASE, SECRET, Heads, ends_well
from stand_in_hosts import Job

from pyft.cli import hosts
from pyft.errors import UsageError
from pyft.hosts.etcd import opening


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


def test_the_only_head_is_paused_for_longer_than_the_lease(tmp_path: Path) -> None:
    """What hosts have said meanwhile waits in its sockets: nobody is lost when it wakes."""
    heads = Heads(tmp_path, str(tmp_path / "ledger"), count=1)
    job = Job(heads.all, SECRET.encode(), LEASE)
    try:
        job.start(2, 1)
        wait_for(job.has_line, 30, heads.everything)
        heads.processes[0].send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE)
        woken = time.monotonic()
        heads.processes[0].send_signal(signal.SIGCONT)
        renewed = lambda: all(one.until > woken + LEASE for one in job.owners)  # noqa: E731
        wait_for(renewed, 30, heads.everything)
        assert "is lost" not in heads.everything()
        assert [one.life for one in job.living()] == [1, 1]
        ends_well(job, heads, [0])
    finally:
        job.end()
        heads.end()


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
