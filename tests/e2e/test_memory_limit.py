"""A container whose limit of memory is too small for snapshots: the job ends well without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import PYFT

GROUPS = Path("/sys/fs/cgroup/memory")  # the kernel's first version
PROGRAM = str(Path(__file__).with_name("programs") / "large_state.py")
STATE_MB, STEPS = 256, 4
MB = 1 << 20
_ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


@pytest.fixture
def group(need: Callable[[str, bool, str], None]) -> Iterator[Path]:
    """Have a group of processes that can be given a limit of memory."""
    folder = GROUPS / f"pyft-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        need("groups", False, f"no group of processes can be made: {error}")
    yield folder
    folder.rmdir()


def run(group: Path, folder: Path, most: int, *options: str) -> tuple[str, str, dict]:
    """Return output, messages and store of a run of which all processes together have so much."""
    folder.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(most))
    (group / "memory.max_usage_in_bytes").write_text("0")
    report = folder / "report.json"
    line = [PYFT, "run", "--gpus", "soft:1", *options, "--report", str(report)]
    line += ["--", sys.executable, PROGRAM, str(STATE_MB), str(STEPS)]
    done = subprocess.run(
        ["sh", "-c", _ENTER, str(group), *line],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYFT_CUT_EVERY": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, json.loads(report.read_text())["channels"][0].get("store", {})


def needed(group: Path) -> int:
    """Return the most bytes that were in use at once, less what the kernel keeps of files."""
    peak = int((group / "memory.max_usage_in_bytes").read_text())
    lines = (group / "memory.stat").read_text().splitlines()
    figures = {name: int(value) for name, value in map(str.split, lines)}
    return peak - figures["total_active_file"] - figures["total_inactive_file"]


def test_snapshots_that_do_not_fit_are_left_out(group: Path, tmp_path: Path) -> None:
    wanted, _, _ = run(group, tmp_path / "without", -1, "--protect", "none")
    most = needed(group) + STATE_MB * MB * 3 // 4
    output, said, store = run(group, tmp_path / "limited", most, "--protect", "snapshot")
    assert output == wanted
    assert store["cancelled"] >= 1
    assert "too little memory left" in said
    output, said, store = run(group, tmp_path / "enough", -1, "--protect", "snapshot")
    assert output == wanted
    assert store["cancelled"] == 0 < store["snapshots"]
    assert "too little memory left" not in said
