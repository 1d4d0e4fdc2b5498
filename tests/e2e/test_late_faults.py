"""A fault that comes when its rank has nothing more to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from job import PYFT

from pyft.errors import NOT_INJECTED

LATE = """
import time, torch, pyft
print(torch.ones(3, device="cuda").sum().item())
pyft.inject("gpu-lost", rank=0)
time.sleep(1)  # no call any more
"""


def test_a_gpu_that_is_lost_after_the_last_call_is_no_success(tmp_path: Path) -> None:
    command = [PYFT, "run", "--gpus", "soft:1", "--spares", "1", "--", sys.executable, "-c", LATE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.stdout == "3.0\n"
    assert done.returncode == NOT_INJECTED
    assert "after the last work there: no call met it" in done.stderr
