"""`pyft report` of a job that has lost a GPU: what it says, and its page in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import recovery_run
from browser import CHROMIUM, measure, picture
from job import PYFT, ROOT

STEPS = 6
SCRIPT = """({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  lanes: [...document.querySelectorAll('.lane')].map(one => one.getBoundingClientRect().width),
  steps: document.querySelectorAll('svg .lane[data-rank="1"] .step').length,
  phases: [...document.querySelectorAll('.phase')].map(one => getComputedStyle(one).fill),
  loaded: performance.getEntriesByType('resource').length,
})"""


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of two ranks, one of which has lost its GPU."""
    folder = tmp_path_factory.mktemp("report")
    options = ("--gpus", "soft:2", "--spares", "1", "--inject", "gpu-lost,rank=1,step=3")
    argv = recovery_run.command(recovery_run.TRAIN, 2, ("--steps", str(STEPS)))
    _, report = recovery_run.run(folder, options, argv)
    assert report["recovered"] == 1
    return folder / "log"


def pyft(*arguments: str) -> str:
    done = subprocess.run([PYFT, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_step_is_known_exactly(lost: Path, tmp_path: Path) -> None:
    said = pyft("report", str(lost), "--perfetto", str(tmp_path / "trace.json"))
    assert "1 of 1 recovered" in said
    for rank in range(2):
        assert f"rank {rank}: {STEPS} steps" in said
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["tid"] == 1 and e["pid"] == 1]
    (fault,) = [e for e in events if e["name"].startswith("fault 1")]
    assert len(steps) == STEPS - 1
    # Steps stand still as long as the repair, by two clocks that agree. It is one step, or two: the
    # program is ahead of its server, and may be in the next one soon after the fault.
    end = fault["ts"] + fault["dur"]
    beside = [e for e in steps if e["ts"] < end and e["ts"] + e["dur"] > fault["ts"]]
    assert sum(e["dur"] for e in beside) > 0.9 * fault["dur"]
    snapshots = [e for e in events if e["ph"] == "i" and e["pid"] == 1]
    assert snapshots


def test_the_page_in_a_browser(
    lost: Path, tmp_path: Path, need: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    need("chromium", CHROMIUM is not None, "the Debian package chromium is not installed")
    pyft("report", str(lost))
    page = lost / "report.html"
    found = measure(tmp_path, page, SCRIPT)
    assert found["overflow"] == 0
    assert len(found["lanes"]) == 4  # of two ranks: the whole job, and one close-up
    assert min(found["lanes"]) > 500
    assert found["steps"] >= STEPS
    assert len(set(found["phases"])) >= 4  # each phase has a colour of its own
    assert found["loaded"] == 0
    assert measure(tmp_path, page, SCRIPT, width=400)["overflow"] == 0  # on a telephone
    if folder := request.config.getoption("--pictures"):
        text = page.read_text()
        for here in (Path(sys.executable).parent, ROOT):  # a picture is of no machine
            text = text.replace(f"{here}/", "")
        page.write_text(text)
        picture(tmp_path, page, Path(folder) / "report.png", 1000, 700)
