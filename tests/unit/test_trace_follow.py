"""`pyft trace --follow` goes on as long as the job does, whatever becomes of its agent and ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_trace_reader import Log
from typer.testing import CliRunner

from pyft.agent.job import job_folder
from pyft.cli.main import app
from pyft.errors import TraceError
from pyft.trace import targets
from pyft.wire.layout import ALLOC_MARK, Mark


class Job:
    """What is found of a job, changed by what happens in each pause of the command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.later = Log(), Log()
        self.rings = [self.ring(self.log, "rank0-pid7-dev0")]
        self.alive, self.now = True, 0.0
        self.acts: list[Callable[[], None]] = []
        self.parsed = 0
        (folder / "meta.json").write_text(json.dumps({"job": "j"}))
        monkeypatch.setattr(job_folder, "is_live", lambda _: self.alive)
        monkeypatch.setattr("time.sleep", self.sleep)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(targets, "find", self.find)

    def ring(self, log: Log, title: str, live: bool = True) -> targets.Ring:
        return targets.Ring(title, Path(f"/proc/self/fd/{log.fd}"), live)

    def find(self, target: str | None) -> list[targets.Ring]:
        if not self.rings:
            raise TraceError("no agent now")
        return self.rings

    def sleep(self, _: float) -> None:
        self.now += 1.0
        self.acts.pop(0)()

    def ends(self) -> None:
        self.alive = False


def grow(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(Mark.ALLOC, ALLOC_MARK.pack(0x1800_0000_0200 + log.seq, 512))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with monkeypatch.context() as patches:
        made = Job(tmp_path, patches)
        yield made
    made.log.close()
    made.later.close()


def followed(folder: Path, *more: str) -> list[str]:
    done = CliRunner().invoke(app, ["trace", str(folder), "--follow", *more])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_it_goes_on_under_another_agent(job: Job, tmp_path: Path) -> None:
    """The path of a ring is one of the agent's descriptors: for a moment there is none."""
    grow(job.log, 2)
    again = os.dup(job.log.fd)

    def replaced() -> None:
        job.rings = []
        grow(job.log)

    def adopted() -> None:
        job.rings = [targets.Ring("rank3-pid7-dev0", Path(f"/proc/self/fd/{again}"), live=True)]
        grow(job.log)

    job.acts = [replaced, adopted, lambda: grow(job.log), job.ends]
    lines = followed(tmp_path)
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4", "5"]
    os.close(again)


def test_ranks_that_attach_later_are_shown(job: Job, tmp_path: Path) -> None:
    grow(job.log)
    grow(job.later, 2)

    def attached() -> None:
        job.rings = [*job.rings, job.ring(job.later, "rank1-pid8-dev1")]

    def saved() -> None:
        job.rings = [job.rings[1], job.ring(job.log, "rank0-pid7-dev0", live=False)]
        job.ends()

    job.acts = [attached, saved]
    lines = followed(tmp_path, "--tail", "5")
    assert [line.split()[:2] for line in lines[1:]] == [["rank1-pid8-dev1", n] for n in "12"]
    assert len(lines) == 3


def test_what_was_read_is_not_read_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyft._native import NativeTrace

    read: list[int] = []
    original = NativeTrace.next

    def next_one(trace: NativeTrace, objects: bool = False) -> object:
        read.append(1)
        return original(trace, objects)

    monkeypatch.setattr(NativeTrace, "next", next_one)
    grow(job.log, 60)
    job.acts = [*[lambda: None] * 20, lambda: grow(job.log), job.ends]
    assert len(followed(tmp_path)) == 61
    assert len(read) < 200
