"""pyft/_native/linux.py: where programs may lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyft._native import linux
from pyft.cli import doctor

ADDR_NO_RANDOMIZE = 0x0040000
PROGRAM = """
import os, sys
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
