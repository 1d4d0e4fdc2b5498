"""What a new server is told: by its environment, of what was decided; and if it cannot be started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.job.options import JobOptions
from pyft.agent.lifecycle import starts as module
from pyft.agent.lifecycle.deaths import Deaths
from pyft.agent.lifecycle.starts import Starts
from pyft.agent.members.server import Server
from pyft.recovery import events
from pyft.recovery.disputes import Disputes
from pyft.recovery.events import Mode
from pyft.recovery.gpus import Gpus

CLIENT = {"PATH": "/bin", "PYFT_FAULT": "cut.copying", "LD_PRELOAD": "ours.so"}


class Job:
    """What a start sees of the agent, and what it has done."""

    def __init__(self, folder: Path) -> None:
        self.options = JobOptions("j", folder, folder, 1, direct=False, command=("x",))
        self.gpus = Gpus(1, 1)
        self.job_token, self.supervisor, self.program = "t", SimpleNamespace(), folder / "server"
        self.plan = SimpleNamespace(ranks={0: "the rank"})
        self.audits = SimpleNamespace(restarted=lambda _: None, leave=lambda _: None)
        self.did: list[Any] = []
        self.incidents = SimpleNamespace(started=lambda *what: self.did.append(what[1:]))
        self.injector = SimpleNamespace(asked_of=lambda member, epoch: {})
        self.standby = SimpleNamespace(take=lambda *_: None)
        self.deaths = SimpleNamespace(not_started=lambda *what: self.did.append(what[1:]))
        self.loop = SimpleNamespace(after=lambda _, then: then())

    def keep(self) -> None:
        self.did.append("kept")

    def listen(self, member: Any, server: Any) -> None:
        self.did.append("heard")

    def changed(self) -> None:
        self.did.append("written down")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(module.page, "write", lambda *_, **__: None)
    monkeypatch.setattr(module.page, "prepare_for_next_server", lambda *_: None)
    monkeypatch.setattr(module.page, "read_one", lambda _, name: {"dispatching_seq": 40}[name])
    return Job(tmp_path)


def member(servers: int) -> Any:
    channel = SimpleNamespace(device=0, control_fd=-1, rank=0, epoch=0)
    known = {"environment": CLIENT, "servers": servers, "server": None, "disputes": Disputes()}
    return SimpleNamespace(id=0, channel=channel, **known)


def test_a_server_is_told_what_was_decided(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned = []

    def spawn(*what: Any) -> Any:
        spawned.append(what[2:])
        return SimpleNamespace(pid=7, introduce=lambda channel: job.did.append("introduced"))

    monkeypatch.setattr(Server, "spawn", spawn)
    first, next_one = member(servers=0), member(servers=1)
    for one in (first, next_one):
        one.disputes.of_other()
    Starts(job).start(first, events.Start(0, 1, 0, Mode.NORMAL))  # type: ignore[arg-type]
    decided = events.Start(0, 2, 1, Mode.SERIAL, entry=70, arbitrates=3, together=2)
    Starts(job).replace(next_one, decided)  # type: ignore[arg-type]
    (before, *_), (after, epoch, gpu) = spawned
    told = ("PYFT_LINE", "PYFT_ARBITRATE", "PYFT_DMR_TOLD", "PYFT_FAULT", "LD_PRELOAD")
    assert [before.get(name) for name in told] == [None, None, None, "cut.copying", None]
    assert [after.get(name) for name in told] == ["70", "3", "40", None, None], "no fault twice"
    assert (epoch, gpu, next_one.servers, next_one.channel.epoch) == (2, 1, 2, 2)
    of_first = ["kept", "heard", "introduced"]
    assert job.did == [*of_first, ("the rank", 2), *of_first, "written down"]


def test_a_server_that_cannot_be_started_is_a_death(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Server, "spawn", spawn)
    Starts(job).replace(member(1), events.Start(0, 2, 0, Mode.NORMAL))  # type: ignore[arg-type]
    why = "the server cannot be started: [Errno 24] Too many open files"
    assert job.did == [("the rank", 1), (2, why), "written down"]


@pytest.mark.parametrize("client_gone", [False, True])
def test_a_server_that_cannot_be_started_is_no_fault_of_a_client_that_has_ended(
    client_gone: bool,
) -> None:
    """That it cannot is told a moment later; the rank may be forgotten by then, and its memory."""
    told: list[Any] = []
    servers: Any = SimpleNamespace(
        options=SimpleNamespace(backend="soft"),
        plan=SimpleNamespace(ranks={} if client_gone else {0: "the rank"}),
        incidents=SimpleNamespace(died=lambda member, rank, fault: told.append(rank)),
        event=told.append,
    )
    Deaths(servers).not_started(SimpleNamespace(id=0, client_gone=client_gone), 3, "why")  # type: ignore[arg-type]
    assert len(told) == (0 if client_gone else 2)
