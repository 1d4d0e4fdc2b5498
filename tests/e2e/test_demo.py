"""`pyft demo`, as somebody who has just installed pyft runs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from job import PYFT


def test_the_demo_of_the_package(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        [PYFT, "demo", "--steps", "18"], cwd=here, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "went on with GPU 1: recovered, replay exact" in done.stdout
    assert "the same bits in both runs: 18 losses" in done.stdout
    named = re.search(r"to be opened in a browser: (.+)$", done.stdout, re.MULTILINE)
    assert named is not None
    assert "Close-up of fault 1: gpu-lost" in Path(named[1]).read_text()
    assert list(here.iterdir()) == []
