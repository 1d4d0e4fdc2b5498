"""Run a script of examples/ in one of several ways, and read what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from job import PYFT, ROOT

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))


class Run:
    """The losses, as printed and as numbers, and the hash of the parameters."""

    def __init__(self, text: str) -> None:
        self.losses = re.findall(r"step=\d+ loss=(\S+)", text)
        self.values = [float(loss) for loss in self.losses]
        self.parameters = re.findall(r"rank=0 params_sha256=(\S+)", text)


def execute(script: str, how: str, *arguments: str) -> Run:
    """`how` is made of the words: cpu, proxied, direct, torchrun."""
    words = how.split()
    script = str(ROOT / "examples" / script)
    command = [sys.executable, script, *arguments]
    if "torchrun" in words:
        command = [TORCHRUN, "--nproc-per-node", "1", script, *arguments]
    environment = dict(os.environ)
    if "cpu" in words:
        environment["OMP_NUM_THREADS"] = "1"  # more would wait for each other on busy cores
    else:
        direct = ["--direct"] if "direct" in words else []
        command = [PYFT, "run", "--gpus", "soft:1", *direct, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return Run(done.stdout)
