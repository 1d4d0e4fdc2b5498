"""faults.toml is what the code has, and PYFT_FAULT is checked against it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyft.errors import ConfigError
from pyft.recovery import fault_table, inject, requests

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import gen_faults  # noqa: E402

COMMUNICATOR = re.compile(r'fault_point\("(\w+)"')


def test_each_point_is_in_the_code_once() -> None:
    """That the code has no others, the compiler says (pyft/fault_points.h)."""
    found = []
    for path in sorted((ROOT / "proxy").rglob("*.cc")):
        text = path.read_text()
        found += re.findall(r'PYFT_FAULT\("([\w.]+)"\)', text)
        found += [f"communicator.{stage}.R" for stage in COMMUNICATOR.findall(text)]
    for path in sorted((ROOT / "pyft").rglob("*.py")):
        found += re.findall(r'fault\.point\("([\w.]+)"\)', path.read_text())
    assert sorted(found) == sorted(fault_table.POINTS)


@pytest.mark.parametrize(
    "text", ["", "cut.copying", "cut.copying:40", "communicator.made.12:1", "agent.says:2"]
)
def test_points_that_exist(text: str) -> None:
    inject.check_point(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "cut.copyin:3",
            "there is no fault point [cut.copyin] (docs/fault-points.md lists them); "
            "did you mean [cut.copying]?",
        ),
        ("communicator.made:1", "there is no fault point [communicator.made]"),
        ("cut.copying:0", "[0] is no number from 1"),
        ("cut.copying:", "[] is no number from 1"),
        ("cut.copying:x", "[x] is no number from 1"),
    ],
)
def test_what_can_never_happen_is_refused_before_anything_starts(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        inject.check_point(text)
    assert f"PYFT_FAULT is [{text}]: {why}" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('process = "agent"', 'process = "nobody"', "[agent.says] has the process [nobody]"),
        ('name = "ecc"', 'name = "hang"', "two entries have the name ['hang']"),
        ("passes = 40", "passed = 40", "[cut.copying]: "),
    ],
)
def test_mistakes_of_the_table_are_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    table = tmp_path / "faults.toml"
    table.write_text((ROOT / "faults.toml").read_text().replace(old, new))
    with pytest.raises(gen_faults.TableError) as caught:
        gen_faults.load(table)
    assert problem in str(caught.value)


def test_what_the_agent_does_itself_counts_entries() -> None:
    """The soft GPU counts launches and copies for the other kinds; it does not see these."""
    kinds = gen_faults.load(ROOT / "faults.toml").kinds
    entries = {one.name for one in kinds if one.counts.startswith("entries")}
    assert entries == set(requests.BY_AGENT)


@pytest.mark.parametrize(("text", "passes"), [("agent.says", 1), ("agent.says:3", 3)])
def test_a_point_of_the_agent_is_counted_as_others_are(text: str, passes: int) -> None:
    loop = "for i in range(5): print(i, flush=True); fault.point('agent.says')"
    done = subprocess.run(
        [sys.executable, "-c", f"from pyft.agent.process import fault\n{loop}"],
        env=os.environ | {"PYFT_FAULT": text},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == passes
