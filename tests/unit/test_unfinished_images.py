"""An agent dies while it makes an image: the next one leaves nothing of that, and keeps the one before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import images as images_module
from pyft.agent.images import NOTE, Images
from pyft.agent.restoring import kept_name
from pyft.agent.supervisor.children import DUMP
from pyft.agent.supervisor.link import Handover, Process
from pyft.images import image_folder, memory
from pyft.recovery.images import Copy, ImagePlan, Phase

CRIU = 77
CLIENTS = (1, 2, 3)


class Killed(Exception):
    """The agent has died."""


class Supervisor:
    """Holds notes and descriptors. The agent dies before it has told of `last`."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        self.notes: dict[str, Any] = {}
        self.fds: dict[str, list[int]] = {}
        self.forgotten: list[int] = []

    def keep(self, name: str, note: dict[str, Any], fds: Any = ()) -> None:
        if name == self.last:
            raise Killed
        self.drop(name)
        self.notes[name] = json.loads(json.dumps(note))
        self.fds[name] = [os.dup(fd) for fd in fds]

    def drop(self, name: str) -> None:
        self.notes.pop(name, None)
        for fd in self.fds.pop(name, []):
            os.close(fd)

    def forget(self, pid: int) -> None:
        self.forgotten.append(pid)

    def handover(self, dumps: bool, status: int | None = None) -> Handover:
        """Return what the next agent gets. `status`: of CRIU, if it has ended."""
        fds = {name: [os.dup(fd) for fd in kept] for name, kept in self.fds.items()}
        works = {CRIU: Process(DUMP, CRIU, None, status)} if dumps else {}
        return Handover(notes=dict(self.notes), fds=fds, processes=works)


def member(id: int) -> Any:
    """Return a client, with memory."""
    fds = {f"{part}_fd": memory.new(part, 4096) for part in memory.PARTS}
    channel = SimpleNamespace(name=f"c{id}", hold=lambda *_: None, **fds)
    own = {"client_gone": False, "saved": False, "server_alive": False, "note": lambda: {"id": id}}
    return SimpleNamespace(id=id, channel=channel, **own)


def images_of(supervisor: Supervisor, folder: Path) -> Images:
    """Return those of one agent."""
    servers: Any = SimpleNamespace(
        options=SimpleNamespace(memory_folder="", log_dir=folder, head=""),
        members={id: member(id) for id in CLIENTS},
        ending=False,
        plan=SimpleNamespace(ranks={}, rollback=False),
        supervisor=supervisor,
        decisions=SimpleNamespace(note=dict),
        comparison=SimpleNamespace(note=dict, sharing=SimpleNamespace(note=dict)),
    )
    return Images(servers, ImagePlan())


def begun(supervisor: Supervisor, folder: Path) -> Images:
    """Return images of which the second counts, and the third has been begun."""
    images = images_of(supervisor, folder)
    for number in (2, 3):
        where = images._folder_of(number)
        image_folder.make(where, "", 0)
        images._records[number] = {"number": number, "step": 10 * number, "folder": str(where)}
    images._plan.number = images._plan.current = 2
    images._copy(Copy(2, 20))
    images._plan.number, images._plan.phase = 3, Phase.DUMP
    images.keep()
    return images


def open_memory() -> int:
    """Return how many descriptors this process has of copies."""
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 1024) if _is_open(fd)]
    return sum("/memfd:pyft-" in link for link in links)


def _is_open(fd: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("last", [*(kept_name(3, id) for id in CLIENTS), NOTE])
def test_copies_of_an_image_that_is_not_whole_are_given_up(tmp_path: Path, last: str) -> None:
    supervisor = Supervisor()
    dying = begun(supervisor, tmp_path)
    whole = {kept_name(2, id) for id in CLIENTS}
    supervisor.last = last
    with pytest.raises(Killed):
        dying._copy(Copy(3, 30))
    supervisor.last = ""
    handover, after = supervisor.handover(dumps=False), images_of(supervisor, tmp_path)
    before = open_memory()
    unfinished = sum(len(fds) for name, fds in handover.fds.items() if name.startswith("image-3"))
    after.adopt(0, handover)
    assert {name for name in supervisor.notes if name.startswith("image-")} == whole
    assert open_memory() == before - 2 * unfinished  # the agent's and the supervisor's
    assert after._memory == {2: {id: handover.fds[kept_name(2, id)] for id in CLIENTS}}
    assert not after._folder_of(3).exists()
    assert after._folder_of(2).exists()


def test_a_dump_of_the_agent_before_leaves_nothing_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRIU may still write until then."""
    told: list[str] = []
    monkeypatch.setattr(
        images_module.messages,
        "send",
        lambda _, kind, **v: told.append(f"{v['what']} {v['number']}"),
    )
    supervisor = Supervisor()
    begun(supervisor, tmp_path)
    after = images_of(supervisor, tmp_path)
    after.launcher = SimpleNamespace()  # type: ignore[assignment]
    after.adopt(0, supervisor.handover(dumps=True))
    assert after._folder_of(3).exists()
    assert after.ended(CRIU, 0)
    assert not after._folder_of(3).exists()
    assert told == ["forget 3"]
    assert list(supervisor.notes[NOTE]["records"]) == ["2"]
    assert after._plan.current == 2


@pytest.fixture
def let_go(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return connections that nothing is to cut or halt any more, and the processes that have them."""
    found: list[object] = []
    monkeypatch.setattr(images_module, "let_go", lambda *what: found.append(what))
    monkeypatch.setattr(images_module.process_tree, "send", lambda *_: None)
    monkeypatch.setattr(images_module.tree, "members", lambda root: [root])
    monkeypatch.setattr(images_module.tree, "connections", lambda pids: [("of", pids)])
    return found


@pytest.mark.parametrize("status", [0, 256])
@pytest.mark.parametrize("when", ["before", "after", "own"])
def test_what_a_failed_dump_has_cut_is_let_go(
    tmp_path: Path, let_go: list[object], status: int, when: str
) -> None:
    """CRIU ends before the next agent has come, or after that, or is this agent's own."""
    supervisor = Supervisor()
    images = begun(supervisor, tmp_path)
    images._client_states = list  # type: ignore[method-assign]
    images._root, images._dump = 5, CRIU
    if when != "own":
        images = images_of(supervisor, tmp_path)
        images.adopt(
            5, supervisor.handover(dumps=True, status=status if when == "before" else None)
        )
    if when != "before":
        assert let_go == []
        assert images.ended(CRIU, status)
    assert let_go == ([([("of", [5])], [5])] if status else [])
    assert supervisor.forgotten == ([CRIU] if status or when != "before" else [])
