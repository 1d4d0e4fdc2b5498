"""A job with more faults than its report lists: what an agent keeps of them, and what each costs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.channel import page
from pyft.agent.job import meta_shape
from pyft.agent.lifecycle import incidents as module
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.operators import metrics
from pyft.recovery import classify, report
from pyft.recovery.earlier import MOST, Earlier
from pyft.recovery.report import Incident

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))
from agent_inputs import Agent  # noqa: E402

FAULTS = 200
FEW = 50  # that are listed
LOST_S, WORKED_S = 2.0, 8.0  # of each fault


class Job:
    """Two ranks that have faults in turn, their incidents, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 500.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.note: dict[str, Any] = {}
        self.incidents = Incidents(self._kept)
        self.fds = [os.memfd_create("control") for _ in range(2)]
        for fd in self.fds:
            os.ftruncate(fd, 4096)
        self.members = [
            SimpleNamespace(id=7 + n, channel=SimpleNamespace(control_fd=fd))
            for n, fd in enumerate(self.fds)
        ]
        mode = SimpleNamespace(name="NORMAL")
        self.ranks = [
            SimpleNamespace(rank=n, device=n, gpu=n, epoch=1, mode=mode, fault=None)
            for n in range(2)
        ]

    def _kept(self, note: dict[str, Any]) -> None:
        self.note = note

    def begin(self, number: int) -> None:
        """Let one server die."""
        which = number % 2
        self.now += WORKED_S
        page.write(self.fds[which], heartbeat_ns=int(self.now * 1e9))
        fault = classify.of_agent("stuck", "nothing was finished", number, 1, 0.0)
        self.ranks[which].fault = fault
        self.incidents.suspected(self.members[which], self.ranks[which])
        self.incidents.died(self.members[which], self.ranks[which], fault)
        self.incidents.started(self.members[which], self.ranks[which])

    def faults(self, count: int, first: int = 0) -> None:
        """Have so many faults, each of which is repaired."""
        for number in range(first, first + count):
            self.begin(number)
            self.now += LOST_S
            self.incidents.live(self.members[number % 2])


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(monkeypatch)
    yield made
    for fd in made.fds:
        os.close(fd)


