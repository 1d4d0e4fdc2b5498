"""Two real heads whose ledger is in Kubernetes: one dies, is paused, or the API server is away.

The API server is a stand-in with the real protocol (fake_kubernetes.py), and so are the hosts.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubernetes import ApiServer
from job import wait_for
from real_heads import LEASE, SECRET, Heads, ends_well
from stand_in_hosts import Job

from pyft.cli import hosts

LEDGER = "kubernetes://training/run7"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A stand-in of the API server."""
    made = ApiServer()
    yield made
    made.lose = lambda _: False
    made.stop()


@pytest.fixture
def heads(tmp_path: Path, server: ApiServer) -> Iterator[Heads]:
    """Two heads, of which the first one decides."""
    made = Heads(tmp_path, LEDGER, PYFT_KUBERNETES_API=server.url)
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


def holder(server: ApiServer) -> str:
    """Return which head the Lease names."""
    return str(server.cluster.objects["leases", "run7"]["spec"].get("holderIdentity", ""))


def test_a_head_with_a_lease_is_killed_and_then_a_host_is_lost(
    heads: Heads, job: Job, server: ApiServer
) -> None:
    heads.wait_for(1, "decides for this job; this one waits")
    assert f"process {heads.processes[0].pid}, " in holder(server)
    heads.processes[0].send_signal(signal.SIGKILL)
    wait_for(lambda: job.answered_by(2), 30, heads.everything)
    assert f"process {heads.processes[1].pid}, " in holder(server)
    job.owners[1].die()
    heads.wait_for(1, "host [s0] takes place [1]")
    heads.wait_for(1, "all have come back, and go on")
    wait_for(lambda: len(job.owners) == 3, 20, heads.everything)
    assert job.owners[2].life == 2
    ends_well(job, heads, [1])
    assert holder(server) == ""  # it has let go at its end


@pytest.mark.long
def test_a_paused_head_with_a_lease_says_nothing_when_it_wakes(
    heads: Heads, job: Job, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_TOKEN", SECRET)
    heads.processes[0].send_signal(signal.SIGSTOP)
    wait_for(lambda: job.answered_by(2), 30, heads.everything)
    heads.processes[0].send_signal(signal.SIGCONT)
    heads.wait_for(0, "decides no more: ")
    heads.wait_for(0, "this one waits")
    assert hosts.ask(heads.all, "status")["term"] == 2
    assert f"process {heads.processes[1].pid}, " in holder(server)
    heads.processes[1].send_signal(signal.SIGKILL)
    wait_for(lambda: job.answered_by(3), 30, heads.everything)
    assert "is lost" not in heads.everything()
    assert [one.life for one in job.living()] == [1, 1]
    ends_well(job, heads, [0])


@pytest.mark.long
def test_the_api_server_starts_again(heads: Heads, job: Job, server: ApiServer) -> None:
    """No head decides meanwhile, and no host is lost by that."""
    server.stop()
    heads.wait_for(0, "the API server has confirmed nothing for")
    server.start()
    wait_for(lambda: max(max(one.terms) for one in job.living()) > 1, 30, heads.everything)
    wait_for(lambda: len({max(one.terms) for one in job.living()}) == 1, 30, heads.everything)
    assert "is lost" not in heads.everything()
    for one in job.living():
        one.done()
    for process in heads.processes:  # the one that waits is told by the ledger
        assert process.wait(60) == 0, heads.everything()
    job.check_owners()


@pytest.mark.long
def test_answers_of_the_api_server_are_slow_and_lost(
    heads: Heads, job: Job, server: ApiServer
) -> None:
    """All is done, and every fifth answer does not come: the head asks until it knows."""
    dice = random.Random(1)
    server.latency_s = 0.05
    server.lose = lambda _: dice.random() < 0.2
    lines = lambda: heads.said(0).count("is the line of all")  # noqa: E731
    before = lines()
    wait_for(lambda: lines() > before + 5, 60, heads.everything)
    assert "decides no more" not in heads.everything()
    assert "is lost" not in heads.everything()
    ends_well(job, heads, [0])
