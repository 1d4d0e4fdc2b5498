"""Clients come and go by hundreds: what an agent keeps of those that have ended, and what it does."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pyft import _native
from pyft.agent.agent import Agent
from pyft.agent.job import job_folder
from pyft.agent.job.ended_clients import NOTE, EndedClients, ids_in
from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.agent.supervisor.link import Handover
from pyft.wire import layout
from pyft.wire.layout import ATTACH_REQUEST

FEW, MANY = 100, 500
SIZES = {f"PYFT_{part}_MB": "1" for part in ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")}
SIZES |= {"PYFT_PINNED_GB": "1", "PYFT_STORE_GB": "1"}


class Supervisor:
    """Keeps notes as text, and starts servers that are sockets only."""

    def __init__(self) -> None:
        self.notes: dict[str, dict[str, Any]] = {}
        self.written = 0  # bytes of notes so far
        self.servers: dict[int, socket.socket] = {}
        self._pids = itertools.count(1 << 22)

    def keep(
        self, name: str, note: dict[str, Any], fds: Sequence[int] = (), answered: str = ""
    ) -> None:
        text = json.dumps(note)
        self.notes[name] = json.loads(text)
        self.written += len(text)

    def drop(self, name: str) -> None:
        self.notes.pop(name, None)

    def start(self, *_: object) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = next(self._pids)
        self.servers[pid] = theirs
        return pid, ours

    def received(self) -> None:
        return None

    def nothing(self, *_: object) -> None:
        pass

    kill = forget = took_over = nothing


class Job:
    """An agent, and clients one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.supervisor, self.keep = folder, Supervisor(), False
        native = _native.native_dir()
        options = JobOptions("j", folder, native, 1, direct=False, command=("x",))
        self.agent = Agent(options, self.supervisor)  # type: ignore[arg-type]
        self.launcher, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.launcher.setblocking(False)
        self.agent._launcher = theirs
        self.agent._adopt(Handover(launcher=theirs, clients_name="n"))
        self.servers = self.agent._servers

    def client(self, number: int) -> None:
        """One client from its request to its trace."""
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = b"".join(f"{name}={value}\0".encode() for name, value in SIZES.items())
        head = (layout.ATTACH_MAGIC, layout.ATTACH_VERSION, os.getpid(), 0, len(environment), 0)
        theirs.send(ATTACH_REQUEST.pack(*head) + environment)
        self.agent._clients.accept(f"call-{number}", ours)
        self.agent._turn()
        (member,) = self.servers.members.values()
        theirs.close()
        while not member.client_gone:
            self.agent._turn()
        member.stop_waiting()  # its process goes on
        self.agent._process_ended(member.server_pid, 0)
        self.agent._clients.save_finished()
        self.supervisor.servers.pop(member.server_pid).close()
        if not self.keep:
            for path in self.folder.glob("*.ring"):
                path.unlink()  # or it takes long to look for all of them
        while True:
            try:
                self.launcher.recv(1)
            except BlockingIOError:
                return


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(messages, "say", lambda _: None)  # that each has said no goodbye
    made = Job(tmp_path)
    yield made
    made.launcher.close()
    made.agent._launcher.close()


def test_the_traces_of_two_processes_with_one_pid_are_kept(job: Job) -> None:
    """An exec makes a new process of the same pid."""
    job.keep = True
    for number in range(2):
        job.client(number)
    entries = json.loads(f"[{job.agent._meta.ended.text()}]")
    name = f"rank0-pid{os.getpid()}-dev0"
    assert [entry["process"] for entry in entries] == [1, 2]
    assert [entry["name"] for entry in entries] == [name, f"{name}-2"]
    assert [entry["file"] for entry in entries] == [f"{name}.ring", f"{name}-2.ring"]
    assert len(list(job.folder.glob("*.ring"))) == 2


