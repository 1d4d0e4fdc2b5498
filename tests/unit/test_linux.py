"""pyft/_native/linux.py: where programs may lie, and what the kernel says of itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from pyft._native import linux
from pyft.cli import doctor
from pyft.wire import layout


def test_the_doctor_reserves_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_address_window().status == "ok"
    taken = layout.PINNED_WINDOW_BASE
    monkeypatch.setattr(linux, "can_reserve", lambda base, size: "taken" * (base == taken))
    found = doctor.check_address_window()
    assert found.status == "fail"
    assert f"512 GiB at {taken:#x}: taken" in found.text


def test_a_boot_has_one_name() -> None:
    name = linux.boot_id()
    assert str(UUID(name)) == name == linux.boot_id()


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
