"""The time that a user waits for a fault: in the message, the table and the report alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.lifecycle import decisions
from pyft.agent.lifecycle import incidents as module
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.process import messages
from pyft.recovery import classify, report


class Job:
    """One rank, its incidents, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 500.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.incidents = Incidents(lambda note: None)
        self.fd = os.memfd_create("control")
        os.ftruncate(self.fd, 4096)
        self.member = SimpleNamespace(id=7, channel=SimpleNamespace(control_fd=self.fd))
        mode = SimpleNamespace(name="NORMAL")
        self.rank = SimpleNamespace(rank=0, device=0, gpu=0, epoch=1, mode=mode, fault=None)

    def hang(self, lasted: float) -> None:
        """Let it be noticed after `lasted` seconds in which its server has beaten."""
        self.now += lasted
        page.write(self.fd, heartbeat_ns=int(self.now * 1e9))
        why = f"nothing was finished for [{lasted:.1f} s]"
        self.rank.fault = classify.of_agent("stuck", why, 4, 1, lasted)
        self.incidents.suspected(self.member, self.rank)
        self.incidents.died(self.member, self.rank, self.rank.fault)
        self.incidents.started(self.member, self.rank)

    def sentence(self, monkeypatch: pytest.MonkeyPatch) -> str:
        said: list[str] = []
        monkeypatch.setattr(messages, "say", said.append)
        decisions.say_recovered(self.incidents, self.member)
        return said[0]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(monkeypatch)
    yield made
    os.close(made.fd)


def test_a_hang_counts_from_its_beginning(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.now += 10
    job.hang(60.5)
    job.now += 0.119
    job.incidents.live(job.member)
    words = "rank [0] goes on after [60.6 s] on GPU [0]: [60.5 s] to notice, [119 ms] to repair "
    sentence = job.sentence(monkeypatch)
    assert sentence == words + "(fault [hang], [0] entries replayed, exact)"
    found = job.incidents.summary()
    (fault,) = found["faults"]
    assert fault["total_ms"] == pytest.approx(60_619)
    assert fault["phases_ms"]["detect"] == pytest.approx(60_500)
    assert found["lost_seconds"] == pytest.approx(60.619)
    assert (found["seconds"], found["goodput"]) == (70.619, pytest.approx(10 / 70.619, abs=1e-6))
    job.now += 100  # as /metrics tells it, which has no file between
    assert job.incidents.summary()["goodput"] == pytest.approx(110 / 170.619, abs=1e-6)
    head, row, *_ = report.table(found)
    total = head.replace("at s", "at").split().index("total")
    assert row.split()[total : total + 2] == ["60.6", "s"]


def test_attempts_that_failed_count(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.hang(60)
    job.now += 1
    job.hang(60)  # the new server hangs as well
    job.now += 2
    job.incidents.live(job.member)
    words = "rank [0] goes on after [123.0 s] on GPU [0]: [60.0 s] to notice, [63.0 s] to repair"
    assert job.sentence(monkeypatch).startswith(words)
    assert [fault["total_ms"] for fault in job.incidents.summary()["faults"]] == [121_000, 2_000]


def test_a_wait_for_a_gpu_is_a_phase_of_its_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Incidents, "started", lambda *_: None)
        job.hang(1.0)
    job.incidents.waits(job.member)
    (fault,) = job.incidents.summary()["faults"]
    assert (fault["waits_since"], fault["action"]) == (job.incidents.now(), "waits for a GPU")
    job.now += 21
    job.incidents.waits(job.member)  # and still does
    job.incidents.started(job.member, job.rank)
    job.now += 0.5
    job.incidents.live(job.member)
    (fault,) = job.incidents.summary()["faults"]
    assert fault["waits_since"] == 0
    assert fault["action"].startswith("new server on ")
    assert (fault["phases_ms"]["wait"], fault["phases_ms"]["spawn"]) == (21_000, 500)
    assert sum(fault["phases_ms"].values()) == fault["total_ms"]


@pytest.mark.parametrize("end", ["given_up", "client_gone", "left"])
def test_a_wait_that_ends_without_a_gpu_is_over(
    job: Job, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Incidents, "started", lambda *_: None)
        job.hang(1.0)
    job.incidents.waits(job.member)
    job.now += 3
    ends = {
        "given_up": lambda: job.incidents.given_up(job.member, "why"),
        "client_gone": lambda: job.incidents.client_gone(7),
        "left": job.incidents.left,
    }
    ends[end]()
    (fault,) = job.incidents.all
    assert (fault.waits_since, fault.phases_ms) == (0, {"wait": 3000})
    assert fault.action != "waits for a GPU"


def test_an_injected_hang_counts_from_where_work_stood_still(job: Job) -> None:
    job.incidents.injected(job.member)
    job.now += 20  # its launch comes later
    job.hang(60)
    job.incidents.live(job.member)
    assert job.incidents.summary()["faults"][0]["total_ms"] == pytest.approx(60_000)


def test_lengths_in_words() -> None:
    assert [report.span(s) for s in (0.0421, 0.9994, 1.0, 60.87)] == [
        "42 ms",
        "999 ms",
        "1.0 s",
        "60.9 s",
    ]


def test_a_fault_whose_place_goes_to_another_host_is_closed(job: Job) -> None:
    """The report of this host tells of it; what became of the rank the other host knows."""
    job.hang(1.0)
    job.incidents.left()
    (fault,) = job.incidents.all
    assert (fault.outcome, fault.ended) == (report.MOVED, job.incidents.now())
    assert job.incidents.open(7) is None
    job.incidents.left()  # once
    assert fault.action == "its place goes to another host"
