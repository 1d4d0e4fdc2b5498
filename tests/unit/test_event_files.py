"""TensorBoard opens an event file anew for each event; an image knows what is open when it is made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyft.agent import image_record
from pyft.agent.job.environment import SITE_FOLDER

GFILE = "tensorboard.compat.tensorflow_stub.io.gfile"
# As in TensorBoard 2.21, where TensorFlow is not installed.
STAND_IN = """
class LocalFileSystem(object):
    def write(self, filename, content):
        with open(filename, "wb") as file:
            file.write(content)
    def append(self, filename, content):
        with open(filename, "ab") as file:
            file.write(content)

class OtherFileSystem(object):
    def write(self, filename, content): print("other", flush=True)
    append = write

class GFile(object):
    def __init__(self, filename, mode):
        self.filename, self.started, self.closed = filename.encode(), False, False
        self.fs = OtherFileSystem() if ":" in filename else LocalFileSystem()
    def write(self, content):
        if self.closed:
            raise ValueError("closed")
        (self.fs.append if self.started else self.fs.write)(self.filename, content)
        self.started = True
    def flush(self): pass
    def close(self): self.closed = True
"""
PROGRAM = f"""
import os, sys
from {GFILE} import GFile
path = sys.argv[1]
file = GFile(path, "wb")
for line in sys.stdin:
    if line == "remove\\n":
        os.unlink(path)
    elif line == "close\\n":
        file.close()
    else:
        file.write(line.encode())
    print("done", flush=True)
"""


class Program:
    """A program that writes events."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def do(self, word: str) -> None:
        """Have it write that, or do what it says."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        while self._process.stdout.readline() != "done\n":
            pass

    def logs(self) -> dict[str, Any]:
        """Return what an image would know of files that are appended to, by path."""
        found, why = image_record._logs_of([self.pid], {})
        assert why == ""
        return {log.path: log for log in found}


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / getattr(request, "param", "events")


@pytest.fixture
def program(tmp_path: Path, path: Path) -> Iterator[Program]:
    """Return one under the hooks that `pyft run` puts into it, with a stand-in for TensorBoard."""
    stand_in = tmp_path.joinpath("site", *GFILE.split(".")).with_suffix(".py")
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(STAND_IN)
    own = {"PYFT_JOB": "job", "PYTHONPATH": f"{SITE_FOLDER}:{tmp_path / 'site'}"}
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, env=os.environ | own, **ends) as process:
        yield Program(process)


def test_each_event_is_there_once_after_all_went_back(program: Program, path: Path) -> None:
    program.do("step 1")
    program.do("step 2")
    (log,) = program.logs().values()
    assert log.path == str(path)
    program.do("step 3")
    assert log.cut_back() == ""
    program.do("step 3")  # again
    assert path.read_text() == "step 1\nstep 2\nstep 3\n"


def test_a_file_that_is_made_anew_is_known(program: Program, path: Path) -> None:
    program.do("step 1")
    program.do("remove")
    program.do("step 2")
    assert program.logs()[str(path)].size == len("step 2\n")


def test_one_that_was_closed_is_not(program: Program) -> None:
    program.do("step 1")
    program.do("close")
    assert program.logs() == {}


@pytest.mark.parametrize("path", ["s3:events"], indirect=True)
def test_of_another_file_system_nothing_is_opened(program: Program, path: Path) -> None:
    program.do("step 1")
    assert program.logs() == {}
    assert not path.exists()
