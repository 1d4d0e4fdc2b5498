"""Processes that are killed do nothing more, although some get a signal when their parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from job import wait_for

from pyft.agent import ended_dump, restoring
from pyft.agent.process import process_tree
from pyft.agent.process.stopped import kill_all

# A parent and its child, as a relay and torchrun: the child notes that it was asked to end.
PARENT = """
import os, signal, subprocess, sys
from pyft.agent.process import process_tree
parent = os.getpid()
subprocess.Popen(
    [sys.executable, "-c", sys.argv[1], sys.argv[2]],
    preexec_fn=lambda: process_tree.die_with_parent(signal.SIGTERM, parent),
)
sys.stdin.read()
"""
CHILD = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path(sys.argv[1]).touch())
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


class Tree:
    """Both processes, of which the parent is dead for as long as it takes before more is killed."""

    def __init__(self, folder: Path, kill: Callable[[int, int], None]) -> None:
        self.asked, self._kill = folder / "asked", kill
        command = [sys.executable, "-c", PARENT, CHILD, str(self.asked)]
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.parent = subprocess.Popen(command, **ends)
        assert self.parent.stdout
        self.child = int(self.parent.stdout.readline())

    @property
    def pids(self) -> list[int]:
        """Return both, the parent first, as all that is killed is listed."""
        return [self.parent.pid, self.child]

    @property
    def child_state(self) -> str:
        """Return the letter of the child's state, as if it were a zombie when it is gone."""
        try:
            stat = Path(f"/proc/{self.child}/stat").read_text()
        except OSError:
            return "Z"
        return stat.rpartition(")")[2].split()[0]

    def kill_slowly(self, pid: int, number: int) -> None:
        """Send a signal; the sender gets no core after it has killed the parent."""
        self._kill(pid, number)
        if (pid, number) == (self.parent.pid, signal.SIGKILL):
            self.parent.wait()
            acted = lambda: self.asked.exists() or self.child_state == "T"  # noqa: E731
            wait_for(acted, 30, "the child acts on its signal, or cannot")

    def end(self) -> None:
        """Leave nothing behind."""
        self.parent.kill()
        self.parent.communicate()
        process_tree.send([self.child], signal.SIGKILL)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """Return one that whoever kills it kills slowly."""
    made = Tree(tmp_path, os.kill)
    monkeypatch.setattr(os, "kill", made.kill_slowly)
    yield made
    monkeypatch.undo()
    made.end()


def assert_nothing_was_done(tree: Tree) -> None:
    """Both are gone, and the child has not acted on its signal."""
    wait_for(lambda: tree.child_state == "Z", 30, "the child ends")
    assert tree.parent.poll() == -signal.SIGKILL
    assert not tree.asked.exists()


def test_one_that_is_asked_to_end_by_its_parents_death(tree: Tree) -> None:
    kill_all(lambda: tree.pids)
    assert_nothing_was_done(tree)


def test_all_that_goes_back(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def living(_: int, spared: Collection[int]) -> list[int]:
        return [pid for pid in tree.pids if tree.child_state != "Z" and pid not in spared]

    monkeypatch.setattr(process_tree, "descendants", living)
    restoring.end_all([], lambda: None)
    assert_nothing_was_done(tree)


def test_a_tree_that_is_dumped(tree: Tree) -> None:
    dump = subprocess.Popen(["true"])
    dump.wait()
    ended_dump.end_dump(dump.pid, tree.parent.pid, 60, with_tree=True)
    assert_nothing_was_done(tree)
