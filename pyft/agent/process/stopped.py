"""Processes that stand still for a moment, so that what they have in common memory is of one instant."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyft.agent.process import process_tree

STOP_S = 1.0
_LOOK_S = 0.001


@contextlib.contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes; raise OSError if one does not stand still in time. They go on afterwards."""
    pids = list(pids)
    try:
        process_tree.send(pids, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_S
        while moving := [pid for pid in pids if not _stands_still(pid)]:
            if time.monotonic() > deadline:
                why = f"the server [pid {moving[0]}] does not stop within [{STOP_S:g}] s"
                raise TimeoutError(None, why)
            time.sleep(_LOOK_S)
        yield
    finally:
        process_tree.send(pids, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """Say whether all threads of a process are stopped, or it has ended."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state in "TtZX" for state in states)
