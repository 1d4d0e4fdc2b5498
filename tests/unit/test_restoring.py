"""What the next agent finds after a job was put back to an image: all of it is of the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyft.agent import restoring
from pyft.agent.restoring import Restoring

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
