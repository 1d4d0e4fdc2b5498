"""Connections between two places go back with their images: no byte is lost, and none comes twice."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import relays
from job import wait_for

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

from pyft.agent.process import process_tree  # noqa: E402
from pyft.images import criu, tree  # noqa: E402

COUNTER = [sys.executable, str(Path(__file__).with_name("programs") / "counter.py")]
PORT = "29511"
Need = Callable[[str, bool, str], None]


@pytest.fixture(autouse=True)
def _token(need: Need, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    need("nodes", not movable.lacks(), movable.lacks())
    monkeypatch.setenv("PYFT_TOKEN", secrets.token_hex(16))
    process_tree.become_subreaper()  # what is restored has the numbers that are reaped here
    yield
    process_tree.linux.prctl(process_tree.linux.PR_SET_CHILD_SUBREAPER, 0)


class Counters:
    """Two places. In both a process counts with one in the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.relays = folder, relays.Relays()
        self.files = [folder / "asked-0", folder / "asked-1"]
        asks = [[*COUNTER, "ask", relays.ADDRESSES[0], PORT, str(file)] for file in self.files]
        first = f"'{COUNTER[0]}' '{COUNTER[1]}' serve {PORT} & exec \"$@\""
        self.roots = [self.start(0, "sh", "-c", first, "sh", *asks[0]), self.start(1, *asks[1])]

    def start(self, place: int, *command: str) -> int:
        with open(self.folder / f"said-{place}", "ab") as out:
            how = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            started = self.relays.start(place, *command, start_new_session=True, **how)
        started.returncode = 0  # reaped by end()
        return started.pid

    def said(self) -> str:
        return "".join((self.folder / f"said-{place}").read_text() for place in range(2))

    def numbers(self, place: int) -> list[int]:
        if not self.files[place].exists():
            return []
        return [int(line) for line in self.files[place].read_text().split("\n")[:-1]]

    def wait(self, more: int) -> None:
        """Wait until both have counted further."""
        until = [len(self.numbers(place)) + more for place in range(2)]
        for place in range(2):
            wait_for(lambda p=place: len(self.numbers(p)) >= until[p], 30, self.said())

    def signal(self, number: int, place: int) -> None:
        process_tree.send(tree.members(self.roots[place]), number)

    def dump(self, place: int) -> None:
        """Stop a place, and make its image; what it says from now on is not heard."""
        self.relays.is_open[place] = False
        self.signal(signal.SIGSTOP, place)
        assert tree.connection_out_of(tree.members(self.roots[place]), True) == ""
        folder = self.folder / f"image-{place}"
        folder.mkdir()
        program = criu.find()
        assert program
        done = subprocess.run(criu.dump_arguments(program, self.roots[place], folder, []))
        assert done.returncode == 0, criu.why_failed(folder)

    def go_on(self) -> None:
        for place in range(2):
            self.signal(signal.SIGCONT, place)
            self.relays.is_open[place] = True

    def end(self) -> None:
        """End all at once: nothing is to notice that another one is gone."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for place in range(2):
                self.signal(number, place)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass

    def restore(self) -> None:
        self.relays.end()
        self.relays = relays.Relays(names=self.relays.names)
        program = criu.find()
        assert program
        for place in range(2):
            folder = self.folder / f"image-{place}"
            done = subprocess.run(criu.restore_arguments(program, folder))
            assert done.returncode == 0, criu.why_failed(folder)


@pytest.mark.parametrize("first", [0, 1])
def test_connections_go_back_with_images(tmp_path: Path, first: int) -> None:
    """Between the two dumps time passes, and after them both go on before all is killed."""
    counters = Counters(tmp_path)
    try:
        counters.wait(100)
        counters.dump(first)
        time.sleep(0.2)
        counters.dump(1 - first)
        at = [counters.numbers(place)[-1] for place in range(2)]
        counters.go_on()
        counters.wait(100)
        counters.end()
        counters.restore()
        lines = [len(counters.numbers(place)) for place in range(2)]
        counters.go_on()
        counters.wait(100)
        again = [counters.numbers(place)[lines[place] :] for place in range(2)]
        for place in range(2):
            assert again[place] == list(range(again[place][0], again[place][0] + len(again[place])))
            assert again[place][0] in (at[place], at[place] + 1)
        assert counters.said() == ""
    finally:
        counters.end()
        counters.relays.end()
