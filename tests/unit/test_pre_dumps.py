"""A pre-dump that fails, hangs or is left behind costs nothing but itself: with programs for CRIU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from job import wait_for

from pyft.agent import images as images_module
from pyft.agent import pre_dumps
from pyft.agent.images import Images
from pyft.agent.pre_dumps import MOST_FAILED, PreDumps
from pyft.agent.process.criu_work import CriuWork
from pyft.agent.supervisor import children
from pyft.agent.supervisor.link import Handover, Process
from pyft.images import criu, image_folder
from pyft.recovery.images import Dump, Hold, ImagePlan, Phase, Prepare

# What it does with the folder that it is given; `check` is whether there can be pre-dumps.
PROGRAM = """#!/bin/sh
for word; do [ "$before" = --images-dir ] && folder=$word; before=$word; done
case $1 in
check) echo >>"{folder}/asked"; {check} ;;
pre-dump) echo page >"$folder/pages-1.img"; {pre_dump} ;;
dump) {dump} ;;
esac
"""
# Has a process in its hands until it is told, as CRIU does while it notes its pages.
HOLDS = """
import ctypes, os, sys, time
libc, root = ctypes.CDLL(None), int(sys.argv[1])
assert libc.ptrace(0x4206, root, None, None) == 0
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
assert libc.ptrace(0x4207, root, None, 0) == 0
os.waitpid(root, 0x40000000)
assert libc.ptrace(17, root, None, 0) == 0
open(sys.argv[4], "w").close()
time.sleep(600)
"""


def program(
    folder: Path, *, check: str = "true", pre_dump: str = "true", dump: str = "true"
) -> Path:
    """Return a program for CRIU."""
    path = folder / "criu"
    how = {"check": check, "pre_dump": pre_dump, "dump": dump}
    path.write_text(PROGRAM.format(folder=folder, **how))
    path.chmod(0o755)
    return path


class Supervisor:
    """Starts what it is told to."""

    def __init__(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.started: list[tuple[str, list[str]]] = []
        self.forgotten: list[int] = []
        self.keep = self.drop = lambda *_, **__: None

    def start_criu(self, name: str, arguments: list[str], root: int) -> int:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
        self.processes[process.pid] = process
        self.started.append((name, arguments[1:]))
        return process.pid

    def forget(self, pid: int) -> None:
        self.forgotten.append(pid)

    def status(self, pid: int) -> int:
        """Return how a process ends."""
        code = self.processes[pid].wait(30)
        return -code if code < 0 else code << 8


class World:
    """Pre-dumps of one process, and what they need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.supervisor = folder, Supervisor()
        options = SimpleNamespace(memory_folder="", log_dir=folder, head="", flush=())
        self.servers: Any = SimpleNamespace(
            options=options,
            supervisor=self.supervisor,
            members={},
            ending=False,
            plan=SimpleNamespace(ranks={}, rollback=False),
            comparison=SimpleNamespace(sharing=SimpleNamespace(note=lambda: {"kept": []})),
        )
        self.root = subprocess.Popen(["sleep", "600"])
        self.pre_dumps = PreDumps(self.servers)

    def pre_dump(self) -> bool:
        """Begin one, and have it end; say whether something waits for its end."""
        assert self.pre_dumps.begin(self.folder / "criu", self.root.pid)
        pid = self.pre_dumps.pid
        return self.pre_dumps.ended(pid, self.supervisor.status(pid))

    def left(self) -> list[str]:
        """Return what there is of images."""
        return os.listdir(self.folder / "images") if (self.folder / "images").exists() else []

    def end(self) -> None:
        """Leave nothing behind."""
        for process in (self.root, *self.supervisor.processes.values()):
            process.kill()
            process.wait()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a process that can be pre-dumped."""
    one = World(tmp_path)
    yield one
    one.end()


# ---- whether there can be any --------------------------------------------------------------------


@pytest.mark.parametrize("can", ["true", "false"])
def test_criu_is_asked_once(tmp_path: Path, can: str) -> None:
    asked = program(tmp_path, check=can)
    assert [criu.tracks_writes(asked) for _ in range(3)] == [can == "true"] * 3
    assert (tmp_path / "asked").read_text().count("\n") == 1
    assert not criu.tracks_writes(tmp_path / "nothing")


# ---- one that ends -------------------------------------------------------------------------------


def test_an_image_takes_a_whole_one(world: World) -> None:
    program(world.folder)
    assert world.pre_dump()
    ((name, arguments),) = world.supervisor.started
    assert name == children.PRE_DUMP
    assert arguments[0] == "pre-dump"
    assert {"--track-mem", "--tree", str(world.root.pid)} <= set(arguments)
    folder = world.folder / "images" / "1"
    image_folder.make(folder, "", 0)
    parent = world.pre_dumps.take(folder)
    assert world.left() == ["1"]
    assert (folder / parent / "pages-1.img").exists()
    wanted = ["--track-mem", "--prev-images-dir", parent]
    dumps = criu.dump_arguments(world.folder / "criu", 1, folder, [], parent)
    assert " ".join(wanted) in " ".join(dumps)
    assert "--track-mem" not in criu.dump_arguments(world.folder / "criu", 1, folder, [])
    assert world.pre_dumps.figures.keys() == {"pre_dump_s", "pre_dump_stood_s"}
    assert world.pre_dumps.take(folder) == ""  # it is no other one's


def test_one_that_fails_is_said_once_and_others_are_tried(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    program(world.folder, pre_dump="exit 3")
    for count in range(1, MOST_FAILED + 1):
        assert world.pre_dump()
        assert world.left() == []
        said = capfd.readouterr().err
        assert ("without a pre-dump: CRIU" in said) == (count == 1)
        assert ("no more pre-dumps" in said) == (count == MOST_FAILED)
    assert not world.pre_dumps.begin(world.folder / "criu", world.root.pid)
    folder = world.folder / "images" / "1"
    image_folder.make(folder, "", 0)
    assert world.pre_dumps.take(folder) == ""
    assert os.listdir(folder) == []


def test_a_dump_that_fails_after_it_counts_and_one_that_does_not_ends_the_row(world: World) -> None:
    program(world.folder)
    whys = [*["why"] * (MOST_FAILED - 1), "", *["why"] * MOST_FAILED]
    for number, why in enumerate(whys):
        world.pre_dump()
        folder = world.folder / "images" / str(number)
        image_folder.make(folder, "", 0)
        assert world.pre_dumps.take(folder)
        world.pre_dumps.dumped(why)
    assert world.pre_dumps.are_given_up


def test_a_dump_of_all_pages_that_fails_says_nothing_about_them(world: World) -> None:
    for _ in range(2 * MOST_FAILED):
        world.pre_dumps.take(world.folder)
        world.pre_dumps.dumped("why")
    assert not world.pre_dumps.are_given_up


def test_criu_that_cannot_be_started_costs_nothing(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not world.pre_dumps.begin(world.folder / "nothing", world.root.pid)
    assert world.left() == []
    assert "CRIU cannot be started: No such file" in capfd.readouterr().err


# ---- one that does not end -----------------------------------------------------------------------


def test_one_that_takes_too_long_is_ended(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    program(world.folder, pre_dump="exec sleep 600")
    assert world.pre_dumps.begin(world.folder / "criu", world.root.pid)
    assert world.pre_dumps.look() == ""
    pid = world.pre_dumps.pid
    assert world.supervisor.processes[pid].poll() is None
    world.pre_dumps._until = world.pre_dumps._clock.now() - 1.0
    assert world.pre_dumps.look() == ""
    status = world.supervisor.status(pid)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert world.pre_dumps.ended(pid, status)
    assert "it has taken more than [60] s" in capfd.readouterr().err
    assert world.left() == []
    assert not world.pre_dumps.pid


def test_criu_is_not_killed_while_it_holds_a_process(world: World) -> None:
    """Else that would go on in the middle of CRIU's code."""
    held, go, gone = (world.folder / name for name in ("held", "go", "gone"))
    command = [sys.executable, "-c", HOLDS, str(world.root.pid), *map(str, (held, go, gone))]
    holder = subprocess.Popen(command)
    world.supervisor.processes[holder.pid] = holder
    wait_for(held.exists, 30, "it holds")
    for _ in range(3):
        pre_dumps._end_idle(holder.pid, world.root.pid)
    assert holder.poll() is None
    go.touch()
    wait_for(gone.exists, 30, "it has let go, and was not left stopped")
    pre_dumps._end_idle(holder.pid, world.root.pid)
    assert holder.wait(30) == -signal.SIGKILL
    assert world.root.poll() is None


