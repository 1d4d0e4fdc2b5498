"""What is written down of the processes when an image of them begins is what CRIU finds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job import wait_for

from pyft.agent import image_record, images
from pyft.agent.images import Images
from pyft.agent.process import process_tree
from pyft.images import tree
from pyft.recovery.images import Dump, ImagePlan, Phase

# Each byte that it gets makes it append a line, or start a process: a thread that no cut holds.
PROGRAM = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, b"begun\\n")
while what := os.read(0, 1):
    if what == b"l":
        os.write(log, b"a line\\n")
    elif os.fork() == 0:
        os.read(int(sys.argv[2]), 1)
        break
"""


class Begun:
    """An image of one process that is about to begin, with stand-ins for all else."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.txt"
        waits, self._ends = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.log), str(waits)],
            stdin=subprocess.PIPE,
            pass_fds=(waits,),
        )
        os.close(waits)
        wait_for(lambda: self.log.exists() and self.log.stat().st_size > 0, 30, "it runs")
        self.at_criu: dict[str, Any] = {}
        quiet = lambda *_, **__: None  # noqa: E731
        sharing = SimpleNamespace(note=lambda: {"kept": []})
        servers: Any = SimpleNamespace(
            options=SimpleNamespace(memory_folder="", log_dir=folder, head=""),
            members={},
            ending=False,
            plan=SimpleNamespace(ranks={}, rollback=False),
            supervisor=SimpleNamespace(keep=quiet, drop=quiet, start_criu=self._start_criu),
            comparison=SimpleNamespace(sharing=sharing),
        )
        self.plan = ImagePlan()
        self.plan.phase, self.plan.number, self.plan.step = Phase.DUMP, 1, 7
        self.images = Images(servers, self.plan)
        self.images._program, self.images._root = Path("criu"), self.process.pid

    def _start_criu(self, *_: object) -> int:
        self.at_criu = {"size": self.log.stat().st_size, "living": self.living()}
        return 77

    def living(self) -> list[int]:
        """Return the process and those that it has started."""
        return tree.members(self.process.pid)

    def say(self, what: bytes) -> None:
        """Tell it what to do."""
        assert self.process.stdin
        self.process.stdin.write(what)
        self.process.stdin.flush()

    def stands(self) -> bool:
        """Say whether it is stopped."""
        return tree_state(self.process.pid) == "T"

    def begin(self) -> dict[str, Any]:
        """Begin the image; return its record."""
        self.images._begin_dump(Dump(1, 7))
        return self.images._records.get(1, {})

    def end(self) -> None:
        """Leave nothing behind."""
        process_tree.send(self.living(), signal.SIGKILL)
        os.close(self._ends)
        self.process.communicate()


def tree_state(pid: int) -> str:
    """Return the letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """Return it before it begins."""
    one = Begun(tmp_path)
    yield one
    one.end()


def test_no_line_comes_after_the_log_was_looked_at(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back would cut it off, although the image has it as written."""
    looked, size = image_record.begun, begun.log.stat().st_size

    def look(*args: Any) -> Any:
        found = looked(*args)
        begun.say(b"l")
        wait_for(lambda: begun.stands() or begun.log.stat().st_size > size, 30, "a line, or none")
        return found

    monkeypatch.setattr(image_record, "begun", look)
    record = begun.begin()
    assert [log["size"] for log in record["logs"]] == [begun.at_criu["size"]]


def test_a_process_that_is_started_meanwhile_stands_and_is_written_down(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, forked = process_tree.send, list[int]()

    def send(pids: Any, number: int) -> None:
        if number == signal.SIGSTOP and not forked:
            begun.say(b"f")
            wait_for(lambda: len(begun.living()) > 1, 30, "it has forked")
            forked.extend(begun.living()[1:])
        sent(pids, number)

    monkeypatch.setattr(process_tree, "send", send)
    record = begun.begin()
    assert forked
    assert record["pids"] == begun.at_criu["living"] == [begun.process.pid, *forked]
    assert {tree_state(pid) for pid in record["pids"]} == {"T"}


def test_all_go_on_if_there_can_be_no_image(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images.tree, "connection_out_of", lambda *_: "a connection leads out")
    begun.begin()
    assert not begun.at_criu
    assert begun.plan.passed == 1
    wait_for(lambda: not begun.stands(), 30, "it goes on")


def test_one_that_does_not_stop_is_named_and_all_go_on(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sent = process_tree.send
    monkeypatch.setattr("pyft.agent.process.stopped.TREE_STOP_S", 0.01)
    monkeypatch.setattr(
        process_tree, "send", lambda pids, n: None if n == signal.SIGSTOP else sent(pids, n)
    )
    begun.begin()
    assert not begun.at_criu
    assert f"[pid {begun.process.pid}] does not stop within [0.01] s" in capfd.readouterr().err
