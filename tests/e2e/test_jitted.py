"""Operators that PyTorch compiles with NVRTC in the script's process, under the preloaded library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT

PROGRAM = Path(__file__).with_name("programs") / "jitted.py"


@pytest.mark.parametrize("how", [[], ["--direct"]], ids=["proxied", "direct"])
def test_jitted_operators_agree_with_the_cpu(how: list[str]) -> None:
    done = subprocess.run(
        [PYFT, "run", "--gpus", "soft:1", *how, "--", sys.executable, str(PROGRAM)],
        # without PyTorch's cache of compiled kernels every run compiles
        env=os.environ | {"USE_PYTORCH_KERNEL_CACHE": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "wrong []\n"
