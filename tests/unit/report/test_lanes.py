"""What is put together of a job's records: lanes, and the list of past jobs."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sample

from pyft.agent.agent import Agent
from pyft.agent.clients import Clients
from pyft.agent.job import job_folder
from pyft.agent.operators.timeline import FILE, Timeline
from pyft.cli import coverage
from pyft.cli import report as report_command
from pyft.errors import TraceError
from pyft.recovery import report
from pyft.report import chart, history, lanes, page, perfetto
from pyft.top.look import look


def test_lanes_of_a_job(tmp_path: Path) -> None:
    job = lanes.read(sample.write(tmp_path / "job", sample.fault()))
    first, second = job.lanes
    assert (first.rank, second.rank) == (0, 1)
    assert len(first.steps) == len(second.steps) == 10
    assert first.steps == [float(step) for step in range(2, 12)]
    assert not first.exact  # of no ring
    assert [one.name for one in second.snapshots] == [f"cut {cut}" for cut in range(1, 6)]
    assert [gpu for _, gpu in second.gpus] == [1, 2]
    assert not first.faults
    (fault,) = second.faults
    assert (fault.number, fault.name, fault.start, fault.end) == (1, "gpu-lost", 3.0, 3.5)
    assert [one.name for one in fault.phases] == ["detect", "restore"]
    assert fault.phases[-1].end == pytest.approx(3.5)
    assert job.state == "exit code 0"
    assert job.seconds == 12.0


def test_the_ring_knows_the_last_steps_exactly() -> None:
    seen = [(1.0, 0), (2.0, 4), (3.0, 8)]
    count, steps = lanes._steps(seen, lanes.InRing([2.6, 2.7, 2.9], 8))
    assert count == 8
    assert steps == [1.25, 1.5, 1.75, 2.0, 2.25, 2.6, 2.7, 2.9]
    whole = [float(k) for k in range(8)]
    assert lanes._steps(seen, lanes.InRing(whole, 8)) == (8, whole)
    assert lanes._steps([], lanes.InRing([1.0], 1)) == (1, [1.0])


def test_the_ring_has_counted_more_steps_than_the_agent_has_seen() -> None:
    """The agent may have been dead, or its disk full, while an older part of the ring was lost."""
    found = lanes._steps([(1.0, 0), (2.0, 4)], lanes.InRing([3.5, 4.0], 8))
    assert found == (8, [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0])
    assert lanes._steps([], lanes.InRing([4.0], 4)) == (4, [1.0, 2.0, 3.0, 4.0])
    damaged = lanes._steps([(1.0, 0), (2.0, 4)], lanes.InRing([1.2, 1.4], 2))
    assert damaged == (4, [1.2, 1.4, 1.75, 2.0])


def test_all_steps_are_counted_and_the_last_ones_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of a rank, one after the other, have made more than a page can show."""
    for module in (lanes, page):
        monkeypatch.setattr(module, "MOST_STEPS", 4)
    folder = sample.write(tmp_path / "job", steps=3)
    meta = json.loads((folder / "meta.json").read_text())
    for channel in meta["channels"]:
        channel |= {"rank": 0, "device": 0}
    (folder / "meta.json").write_text(json.dumps(meta))
    job = lanes.read(folder)
    (lane,) = job.lanes
    assert (lane.count, lane.steps) == (6, [3.0, 3.0, 4.0, 4.0])
    assert "about 6 steps" in report_command.summary(job)[2]
    assert "<b>6</b>steps" in page.html(job)
    assert "the last 4 steps are shown" in page.html(job)
    names = [one["name"] for one in perfetto.trace(job)["traceEvents"] if one["ph"] == "X"]
    assert names == ["step 4", "step 5", "step 6"]
    one = lanes._steps([(0.0, 0), (9.0, 9)], lanes.InRing())
    assert one == (9, [6.0, 7.0, 8.0, 9.0])