def test_one_that_cannot_be_ended_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pre_dumps, "_end_idle", lambda *_: None)
    program(world.folder, pre_dump="exec sleep 600")
    assert world.pre_dumps.begin(world.folder / "criu", world.root.pid)
    world.pre_dumps._until = world.pre_dumps._clock.now() - 299.0
    assert world.pre_dumps.look() == ""
    world.pre_dumps._until -= 2.0
    assert "CRIU has not ended a pre-dump within [360] s" in world.pre_dumps.look()
    assert world.pre_dumps.look() == ""  # once


# ---- agents die ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, 0, 256])
def test_the_next_agent_leaves_nothing_of_it(world: World, status: int | None) -> None:
    program(world.folder, pre_dump="read line </dev/null; exec sleep 600")
    assert world.pre_dumps.begin(world.folder / "criu", world.root.pid)
    pid, after = world.pre_dumps.pid, PreDumps(world.servers)
    left = Handover(processes={pid: Process(children.PRE_DUMP, pid, None, status)})
    after.adopt(world.root.pid, left)
    if status is None:
        assert world.left() == [image_folder.PRE_DUMP]  # CRIU may write into it
        assert not after.begin(world.folder / "criu", world.root.pid)
        assert not after.ended(pid, 0)  # nothing waits for it
    assert world.left() == []
    assert world.supervisor.forgotten == [pid]
    assert after.pid == 0


