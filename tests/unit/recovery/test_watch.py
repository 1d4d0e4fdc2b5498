"""Who is taken to hang, when the user hears of it, and what is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives, watch
from pyft.agent.lifecycle.watch import Watch
from pyft.agent.members import unfinished
from pyft.agent.process import messages
from pyft.recovery import events
from pyft.recovery.rank import State

HANG_S = 60.0
BUSY = {"device_progress": 7, "fences_open": 1, "dispatching_seq": 40, "consumed": 4096}


class Job:
    """One rank whose control page the test writes, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.fd = os.memfd_create("control")
        os.ftruncate(self.fd, 4096)
        self.faults: list[events.Suspected] = []
        self.said: list[str] = []
        self.makes_communicator = False
        self.limit = HANG_S
        channel = SimpleNamespace(
            control_fd=self.fd, rank=3, log_fd=-1, status=lambda: (1, ""), damage=lambda: ""
        )
        server = SimpleNamespace(epoch=1, gpu=2)
        self.member = SimpleNamespace(
            id=0, channel=channel, server=server, server_alive=True, client_gone=False
        )
        self.member.drained = lambda: True
        rank = SimpleNamespace(id=0, state=State.RUNNING, epoch=1)
        servers = SimpleNamespace(
            members={0: self.member},
            plan=SimpleNamespace(ranks={0: rank}),
            event=self.faults.append,
            deaths=SimpleNamespace(ask_nvml=lambda: None),
            requests=SimpleNamespace(waiting=list),
            elsewhere=SimpleNamespace(),  # or missing ranks were looked for
            heartbeat_timeout=lambda member: 1e9,
            hang_timeout=lambda: self.limit,
            collective_timeout=lambda: 0.0,
        )
        self.watch = Watch(servers)  # type: ignore[arg-type]
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(messages, "say", self.said.append)
        monkeypatch.setattr(unfinished, "in_words", lambda member, state: "kernel [k] (entry [9])")
        monkeypatch.setattr(
            collectives, "makes_communicator", lambda member, state: self.makes_communicator
        )
        self.write(**BUSY)

    def write(self, **values: int) -> None:
        page.write(self.fd, **values)

    def run(self, seconds: float, each: object = None) -> None:
        """Look every half second; `each` writes something first."""
        end = self.now + seconds
        turn = 0
        while self.now < end:
            turn += 1
            if callable(each):
                each(turn)
            self.watch.look()
            self.now += 0.5


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(monkeypatch)
    yield made
    os.close(made.fd)


def test_a_hang_is_told_once_and_then_ended(job: Job) -> None:
    job.run(5)
    assert job.said == []
    job.run(54)
    assert job.said == [
        "rank [3]: kernel [k] (entry [9]) on GPU [2] has not ended for [5 s]; "
        "pyft ends its server at [60 s] (PYFT_HANG_S)"
    ]
    assert job.faults == []
    job.run(2)
    fault = job.faults[0].fault
    assert (fault.name, fault.evidence) == ("hang", "nothing was finished for [60.0 s]")
    assert fault.lasted == pytest.approx(60)


def test_a_snapshot_that_copies_is_no_hang_however_long(job: Job) -> None:
    job.member.drained = lambda: False  # the dispatch thread copies
    job.write(fences_open=0)
    job.run(300, lambda turn: job.write(passed_bytes=turn << 22))
    assert (job.faults, job.said) == ([], [])


def test_a_snapshot_that_stands_still_is_found(job: Job) -> None:
    job.member.drained = lambda: False
    job.write(fences_open=0)
    job.run(100, lambda turn: job.write(passed_bytes=turn << 22))
    assert job.faults == []
    job.run(62)
    assert job.faults[0].fault.name == "hang"


@pytest.mark.parametrize(
    "waits",
    [
        {"collectives_waiting": 1},  # other ranks
        {"callback_asked": 4, "callback_done": 3},  # a host function
        {"device_progress": 0},
        {"fences_open": 0},  # and its ring is drained
        {"phase": page.Phase.COMMUNICATORS},
        {"replay_mode": events.Mode.DELIVER},
    ],
)
def test_nothing_is_said_of_who_waits(job: Job, waits: dict[str, int]) -> None:
    job.write(**waits)
    job.run(200)
    assert (job.faults, job.said) == ([], [])


@pytest.mark.parametrize("phase", [page.Phase.OBJECTS, page.Phase.RESTORE])
def test_a_restore_that_gets_on_is_not_overdue_however_long(job: Job, phase: page.Phase) -> None:
    job.write(phase=phase)
    job.run(400, lambda turn: job.write(passed_bytes=turn << 22))
    job.run(400, lambda turn: job.write(restored_bytes=turn << 22))
    assert (job.faults, job.said) == ([], [])


@pytest.mark.parametrize(
    ("phase", "nothing"),
    [
        (page.Phase.STARTING, "nothing was begun"),
        (page.Phase.OBJECTS, "no object was made"),
        (page.Phase.RESTORE, "no memory was restored"),
    ],
)
def test_a_restore_whose_call_never_returns_is_overdue(
    job: Job, phase: page.Phase, nothing: str
) -> None:
    """Behind the deadlines that it has itself, which say more."""
    job.write(phase=phase, device_progress=0, fences_open=0)
    job.run(100, lambda turn: job.write(heartbeat_ns=turn))
    job.run(10, lambda turn: job.write(passed_bytes=turn << 22))
    job.run(119, lambda turn: job.write(heartbeat_ns=turn))
    assert job.faults == []
    job.run(2, lambda turn: job.write(heartbeat_ns=turn))
    fault = job.faults[0].fault
    assert (fault.name, fault.evidence) == ("overdue", f"{nothing} for [120.0 s]")


def test_objects_that_are_made_do_not_count_for_memory(job: Job) -> None:
    job.write(phase=page.Phase.OBJECTS)
    job.run(100, lambda turn: job.write(heartbeat_ns=turn))
    job.write(phase=page.Phase.RESTORE)
    job.run(100, lambda turn: job.write(heartbeat_ns=turn))
    assert job.faults == []


def test_a_replay_whose_call_never_returns_is_a_hang(job: Job) -> None:
    """The server before had taken all that the ring has, and no stream has a mark to come to."""
    job.write(phase=page.Phase.REPLAY, fences_open=0)
    job.run(100, lambda turn: job.write(replayed_entries=turn))
    assert job.faults == []
    job.run(62, lambda turn: job.write(heartbeat_ns=turn))
    assert job.faults[0].fault.name == "hang"


def test_who_makes_a_communicator_waits_for_others(job: Job) -> None:
    job.makes_communicator = True
    job.run(200)
    assert (job.faults, job.said) == ([], [])
    job.makes_communicator = False
    job.run(70)
    assert len(job.said) == 1
    assert job.faults[0].fault.name == "hang"


def test_a_program_of_slow_kernels_is_not_told_of_each(job: Job) -> None:
    for kernel in range(40):  # each of 8 s
        job.write(device_progress=100 + kernel)
        job.run(8)
    assert len(job.said) == 1, "the next sentence is due at 10 s"
    job.write(device_progress=900)
    job.run(25)
    assert len(job.said) == 2
    assert job.faults == []


def test_a_short_limit_leaves_nothing_to_be_said(job: Job) -> None:
    job.limit = 4.0
    job.run(5)
    assert job.said == []
    assert job.faults[0].fault.name == "hang"
