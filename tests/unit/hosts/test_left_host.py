"""A host whose place goes elsewhere: its image outlives the agent, and the launcher keeps it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import leaving as agents
from pyft.agent.host_images import HostImages
from pyft.agent.job import gpus
from pyft.agent.job.options import JobOptions
from pyft.agent.process.notes import make_note
from pyft.agent.restoring import RestoreError
from pyft.agent.supervisor.launcher import Launcher
from pyft.cli import several
from pyft.hosts.place.mirror import Stored
from pyft.hosts.place.remote import Leave
from pyft.hosts.spare import leaving, take
from pyft.hosts.spare import spare as module
from pyft.hosts.spare.spare import Spare
from pyft.images import memory
from pyft.images.appended import Log

WHY = "host [h1] is drained"


class Head:
    """What a spare host has for a connection to the head: it says what the test says."""

    def __init__(self, _: object, __: object, hello: Any) -> None:
        self.hello, self.said, self.ended = hello, [], False
        self.orders: deque[dict[str, Any]] = deque()
        Head.last = self

    last: Head

    def heard(self) -> dict[str, Any] | None:
        """Give the next order."""
        return self.orders.popleft() if self.orders else None

    def say(self, kind: str, **values: Any) -> None:
        """Take what is said."""
        self.said.append((kind, values))

    def end(self) -> None:
        """Call no more."""
        self.ended = True


@pytest.fixture
def image(tmp_path: Path) -> Stored:
    """Return the image of the place that has left, with a file and memory."""
    folder = tmp_path / "log" / "images" / "3"
    folder.mkdir(parents=True)
    (folder / "inventory.img").write_bytes(b"image")
    record = {"number": 3, "folder": str(folder), "step": 7, "pids": []}
    return Stored(1, 3, folder, record, {"gpus": "soft:1"}, "n", {0: [os.memfd_create("part")]})


@pytest.fixture
def left(image: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spare:
    """Return a host that has left its place."""
    monkeypatch.setattr(module, "HeadLink", Head)
    return Spare("127.0.0.1:1", b"secret", "h1", "10.0.0.2", tmp_path / "log", image)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"kind": "over", "code": 0, "why": "place [1] is on host [h2]"}, 0),
        ({"kind": "over", "code": 1, "why": "the head knows of no place that it left"}, 1),
        ({"kind": "refused", "why": "the job has ended"}, 1),
    ],
)
def test_it_ends_as_the_head_says(
    left: Spare, image: Stored, capfd: pytest.CaptureFixture[str], said: dict[str, Any], code: int
) -> None:
    """It says why, and its image goes."""
    Head.last.orders.append(said)
    assert left.run() == code
    assert f"this host has left its place: {said['why']}" in capfd.readouterr().err
    assert not image.folder.exists()
    assert Head.last.ended


def test_it_calls_with_its_image_and_takes_no_other_one(left: Spare) -> None:
    hello = Head.last.hello()
    assert (hello["port"], hello["images"], hello["host"]) == (0, [[1, 3]], "h1")


def test_the_image_stays_while_the_head_says_nothing_of_an_end(left: Spare, image: Stored) -> None:
    """Also when a line is told that it is of; another number is dropped, not this one."""
    for said in ({"kind": "keep", "number": 3}, {"kind": "drop", "number": 4}):
        assert left._take_order(said) is None
    assert (
        left._take_order({"kind": "take", "place": 0, "number": 3, "life": 2, "round": 1}) is None
    )
    assert image.folder.exists()
    assert left._take_order({"kind": "over", "code": 300, "why": "no exit code"}) is None


def test_what_is_whole_is_said_again_at_each_welcome(left: Spare) -> None:
    """What was said between a hello and its welcome is lost."""
    head = Head.last
    head.orders += [{"kind": "welcome", "lease_s": 3.0}, {"kind": "over", "code": 0, "why": WHY}]
    assert left.run() == 0
    assert ("have", {"place": 1, "number": 3}) in head.said


def test_a_spare_host_that_is_over_says_nothing_of_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "HeadLink", Head)
    spare = Spare("127.0.0.1:1", b"secret", "s0", "127.0.0.1", tmp_path)
    assert Head.last.hello()["port"] > 0
    Head.last.orders.append({"kind": "over"})
    assert spare.run() == 0
    assert capfd.readouterr().err == ""


# ---- from the agent to the launcher ---------------------------------------------------------------


def handed_over(image: Stored, monkeypatch: pytest.MonkeyPatch) -> tuple[Launcher, list[Any]]:
    """Return the launcher that has an agent's image, and whose end it has waited for."""
    ended: list[Any] = []
    monkeypatch.setattr(agents, "end_all", lambda pids, reaped: ended.append((pids, reaped)))
    launcher = Launcher(SimpleNamespace(place=1))  # type: ignore[arg-type]
    about = {"options": image.options, "clients_name": "n", "why": WHY}
    what = agents.Image(image.record, image.memory, about)
    agents.leave(what, launcher._agent_end, tuple)
    assert launcher._listen() == 0
    return launcher, ended