def test_an_exec_makes_another_process_of_the_same_pid(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", steps=3)
    meta = json.loads((folder / "meta.json").read_text())
    for process, channel in enumerate(meta["channels"], 1):
        channel |= {"rank": 0, "pid": 9, "process": process, "calls": {"cudaMalloc": process}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (lane,) = lanes.read(folder).lanes
    assert lane.count == 6
    assert coverage.counts_of(str(folder)) == {"cudaMalloc": 3}


def test_a_step_on_two_devices_of_a_process_is_one(tmp_path: Path) -> None:
    """A process without a launcher has both; under one it may look at another rank's device."""
    folder = sample.write(tmp_path / "job", steps=4)
    meta = json.loads((folder / "meta.json").read_text())
    for channel in meta["channels"]:
        channel |= {"rank": 0, "pid": 9}
    (folder / "meta.json").write_text(json.dumps(meta))
    (lane,) = lanes.read(folder).lanes
    assert lane.steps == [2.0, 3.0, 4.0, 5.0]
    assert [one.name for one in lane.snapshots] == ["cut 1", "cut 2"]
    assert ">GPU 0, 1</text>" in chart.svg([lane], 0.0, 9.0, "x")


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", steps=2)
    with (folder / FILE).open("a") as file:
        file.write('{"t": 9, "id": 0, "steps": 18446744073709551615, "snapshot": -1}\n')
        file.write('[]\n{"t": "x", "id": [1]}\nnot json\n{"t": 9, "id": 0, "st')
    job = lanes.read(folder)
    assert [lane.rank for lane in job.lanes] == [0, 1]
    assert len(job.lanes[1].steps) == 2


def test_a_rank_that_went_back_has_its_steps_once(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", steps=4)
    with (folder / FILE).open("a") as file:
        for step in range(2, 6):
            file.write(
                json.dumps({"t": 8.0 + step, "id": 0, "steps": step, "snapshot": 2, "gpu": 0})
                + "\n"
            )
    assert len(lanes.read(folder).lanes[0].steps) == 5


@pytest.mark.parametrize(("ended", "lost"), [(3.5, 0.5), (0.0, 0.5 + 38)])
def test_goodput_of_a_job_that_runs_counts_up_to_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: float, lost: float
) -> None:
    """The file of such a job is as old as its last event, here 38 s."""
    now = 50_000.0
    monkeypatch.setattr(history.time, "time", lambda: now)
    fault = sample.fault()
    fault.ended = ended
    recovery = report.summary([fault], 12.0) | {"lost_seconds": 0.5}
    recovery |= {"corruptions": [], "not_injected": []}
    more = {"state": "running", "ended": None, "written": now - 38, "recovery": recovery}
    folder = sample.write(tmp_path / "job", **more)
    before = lanes.read(folder).recovery
    assert before["goodput"] == recovery["goodput"], "it does not run any more"
    monkeypatch.setattr(job_folder, "is_live", lambda meta: True)
    wanted = pytest.approx(1 - lost / 50, abs=1e-6)
    for found in (lanes.read(folder).recovery, look(folder).recovery):
        assert (found["goodput"], found["lost_seconds"], found["seconds"]) == (wanted, lost, 50)
    assert lanes.read(folder).faults[0].end == (ended or 50), "it goes on"
    assert f"goodput {1 - lost / 50:.4f}" in report_command.summary(lanes.read(folder))[-1]


def test_what_an_older_version_has_written_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovery = {"faults": [], "goodput": 0.9, "lost_seconds": 1.0}
    folder = sample.write(tmp_path / "job", state="running", recovery=recovery)
    monkeypatch.setattr(job_folder, "is_live", lambda meta: True)
    assert lanes.read(folder).recovery["goodput"] == 0.9


def test_the_list_of_jobs(tmp_path: Path) -> None:
    state = job_folder.state_folder()
    for number, faults in enumerate([(), (sample.fault(),)]):
        sample.write(state / f"20260101-00000{number}-{number}", *faults)
    head, last, first = history.table(job_folder.jobs())
    assert head.split()[0] == "job"
    assert "1 of 1 recovered  exit code 0" in last
    assert "none" in first
    assert history.find(None).name == "20260101-000001-1"
    assert history.find("20260101-000000-0").name == "20260101-000000-0"
    with pytest.raises(TraceError, match="pyft report --list"):
        history.find("nothing")


def test_what_a_job_that_died_is_called(tmp_path: Path) -> None:
    more = {"state": "running", "supervisor_pid": 2**22 + 1, "ended": None, "written": 1008.0}
    folder = sample.write(tmp_path / "job", steps=3, **more)
    meta = json.loads((folder / job_folder.META).read_text())
    del meta["channels"][0]["server_ended"]
    (folder / job_folder.META).write_text(json.dumps(meta))
    job = lanes.read(folder)
    assert job.state == "died with launcher and supervisor"
    assert job.seconds == 8.0, "as much as is known"
    assert " 8 s " in history.table([folder])[1]
    shown = page.html(job)
    assert ">not known<" in shown
    assert ">runs<" not in shown


def member(tmp_path: Path, **fields: int) -> SimpleNamespace:
    """Return what the agent has of a client, with a control page in a file."""
    from pyft.wire.layout import CONTROL_PAGE

    file = (tmp_path / "control").open("w+b")
    file.truncate(4096)
    for name, value in fields.items():
        CONTROL_PAGE[name].put(file.fileno(), value)
    channel = SimpleNamespace(control_fd=file.fileno(), device=0, file=file)
    return SimpleNamespace(id=7, saved=False, channel=channel, server=SimpleNamespace(gpu=3))


def test_the_agent_writes_only_what_has_changed(tmp_path: Path) -> None:
    one = member(tmp_path, steps=4, snapshot_cut=3)
    due: list[float] = []
    loop = SimpleNamespace(after=lambda seconds, _: due.append(seconds))
    begun = time.monotonic() - 1000
    timeline = Timeline(tmp_path, loop, begun, lambda: [one])
    timeline.begin()
    timeline.look()
    start, seen = map(json.loads, (tmp_path / FILE).read_text().splitlines())
    assert start == {"start_ns": int(begun * 1e9)}
    assert seen.pop("t") == pytest.approx(1000, abs=60)
    assert seen == {"id": 7, "steps": 4, "snapshot": 3, "gpu": 3}
    assert due[0] >= 0.5  # a job that runs for long is looked at less often
    one.saved = True
    timeline.look()
    assert len((tmp_path / FILE).read_text().splitlines()) == 2


def test_the_last_steps_of_a_client_are_written_before_its_memory_is_gone(tmp_path: Path) -> None:
    """It may end long before the job, and long after the last look."""
    one = member(tmp_path, steps=4)
    one.connection, one.pidfd, one.server_pid = None, -1, 0
    nothing: Any = SimpleNamespace()
    loop: Any = SimpleNamespace(after=lambda *_: None, forget=lambda _: None)
    agent: Any = SimpleNamespace(_timeline=Timeline(tmp_path, loop, 0.0, lambda: [one]))
    servers: Any = SimpleNamespace(keep=lambda: None, forget=lambda _: None)
    servers.incidents = SimpleNamespace(recount=lambda _: None)
    servers.injector = SimpleNamespace(count=lambda _: None)
    supervisor: Any = SimpleNamespace(drop=lambda _: None, forget=lambda _: None)
    options: Any = SimpleNamespace(log_dir=tmp_path)
    one.channel.name, one.save = "one", lambda _: one.channel.file.close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        clients = Clients(
            *(options, loop, supervisor, servers, ours, nothing, lambda *_: None, nothing),
            lambda member: Agent._last_look(agent, member),
        )
        clients.save(one)
    (seen,) = map(json.loads, (tmp_path / FILE).read_text().splitlines())
    assert (seen["id"], seen["steps"]) == (7, 4)


def test_a_full_disk_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loop = SimpleNamespace(after=lambda *_: None)
    timeline = Timeline(tmp_path / "gone", loop, time.monotonic(), lambda: [member(tmp_path)])
    timeline.begin()
    timeline.look()
    assert capfd.readouterr().err.count("cannot be written") == 1
