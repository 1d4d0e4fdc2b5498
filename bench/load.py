"""Other programs that want all cores all the time, for figures of a busy machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

SPIN = "while True: pass"


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Have as many programs spin as there are cores, until the block ends."""
    line = [sys.executable, "-I", "-S", "-c", SPIN]
    beside = [subprocess.Popen(line) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for one in beside:
            one.kill()
            one.wait()