def test_the_list_has_an_end_and_the_sums_have_not(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", FEW)
    job.faults(FAULTS)
    found = job.incidents.summary()
    assert len(found["faults"]) == len(job.note["all"]) == len(job.note["members"]) == FEW
    assert [fault["seq"] for fault in found["faults"]] == list(range(FAULTS - FEW, FAULTS))
    half = (FAULTS - FEW) // 2
    row = {"fault": "hang", "count": half, "own_errors": 0}
    assert found["earlier"] == [row | {"rank": 0}, row | {"rank": 1}]
    assert found["recovered"] == report.number_of_faults(found) == FAULTS
    assert found["lost_seconds"] == pytest.approx(FAULTS * LOST_S)
    assert found["goodput"] == pytest.approx(WORKED_S / (WORKED_S + LOST_S))
    assert found["verdict"] == "exact"
    assert f"[{FAULTS - FEW}] faults before" in report.table(found)[1]
    assert report.table(found)[-1].startswith(f"{FAULTS} of {FAULTS} recovered")


def test_lost_time_never_falls_while_a_fault_lasts(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank waits for a GPU while another one has more faults than are kept."""
    monkeypatch.setattr(module, "MOST", FEW)
    job.begin(1)
    began = job.now
    lost = []
    for number in range(FAULTS):
        job.faults(1, 2 * number)
        lost.append(job.incidents.summary()["lost_seconds"])
    assert lost == sorted(lost)
    assert lost[-1] == pytest.approx(job.now - began)
    job.incidents.live(job.members[1])
    assert job.incidents.summary()["lost_seconds"] == pytest.approx(job.now - began)


def test_a_fault_counts_alike_whether_it_is_kept_or_not() -> None:
    ends = ("recovered", "recovered", report.DELIVERED, "given up: no GPU", "recovered")
    verdicts = ("exact", "equivalent", "", "", "exact")
    faults = [
        Incident(0, 0, "hang", "", 10.0 * n, 10.0 * n + 1, outcome=end, verdict=verdict)
        for n, (end, verdict) in enumerate(zip(ends, verdicts, strict=True))
    ]
    faults[1].own_error = True
    for fault in faults[:-1]:
        fault.ended = fault.noticed + 2
    wanted = report.summary(faults, 50.0)
    assert (wanted["recovered"], wanted["lost_seconds"]) == (2, 4 * 3.0 + 10.0)
    earlier = Earlier()
    for kept in range(len(faults)):
        found = earlier.summary(faults[kept:], 50.0)
        assert {name: found[name] for name in wanted} == wanted | {"faults": found["faults"]}
        earlier.add(faults[kept], faults[kept + 1 :], 50.0)


def test_meters_count_those_before_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that became less would look like a job that has begun anew."""
    monkeypatch.setattr(module, "MOST", FEW)
    job.faults(FAULTS)
    servers = Agent()
    servers.incidents = job.incidents
    text = metrics.text(servers)  # type: ignore[arg-type]
    for rank in range(2):
        assert f'pyft_faults_total{{class="hang",rank="{rank}"}} {FAULTS / 2}' in text
    assert f"pyft_recoveries_total {FAULTS:.1f}" in text


@pytest.mark.parametrize("kept", [FEW, 1])
def test_what_is_called_another_name_later_makes_no_counter_less(
    job: Job, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(module, "MOST", kept)
    job.faults(FEW)
    for incident in job.incidents.all:
        incident.own_error = True
    servers = Agent()
    servers.incidents = job.incidents
    job.faults(2)
    text = metrics.text(servers)  # type: ignore[arg-type]
    assert f"pyft_recoveries_total {FEW + 2:.1f}" in text


def test_the_shape_of_the_sums_is_known(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", FEW)
    job.faults(FEW + 1)
    recovery = json.loads(json.dumps(job.incidents.summary()))
    assert "recovery." not in meta_shape.damage({"recovery": recovery})
    recovery["earlier"][0]["count"] = "many"
    found = list(meta_shape._damages({"recovery": recovery}))
    assert [one for one in found if one.startswith("recovery.earlier")]


def test_one_that_lasts_stays_in_the_list(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", FEW)
    job.begin(1)
    for number in range(2 * FEW):
        job.faults(1, 2 * number)
    assert job.incidents.open(8) is job.incidents.all[0]
    assert len(job.incidents.all) == FEW
    job.incidents.live(job.members[1])
    assert job.incidents.summary()["faults"][0]["outcome"] == "recovered"


def test_the_next_agent_goes_on_with_the_sums(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", FEW)
    job.faults(FAULTS)
    wanted = job.incidents.summary()
    job.incidents = Incidents(job._kept)
    job.incidents.restore(json.loads(json.dumps(job.note)))
    assert job.incidents.summary() == wanted
    job.faults(2)
    found = job.incidents.summary()
    assert found["recovered"] == FAULTS + 2
    assert sum(row["count"] for row in found["earlier"]) == FAULTS + 2 - FEW


def test_what_a_fault_costs_does_not_grow(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    real = module.text_of
    monkeypatch.setattr(module, "text_of", lambda one: [written.append(one), real(one)][1])
    job.faults(10)
    before = len(written)
    job.faults(10, 10)
    of_ten = len(written) - before
    job.faults(FAULTS - 20, 20)
    before = len(written)
    job.faults(10, FAULTS)
    assert len(written) - before == of_ten
    assert len(job.incidents.all) == FAULTS + 10 <= MOST


def test_what_changes_later_is_kept_as_it_is(job: Job) -> None:
    """Old faults are put into words once; a new number of the rank is in all of them."""
    job.faults(6)
    job.incidents.renamed(7, 5)
    assert [json.loads(text)["rank"] for text in job.note["all"]] == [5, 1, 5, 1, 5, 1]
    job.incidents.all[0].fault = "mismatch"
    job.incidents.voted(job.members[0], 0, "second")
    assert json.loads(job.note["all"][0])["culprit"] == "second"
    page.write(job.fds[0], epoch=1, differed=3)
    job.incidents.recount(job.members[0])  # of the last one, which a rank may still be adding to
    job.incidents.client_gone(7)
    job.faults(1, 7)
    kept = [json.loads(text) for text in job.note["all"]]
    assert kept == job.incidents.summary()["faults"]
    assert kept[4]["differed"] == 3