def test_the_image_goes_to_the_launcher(image: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    os.write(image.memory[0][0], b"memory of a client")
    launcher, ended = handed_over(image, monkeypatch)
    assert ended == [([], tuple)]  # before anything is said
    assert launcher.left["record"] == image.record
    assert (launcher.left["clients_name"], launcher.left["why"]) == ("n", WHY)
    fds = launcher.left_memory[0]
    assert [os.pread(fd, 99, 0) for fd in fds] == [b"memory of a client"]


def test_what_cannot_be_ended_does_not_leave(
    image: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resists(*_: object) -> None:
        raise RestoreError("[1] processes cannot be ended")

    monkeypatch.setattr(agents, "end_all", resists)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with pytest.raises(RestoreError):
        agents.leave(agents.Image(image.record, image.memory, {}), theirs, tuple)
    with pytest.raises(BlockingIOError):
        ours.recv(1)  # nothing was said


def test_a_launcher_that_has_ended_is_an_error(
    image: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "end_all", lambda *_: None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with pytest.raises(OSError, match="the launcher has ended"):
        agents.leave(agents.Image(image.record, image.memory, {}), theirs, tuple)


@pytest.mark.parametrize("record", [None, {"step": 7}, {"step": 7, "clients": {}}])
def test_a_place_leaves_with_a_whole_image_only(record: dict[str, Any] | None) -> None:
    """Else it is the end of the job, and said."""
    images: Any = HostImages.__new__(HostImages)
    images._records, images._memory = {3: record} if record else {}, {3: {}}
    images._options = SimpleNamespace(of_the_job=lambda: {"gpus": "soft:1"})
    images._clients_name, images.leaves, images.failed = "n", None, ""
    images._do(Leave(3, WHY))
    if record and "clients" in record:
        about = {"options": {"gpus": "soft:1"}, "clients_name": "n", "why": WHY}
        assert (images.leaves, images.failed) == (agents.Image(record, {}, about), "")
    else:
        why = "this host has no image [3], from which its place goes on"
        assert (images.leaves, images.failed) == (None, why)


# ---- a spare host that takes a place --------------------------------------------------------------


def key_of(fd: int) -> tuple[int, int] | None:
    """Return what a descriptor is of, None if it is none."""
    with contextlib.suppress(OSError):
        about = os.fstat(fd)
        return about.st_dev, about.st_ino
    return None


def wait_until_it_serves(spare: Spare) -> None:
    """Wait until it has taken a connection."""
    for _ in range(1000):
        if spare._receiver._served:
            return
        time.sleep(0.02)
    raise AssertionError("it takes no connection")


@pytest.mark.parametrize(("ended", "code"), [(7, 7), (-9, 137)])
def test_a_host_with_a_place_keeps_no_memory_of_images(
    ended: int, code: int, image: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on with the place has it; other copies would stay for the rest of the job."""
    monkeypatch.setattr(module, "HeadLink", Head)
    spare = Spare("127.0.0.1:1", b"secret", "s0", "127.0.0.1", tmp_path / "spare")
    image.record |= {"clients": {"0": {}}, "clocks": {}}
    other = replace(image, place=0, folder=tmp_path / "other", memory={0: [memory.new("m", 1)]})
    spare._receiver.put(image)
    spare._receiver.put(other)
    under_way = socket.create_connection(("127.0.0.1", spare._port))
    wait_until_it_serves(spare)
    objects = {key_of(fd) for one in (image, other) for fds in one.memory.values() for fd in fds}

    def wait() -> int:
        assert image.folder.exists()
        assert spare._receiver.images() == []
        assert not objects & {key_of(fd) for fd in range(1024)}
        under_way.settimeout(20)
        while under_way.recv(4096):  # a greeting, and then its end
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", spare._port), 20)
        return ended

    monkeypatch.setattr(module.subprocess, "Popen", lambda *_, **__: SimpleNamespace(wait=wait))
    order = {"kind": "take", "place": 1, "number": 3, "life": 2, "round": 1, "happened": []}
    Head.last.orders.append(order)
    assert spare.run() == code
    assert not image.folder.exists()


@pytest.fixture
def sigterm() -> Iterator[None]:
    """Have the handler of now once more afterwards; without another one nothing happens."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_spare_host_that_is_ended_leaves_no_memory_of_processes_on_its_disk(
    sigterm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm ends all hosts of a job by SIGTERM."""

    def run() -> int:
        (own,) = tmp_path.iterdir()
        (own / "pages-1.img").write_text("secret")
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    def ended_otherwise(_: int) -> None:
        raise AssertionError

    monkeypatch.setattr(several.messages, "flush_and_exit", ended_otherwise)
    monkeypatch.setenv("PYFT_TOKEN", "0123456789abcdef")
    monkeypatch.setattr(several, "_check_criu", lambda: None)
    monkeypatch.setattr(several, "Spare", lambda *_: SimpleNamespace(run=run))
    with pytest.raises(SystemExit) as ended:
        several.host("127.0.0.1:1", "127.0.0.1", "s0", tmp_path)
    assert ended.value.code == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_a_place_ends_before_the_host_that_has_taken_it(sigterm: None) -> None:
    said: list[int] = []
    child: Any = SimpleNamespace(send_signal=said.append)
    signal.signal(signal.SIGTERM, several._end)
    with module._passes_on(child):
        os.kill(os.getpid(), signal.SIGTERM)
    assert said == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is several._end


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_place_appends_to_is_made_before_it_goes_on(
    is_whole: bool,
    image: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Else nothing is started, and the image stays."""
    monkeypatch.setattr(module, "HeadLink", Head)
    path = tmp_path / "log.txt"
    path.write_text("step 1\n")
    log = Log.of(str(path))
    path.rename(image.folder / "appended-0")
    if not is_whole:
        (image.folder / "appended-0").write_text("")
    spare = Spare("127.0.0.1:1", b"secret", "s0", "127.0.0.1", tmp_path / "spare")
    image.record |= {"clients": {"0": {}}, "clocks": {}, "logs": [log.note()]}
    spare._receiver.put(image)
    noted: list[dict[str, Any]] = []

    def kept(record: dict[str, Any], *_: object) -> dict[str, Any]:
        noted.extend(record["logs"])
        return {}

    started = SimpleNamespace(wait=lambda: 7)
    monkeypatch.setattr(module, "left_behind", kept)
    monkeypatch.setattr(module.subprocess, "Popen", lambda *_, **__: started)
    order = {"kind": "take", "place": 1, "number": 3, "life": 2, "round": 1, "happened": []}
    Head.last.orders += [order, {"kind": "over"}]
    assert spare.run() == (7 if is_whole else 0)
    assert path.exists() == is_whole
    if is_whole:
        assert path.read_text() == "step 1\n"
        assert [note["inode"] for note in noted] == [path.stat().st_ino]
    else:
        why = f"place [1] cannot be taken: [{path}] has not come as it was"
        assert why in capfd.readouterr().err
        assert not Head.last.said


@pytest.mark.parametrize("real", [(), ("GPU-xx",)])
def test_a_place_goes_on_with_gpus_of_its_kind(
    real: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft ones would compute something else in place of real ones, and so slowly."""
    started: list[JobOptions] = []

    def launcher(made: JobOptions, *_: object) -> None:
        started.append(made)

    monkeypatch.setattr(gpus, "driver_gpus", lambda: ["GPU-aa", "GPU-bb"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(take.clocks, "go_on", lambda _: None)
    monkeypatch.setattr(take.leaving, "run", lambda _: 7)
    monkeypatch.setattr(take, "Launcher", launcher)
    monkeypatch.setattr(JobOptions, "check_native_files", lambda _: None)
    asked = JobOptions("j", Path("/l"), Path("/n"), 1, False, ("train",), real_gpus=real)
    sent = asked.of_the_job() | {"log_dir": str(tmp_path / "place-1"), "life": 2}
    note = {"options": sent, "clients_name": "n", "clocks": {}, "kept": {}}
    assert take.main(make_note("take", note)) == 7
    assert [one.real_gpus for one in started] == [("GPU-aa",) if real else ()]
    assert [one.backend for one in started] == ["cuda" if real else "soft"]


# ---- the launcher stands by -----------------------------------------------------------------------


def options(tmp_path: Path) -> SimpleNamespace:
    """Return those of a host of a job."""
    where = {"head": "127.0.0.1:29471", "host": "h1", "address": "10.0.0.2"}
    return SimpleNamespace(place=1, log_dir=tmp_path / "log", **where)


def test_a_launcher_without_a_place_that_left_ends_with_its_code(tmp_path: Path) -> None:
    launcher: Any = SimpleNamespace(run=lambda: 7, left={}, options=options(tmp_path))
    assert leaving.run(launcher) == 7


@pytest.mark.parametrize("gone", [False, True])
def test_a_launcher_whose_place_left_stands_by_with_the_image(
    gone: bool,
    image: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYFT_TOKEN", "0123456789abcdef")
    seen: list[Any] = []

    def stands_by(*arguments: Any) -> Any:
        seen.extend(arguments)
        assert image.folder.exists()
        if gone:
            shutil.rmtree(image.folder.parent)
        return SimpleNamespace(run=lambda: 5)

    monkeypatch.setattr(leaving, "Spare", stands_by)
    left = {"options": image.options, "clients_name": "n", "why": WHY, "record": image.record}
    launcher: Any = SimpleNamespace(
        run=lambda: 0, left=left, left_memory=image.memory, options=options(tmp_path)
    )
    assert leaving.run(launcher) == 5
    assert seen[0] == "127.0.0.1:29471"
    assert seen[2:5] == ["h1", "10.0.0.2", tmp_path / "log"]
    assert seen[5] == image
    assert not (tmp_path / "log" / "images").exists()
    assert f"{WHY}: place [1] has ended here, its image stays meanwhile" in capfd.readouterr().err