def test_nothing_is_done_more_slowly_for_those_that_have_ended(job: Job) -> None:
    """Not one note grows but those of meta.json, and what is written of these grows by far less."""
    written = []
    for number in range(MANY):
        before = job.supervisor.written
        job.client(number)
        written.append(job.supervisor.written - before)
        if number == FEW:
            few = {name: len(json.dumps(note)) for name, note in job.supervisor.notes.items()}
    servers = job.servers
    assert not servers.members
    assert not servers.plan.ranks
    assert not servers.plan.departures.left
    assert not servers.comparison.sharing._shares.ranks
    assert not servers.protected._times
    assert not servers.watch._progress
    others = {name for name in job.supervisor.notes if not name.startswith(NOTE)}
    assert others == {name for name in few if not name.startswith(NOTE)}, "no note for each"
    for name in others:
        assert len(json.dumps(job.supervisor.notes[name])) < few[name] + 50, name
    of_few, of_many = (sum(written[at : at + FEW]) for at in (FEW, MANY - FEW))
    assert of_many < 2 * of_few


def test_all_that_have_ended_are_in_meta_json(job: Job) -> None:
    for number in range(FEW):
        job.client(number)
    job.agent._meta.write()
    meta = job_folder.load_meta(job.folder)
    assert [entry["id"] for entry in meta["channels"]] == list(range(FEW))
    assert meta["live"] == []
    assert all(entry["pid"] == os.getpid() and entry["store"] for entry in meta["channels"])
    assert ids_in(job.supervisor.notes) == set(range(FEW))
    after = EndedClients(job.supervisor.keep, job.supervisor.drop)
    after.adopt(job.supervisor.notes)
    assert after.text() == job.agent._meta.ended.text()


def ended(supervisor: Supervisor, count: int) -> EndedClients:
    """Return what has been told of so many clients."""
    made = EndedClients(supervisor.keep, supervisor.drop)
    for id in range(count):
        made.add({"id": id, "calls": {"cudaMalloc": id}})
    return made


@pytest.mark.parametrize("count", [0, 1, 16, 17, 33, 48, 49, 1000])
def test_the_next_agent_knows_all_that_have_ended(count: int) -> None:
    supervisor = Supervisor()
    made = ended(supervisor, count)
    assert ids_in(supervisor.notes) == set(range(count))
    assert len(supervisor.notes) < 10
    again = EndedClients(supervisor.keep, supervisor.drop)
    again.adopt(supervisor.notes)
    again.add({"id": count})
    assert ids_in(supervisor.notes) == set(range(count + 1))
    found = json.loads(f"[{again.text()}]")
    assert found[:count] == json.loads(f"[{made.text()}]")
    assert [entry["id"] for entry in found] == list(range(count + 1))


@pytest.mark.parametrize("dies", range(5))
def test_an_agent_may_die_while_it_puts_notes_together(dies: int) -> None:
    """Whatever it has said by then: nothing is lost, and nothing is there twice."""
    supervisor = Supervisor()
    made, left = ended(supervisor, 48), dies

    def says(act: Any) -> Any:
        def said(*what: Any) -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                act(*what)

        return said

    made._keep, made._drop = says(supervisor.keep), says(supervisor.drop)
    made.add({"id": 48})
    again = EndedClients(supervisor.keep, supervisor.drop)
    again.adopt(dict(supervisor.notes))
    found = [entry["id"] for entry in json.loads(f"[{again.text()}]")]
    assert found in (list(range(48)), list(range(49)))
    again.add({"id": 100})
    assert ids_in(supervisor.notes) == {*found, 100}
    assert sum(len(note["clients"]) for note in supervisor.notes.values()) == len(found) + 1


def test_those_that_live_again_have_not_ended() -> None:
    supervisor = Supervisor()
    made = ended(supervisor, 40)
    made.forget({3, 39})
    assert ids_in(supervisor.notes) == set(range(40)) - {3, 39}
    made.add({"id": 3})
    again = EndedClients(supervisor.keep, supervisor.drop)
    again.adopt(supervisor.notes)
    assert json.loads(f"[{again.text()}]")[-1] == {"id": 3}
    assert ids_in(supervisor.notes) == set(range(39))
