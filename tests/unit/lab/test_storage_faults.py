"""Faults of storage: that they strike, that mechanisms say so, and that one that does not is caught."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyft_lab.command import cli
from pyft_lab.errors import LabError, SpecError
from pyft_lab.matrix import runner, spec, storage
from pyft_lab.oracles import storage_oracle

LIMIT_S = 60.0
# Writes a checkpoint as the lab's own mechanisms do, whether the fault has begun or not.
WRITER = """
import os, sys, time
folder, swallow = sys.argv[1], sys.argv[2] == "swallow"
open(folder + "/up", "w").close()
while not os.path.exists(folder + "/io-0.ready"):
    time.sleep(0.01)
with open(folder + "/step.part", "wb") as file:
    file.write(b"state")
    try:
        os.fsync(file.fileno())
    except OSError:
        if not swallow:
            sys.exit(3)
os.rename(folder + "/step.part", folder + "/step.pt")
"""
EIO = (SimpleNamespace(kind="eio", step=3, rank=0, moment="forward"),)


@pytest.fixture
def strace() -> None:
    if not shutil.which("strace"):
        pytest.skip("[strace]: it is not installed")


@pytest.fixture
def small_disk() -> None:
    if not storage.may_mount():
        pytest.skip("[nodes]: a process may not make namespaces here")


def written(folder: Path, kind: str, how: str) -> int:
    """Let a process write under a fault; return its exit code."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), how])
    last = time.monotonic() + LIMIT_S
    while not (folder / "up").exists():
        assert time.monotonic() < last
        time.sleep(0.01)
    (folder / "io-0.asked").write_text(kind)
    tracer = storage.Tracer(folder)
    tracer.poll([writer.pid])
    code = writer.wait(LIMIT_S)
    for begun in tracer.begun:
        begun.wait(LIMIT_S)  # all is noted when it has ended
    return code


@pytest.mark.usefixtures("strace")
def test_an_error_strikes_and_who_swallows_it_is_caught(tmp_path: Path) -> None:
    for how, code in (("honest", 3), ("swallow", 0)):
        folder = tmp_path / how
        folder.mkdir()
        assert written(folder, "eio", how) == code
        found = storage_oracle.met(folder, 0)
        assert len(found.times) == 1
        assert abs(found.first - time.time()) < LIMIT_S
        wrong, without = storage_oracle.check(folder, EIO, 1)
        assert not without
        assert bool(wrong) is (how == "swallow")
        assert (folder / "step.pt").exists() is (how == "swallow")


@pytest.mark.usefixtures("strace")
def test_a_slow_write_is_slow_and_good(tmp_path: Path) -> None:
    before = time.monotonic()
    assert written(tmp_path, "slow-write", "honest") == 0
    assert time.monotonic() - before > 1.0
    assert len(storage_oracle.met(tmp_path, 0).times) == 1
    assert storage_oracle.check(tmp_path, EIO, 1) == ([], [])


def test_a_fault_that_met_nothing_is_told(tmp_path: Path) -> None:
    assert storage_oracle.check(tmp_path, EIO, 2)[1] == [
        "fault [eio] met no call of a checkpoint's"
    ]
    full = (SimpleNamespace(kind="disk-full"),)
    assert storage_oracle.check(tmp_path, full, 1)[1]
    assert not storage_oracle.check(tmp_path, full, 2)[1]


def test_notes_of_strace_are_read_thread_by_thread() -> None:
    told = "\n".join([
        "11   5.25 fsync(7</c/a.part> <unfinished ...>",
        '12   5.26 rename("/c/b.part", "/c/b.pt") = 0',
        "11   5.50 <... fsync resumed>)         = -1 EIO (Input/output error) (INJECTED)",
        '12   5.60 rename("/c/d.part", "/c/d.pt") = 0',
        '11   5.70 rename("/c/x", "/c/y") = -1 ENOENT (No such file or directory)',
        "11   5.80 +++ exited with 0 +++",
        "12   6.00 fsync(",
    ])  # fmt: skip
    assert storage_oracle.read_trace(told) == storage_oracle.Met(5.5, (5.5,), ())
    more = told + '\n11   7.00 rename("/c/a.part", "/c/a.pt") = 0'
    assert storage_oracle.read_trace(more).named == ('("/c/a.part", "/c/a.pt") = 0',)


def test_what_a_fault_needs_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.shutil, "which", lambda _: None)
    monkeypatch.setattr(storage, "may_mount", lambda: False)
    storage.check_tools({"rank-kill", "torn"})
    with pytest.raises(LabError, match=r"fault \[eio\] needs the program strace"):
        storage.check_tools({"eio"})
    with pytest.raises(LabError, match="needs a disk of its own"):
        storage.check_tools({"disk-full"})
    uneven = spec.Matrix(mechanism=["blocking"], fault=["eio"], steps=42, interval=[5])
    with pytest.raises(SpecError, match="need a checkpoint after them"):
        uneven.check()
    (_, cell) = spec.expand(spec.Matrix(mechanism=["memory"], fault=["eio"], interval=[5]))
    assert "writes nothing" in runner.not_claimed(cell)


@pytest.mark.usefixtures("strace", "small_disk")
def test_a_checkpoint_that_cannot_be_written_is_told_by_the_thread_that_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    matrix = tmp_path / "m.toml"
    matrix.write_text(
        '[matrix]\nmechanism = ["overlapped"]\nfault = ["eio", "disk-full"]\n'
        "ranks = [1]\nsteps = 20\ninterval = [5]\n"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(matrix), "--out", str(tmp_path / "out")])
    assert ended.value.code == 0, capsys.readouterr().out
    answers = {}
    for path in tmp_path.glob("out/cells/*/result.json"):
        for fault in json.loads(path.read_text())["faults"]:
            answers[fault["kind"]] = fault["answer"]
    assert {*answers} == {"eio", "disk-full"}
    assert all(text.startswith("was told of it, began anew") for text in answers.values())
