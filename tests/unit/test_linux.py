"""pyft/_native/linux.py: where programs may lie."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft._native import linux
from pyft.cli import doctor

ADDR_NO_RANDOMIZE = 0x0040000
PROGRAM = """
import os, sys
from collections.abc import Callable
from pathlib import Path
from pyft._native import linux
linux.RANDOM_BITS = Path(sys.argv[1])
linux.keep_windows_free()
os.execvp("cat", ["cat", "/proc/self/personality"])
"""


@pytest.mark.parametrize(("bits", "fixed"), [("28", False), ("32", True), ("none", False)])
def test_programs_do_not_lie_in_the_windows(tmp_path: Path, bits: str, fixed: bool) -> None:
    file = tmp_path / "mmap_rnd_bits"
    file.write_text(bits)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True
    )
    assert bool(int(done.stdout, 16) & ADDR_NO_RANDOMIZE) == fixed


def test_the_doctor_says_when_they_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mmap_rnd_bits"
    file.write_text("32\n")
    monkeypatch.setattr(linux, "RANDOM_BITS", file)
    assert doctor.check_address_window().status == "ok"
    monkeypatch.setattr(linux, "same_addresses", lambda: False)
    found = doctor.check_address_window()
    assert found.status == "warn"
    assert "vm.mmap_rnd_bits is [32]" in found.text


def test_numbers_of_processes_begin_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, last = tmp_path / "pid_max", tmp_path / "ns_last_pid"
    monkeypatch.setattr(linux, "PID_MAX", most)
    monkeypatch.setattr(linux, "LAST_PID", last)
    linux.spread_pids()  # not allowed, or no such kernel: nothing happens
    assert not last.exists()
    most.write_text("32768\n")
    found = set()
    for _ in range(20):
        linux.spread_pids()
        found.add(int(last.read_text()))
    assert len(found) > 10
    assert min(found) >= 4096
    assert max(found) < 32768 - 4096, "room behind it for all that the command starts"


CLOCKS = """
import subprocess, sys, threading, time
from pyft._native import linux
linux.set_clocks({"monotonic": 5_000_000 * 10**9, "boottime": 6_000_000 * 10**9})
print(*(int(ns // 10**9) for ns in linux.clocks().values()))
linux.set_clocks({"monotonic": 7_000_000 * 10**9, "boottime": 10**9})
subprocess.run([sys.executable, "-c", "import time; print(int(time.monotonic()))"], check=True)
print(*(int(ns // 10**9) for ns in linux.clocks().values()))
threading.Thread(target=lambda: None).start()  # refused where it would have other clocks
"""


def test_clocks_go_on_from_elsewhere(need: Callable[[str, bool, str], None]) -> None:
    """Also a second time, and of what is started then."""
    able = subprocess.run(["unshare", "--time", "true"], capture_output=True).returncode == 0
    need("nodes", able, "no time namespaces")
    done = subprocess.run([sys.executable, "-uc", CLOCKS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [int(word) for word in done.stdout.split()]
    for clock, wanted in zip(found, (5_000_000, 6_000_000, 7_000_000, 7_000_000, 1), strict=True):
        assert 0 <= clock - wanted < 60
