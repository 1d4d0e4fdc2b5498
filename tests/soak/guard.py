"""Ends and removes what a soak has begun when that is killed itself: `guard.py MARK FOLDER GROUP`.

It waits in a session of its own until nobody holds the other end of its standard input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from job import having  # noqa: E402

ROUNDS, PAUSE_S = 100, 0.1
GROUP_ROUNDS = 50


def clear(mark: str, folder: Path, group: Path) -> None:
    """Kill whoever has the mark in its environment until nobody has, and remove what they had."""
    for _ in range(ROUNDS):
        left = [pid for pid in having(mark) if pid != os.getpid()]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
    shutil.rmtree(folder, ignore_errors=True)
    for _ in range(GROUP_ROUNDS):
        if not group.exists():
            return
        with contextlib.suppress(OSError):  # its last process is going
            group.rmdir()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clear(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
