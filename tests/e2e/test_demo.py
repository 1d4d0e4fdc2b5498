"""`pyft demo`, as somebody who has just installed pyft runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from job import PYFT


def test_the_demo_of_the_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYFT, "demo", "--steps", "18"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "went on with GPU 1: recovered, replay exact" in done.stdout
    assert "the same bits in both runs: 18 losses" in done.stdout
    assert "Close-up of fault 1: gpu-lost" in (tmp_path / "pyft-demo.html").read_text()
