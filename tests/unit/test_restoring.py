"""What the next agent finds after a job was put back to an image: all of it is of the image."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import going_back, restoring
from pyft.agent.going_back import GoingBack
from pyft.agent.restoring import CriuError, RestoreError, Restoring

NOW = {"servers": {"next_id": 9}, "shares": {"ranks": [[0, [0, 1], 20, 2097]]}, "comparison": {}}
THEN = {"servers": {"next_id": 2}, "shares": {"ranks": [[0, [0, 1], 3, 510]]}}


class Supervisor:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: dict[str, Any] = dict(NOW)

    def keep(self, name: str, note: dict[str, Any], fds: object = ()) -> None:
        self.notes[name] = note

    def drop(self, name: str) -> None:
        self.notes.pop(name, None)


def test_what_was_settled_about_snapshots_goes_back_with_the_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers would look for the last snapshot that all agreed on, which no store has any more."""
    monkeypatch.setattr(restoring, "end_all", lambda pids, ended: None)
    monkeypatch.setattr(Restoring, "_restore", lambda self, clients: None)
    supervisor = Supervisor()
    record = {"pids": [], "logs": [], "clients": {}, **THEN}
    Restoring(supervisor, Path(), record, {}, dict).run()  # type: ignore[arg-type]
    assert supervisor.notes == THEN


def test_nothing_of_the_image_is_cut_any_more_when_it_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CRIU that has failed in a dump leaves its rules; the agent that has seen it may have died."""
    done: list[object] = []
    for name in ("end_all", "let_go"):
        monkeypatch.setattr(restoring, name, lambda what, *_, n=name: done.append((n, what)))
    monkeypatch.setattr(restoring.leftovers, "end", lambda _: 0)
    monkeypatch.setattr(Restoring, "_restore", lambda self, clients: done.append("restored"))
    ends = ["0100007F:1F90", "0100007F:A0B1"]
    record = {"pids": [7], "logs": [], "clients": {}, "connections": [ends], **THEN}
    Restoring(Supervisor(), Path(), record, {}, dict).run()  # type: ignore[arg-type]
    assert done == [("end_all", [7]), ("let_go", {tuple(ends)}), "restored"]


def test_how_another_process_of_criu_s_number_has_ended_does_not_count(tmp_path: Path) -> None:
    """Numbers come again, and an agent may have had a thousand dumps before it restores one."""
    ended, looks = {77: 0}, iter(range(9))

    def reaped() -> dict[int, int]:
        if next(looks) == 3:
            ended[77] = 1 << 8  # it has failed
        return ended

    supervisor = SimpleNamespace(forget=lambda pid: None, start_criu=lambda *_: 77)
    record = {"folder": str(tmp_path), "root": 9, "standard": []}
    back = Restoring(supervisor, Path(), record, {}, reaped)  # type: ignore[arg-type]
    with pytest.raises(CriuError):
        back._restore({})
    assert next(looks) == 4


class Ended(Exception):
    """This agent has ended, and the next one begins."""


class Agents:
    """Agents of one job, one after the other. `fails`: how often CRIU does."""

    def __init__(self, fails: int, why: type[Exception] = CriuError) -> None:
        self.fails, self.why, self.tries, self.worked = fails, why, 0, 0
        self.supervisor = Supervisor()
        self.supervisor.working = self._working  # type: ignore[attr-defined]

    def _working(self) -> None:
        self.worked += 1

    def restoring(self, record: dict[str, Any], _: object) -> Any:
        """Return what restores."""
        return SimpleNamespace(run=lambda: self._run(record))

    def _run(self, record: dict[str, Any]) -> None:
        self.tries += 1
        self.supervisor.keep(restoring.NOTE, record)
        if self.tries <= self.fails:
            raise self.why("it was ended")
        self.supervisor.drop(restoring.NOTE)

    def go(self, record: dict[str, Any]) -> bool:
        """Have agents go back until one has done so; return whether one has."""
        meta = SimpleNamespace(ended=SimpleNamespace(forget=lambda _: None))
        own = (SimpleNamespace(keep=lambda: None), SimpleNamespace(members={}), meta)
        back = GoingBack(self, *own, self.supervisor)  # type: ignore[arg-type]
        while True:
            try:
                back.go(record)
                return False
            except Ended:
                if restoring.NOTE not in self.supervisor.notes:
                    return True
                record = self.supervisor.notes[restoring.NOTE]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an agent's end be an exception."""

    def end(_: int) -> None:
        raise Ended

    monkeypatch.setattr(going_back.messages, "flush_and_exit", end)


RECORD: dict[str, Any] = {"step": 7, "clients": {}}


def test_criu_that_fails_is_tried_again_by_the_next_agent(ending: None) -> None:
    agents = Agents(fails=2)
    assert agents.go(RECORD)
    assert (agents.tries, agents.worked) == (3, 3)
    assert "tries" not in RECORD  # the next restore of this image has all its tries


def test_criu_that_always_fails_ends_the_job(ending: None) -> None:
    agents = Agents(fails=99)
    assert not agents.go(RECORD)
    assert agents.tries == restoring.MOST_TRIES


def test_what_no_other_try_can_mend_is_not_tried_again(ending: None) -> None:
    agents = Agents(fails=99, why=RestoreError)
    assert not agents.go(RECORD)
    assert agents.tries == 1
