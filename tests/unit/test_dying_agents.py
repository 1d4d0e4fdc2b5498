"""All go back to an image, and the agent dies before any word that it would say to the supervisor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import going_back, restoring
from pyft.agent.going_back import GoingBack
from pyft.agent.host_images import HostImages
from pyft.agent.images import NOTE, Images
from pyft.agent.restoring import Restoring
from pyft.agent.supervisor.link import Handover
from pyft.hosts.place.actions import GoBack
from pyft.recovery.images import ImagePlan

CLIENTS = (1, 5)  # of now; the image has the first one only
ROUND = 4


class Killed(Exception):
    """The agent has died."""


class Supervisor:
    """Keeps notes; the agent dies before it says the last of so many words."""

    def __init__(self, words: int) -> None:
        self.left = words
        self.notes: dict[str, Any] = {f"client-{id}": {"id": id} for id in CLIENTS}

    def keep(self, name: str, note: dict[str, Any], fds: object = ()) -> None:
        self._says()
        self.notes[name] = note

    def drop(self, name: str) -> None:
        self._says()
        self.notes.pop(name, None)

    def working(self) -> None:
        self._says()

    def _says(self) -> None:
        self.left -= 1
        if not self.left:
            raise Killed


class Agent:
    """What one agent has for going back."""

    def __init__(self, supervisor: Supervisor, make: Callable[[Any], Images], folder: Path) -> None:
        comparison = SimpleNamespace(found=[], note=dict, sharing=SimpleNamespace(note=dict))
        options = SimpleNamespace(memory_folder="", log_dir=folder, head="", flush=())
        self.servers: Any = SimpleNamespace(
            options=options,
            members=dict.fromkeys(CLIENTS),
            ending=False,
            plan=SimpleNamespace(ranks={}, rollback=True),
            supervisor=supervisor,
            comparison=comparison,
        )
        self.images = make(self.servers)
        self.images._program = Path("criu")
        record = {
            "number": 2,
            "root": 9,
            "step": 20,
            "pids": [],
            "logs": [],
            "servers": {},
            "clients": {"1": {}},
        }
        self.images._records[2], self.images._memory[2] = record, {1: []}
        self.images._plan.current = self.images._plan.number = 2
        self.stop_reason = ""
        command: Any = SimpleNamespace(
            keep=lambda: supervisor.keep("job", {}), adopt=self._adopt, stop_reason=""
        )
        self.command = command
        ended = SimpleNamespace(forget=lambda _: None, adopt=lambda _: None)
        meta: Any = SimpleNamespace(ended=ended, values={})
        self.back = GoingBack(self.images, command, self.servers, meta, supervisor)  # type: ignore[arg-type]

    def _adopt(self, handover: Handover) -> None:
        self.command.stop_reason = handover.notes.get("job", {}).get("stop_reason", "")


def alone(servers: Any) -> Images:
    """Return the images of a job of one host."""
    return Images(servers, ImagePlan())


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return which clients' notes there were at each restore."""
    seen: list[set[str]] = []

    def restore(self: Restoring, clients: dict[int, Any]) -> None:
        seen.append({n for n in self._supervisor.notes if n.startswith("client-")})  # type: ignore[attr-defined]

    monkeypatch.setattr(restoring, "end_all", lambda pids, ended: None)
    monkeypatch.setattr(Restoring, "_restore", restore)
    monkeypatch.setattr(Restoring, "_give_back", lambda self, id, note: None)
    monkeypatch.setattr(
        Restoring, "_keep", lambda self, id, note, _: self._supervisor.keep(f"client-{id}", note)
    )
    monkeypatch.setattr(going_back.messages, "flush_and_exit", lambda _: None)
    return seen


def dies(words: int, make: Callable[[Any], Images], folder: Path) -> tuple[Supervisor, bool]:
    """Let an agent go back that dies before its n-th word; return what is kept, and if it died."""
    supervisor = Supervisor(words)
    agent = Agent(supervisor, make, folder)
    try:
        if isinstance(agent.images, HostImages):
            agent.images._plan.back_in = ROUND  # the head has said so
            agent.images._go_back(GoBack(2, "host [h1] is lost"))
        else:
            assert agent.images.client_lost("the client was killed")
        assert agent.images.back
        agent.back.go(agent.images.back)
    except Killed:
        return supervisor, True
    return supervisor, False


@pytest.mark.parametrize("make", [alone, HostImages], ids=["alone", "hosts"])
def test_what_is_begun_is_begun_again(
    tmp_path: Path, make: Callable[[Any], Images], restored: list[set[str]]
) -> None:
    """Either nothing has come of it, or the next agent finds the note of the restore."""
    for words in itertools.count(1):
        kept, died = dies(words, make, tmp_path)
        if not died:
            break
        went = (
            len(restored) > 0 and restoring.NOTE not in kept.notes and "client-5" not in kept.notes
        )
        if restoring.NOTE not in kept.notes and not went:
            assert {f"client-{id}" for id in CLIENTS} <= kept.notes.keys(), words
            assert not kept.notes.get(NOTE, {}).get("plan", {}).get("back_in"), words
    assert words > 6
    assert kept.notes.keys() >= {"client-1", NOTE}


def test_clients_that_are_no_part_of_the_image_are_not_found_after_a_second_restore(
    tmp_path: Path, restored: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent before has died before it had dropped any."""
    supervisor, _ = dies(3, alone, tmp_path)
    notes = dict(supervisor.notes)
    assert {"client-1", "client-5", restoring.NOTE} <= notes.keys()
    supervisor.left = -1
    agent = Agent(supervisor, alone, tmp_path)
    agent.servers.members = {}
    agent.back.go_again(notes[restoring.NOTE], Handover(notes=notes))
    assert restored == [set()]
    assert {n for n in supervisor.notes if n.startswith("client-")} == {"client-1"}


def test_a_job_that_was_to_stop_is_not_put_back(tmp_path: Path, restored: list[set[str]]) -> None:
    supervisor, _ = dies(3, alone, tmp_path)
    supervisor.left = -1
    notes = supervisor.notes | {"job": {"stop_reason": "the launcher was killed"}}
    agent = Agent(supervisor, alone, tmp_path)
    agent.back.go_again(notes[restoring.NOTE], Handover(notes=notes))
    assert restored == []