def test_a_lease_stops_what_is_pre_dumped(tmp_path: Path) -> None:
    """It runs, unlike what is dumped; CRIU fails then, or stands still with it."""
    noted = {}
    for name in children.CRIU:
        work = CriuWork()
        what = {"arguments": ["true"], "environment": {}, "root": 7, "inherit": [], "standard": []}
        child = children.start_criu(name, what, {}, work)
        os.waitpid(child.pid, 0)
        noted[name] = work.among([child.pid]) is not None
    assert noted == {"pre-dump": False, "dump": True, "restore": True}


# ---- of an image ---------------------------------------------------------------------------------


class Made(World):
    """Images of one process, of which the first is due."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.plan = ImagePlan()
        self.plan.prepares, self.plan.phase = True, Phase.PREPARE
        self.images = Images(self.servers, self.plan)
        self.images._program, self.images._root = folder / "criu", self.root.pid
        self.done: list[Any] = []
        monkeypatch.setattr(self.plan, "prepared", self._prepared)
        monkeypatch.setattr(images_module, "let_go", lambda *_: None)

    def _prepared(self, *_: object) -> list[Any]:
        self.plan.phase, self.plan.step, self.plan.number = Phase.DUMP, 7, 1
        return [Hold(7), Dump(1, 7)]

    def end_last(self) -> None:
        """Let what was started last end."""
        pid = list(self.supervisor.processes)[-1]
        assert self.images.ended(pid, self.supervisor.status(pid))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Return images of a process."""
    one = Made(tmp_path, monkeypatch)
    yield one
    one.end()


@pytest.mark.parametrize("pre_dump", ["true", "exit 1"])
def test_the_dump_follows_the_pre_dump_and_needs_it_no_more_than_that(
    made: Made, pre_dump: str
) -> None:
    program(made.folder, pre_dump=pre_dump)
    made.images._do(Prepare())
    assert [name for name, _ in made.supervisor.started] == ["pre-dump"]
    assert state(made.root.pid) != "T"
    made.end_last()
    assert [name for name, _ in made.supervisor.started] == ["pre-dump", "dump"]
    assert ("--prev-images-dir" in made.supervisor.started[-1][1]) == (pre_dump == "true")
    assert state(made.root.pid) == "T"


def test_without_one_the_hold_is_at_once(made: Made) -> None:
    program(made.folder, pre_dump="exit 1")
    made.images._pre_dumps._failed = MOST_FAILED
    made.images._do(Prepare())
    assert [name for name, _ in made.supervisor.started] == ["dump"]


def test_nothing_is_dumped_while_one_is_at_work(
    made: Made, capfd: pytest.CaptureFixture[str]
) -> None:
    """CRIU cannot have a process twice; the head has not waited for it."""
    program(made.folder, pre_dump="exec sleep 600")
    made.images._do(Prepare())
    made._prepared()
    made.images._do(Dump(1, 7))
    assert [name for name, _ in made.supervisor.started] == ["pre-dump"]
    assert "a pre-dump has not ended" in capfd.readouterr().err
    assert made.plan.passed == 1


@pytest.mark.parametrize("ends", ["going back", "the job"])
def test_one_at_work_ends_when_all_go_back_or_the_job_ends(made: Made, ends: str) -> None:
    program(made.folder, pre_dump="exec sleep 600")
    made.images._do(Prepare())
    criu_process = made.supervisor.processes[made.images._pre_dumps.pid]
    waiting = [Thread(target=one.wait, daemon=True) for one in (criu_process, made.root)]
    for thread in waiting:  # as the supervisor does
        thread.start()
    if ends == "going back":
        made.images.end_dump(0.2)
    else:
        made.images.end()
    waiting[0].join(30)
    assert criu_process.returncode == -signal.SIGKILL
    if ends == "going back":
        waiting[1].join(30)
    assert (made.root.returncode is None) == (ends == "the job")
    assert ends == "going back" or made.left() == []


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
