"""Processes that stand still for a moment, so that what they have in common memory is of one instant."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyft.agent.process import process_tree

STOP_S = 1.0  # for servers
TREE_STOP_S = 5.0  # for all processes of the command
_LOOK_S = 0.001


@contextlib.contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes; raise OSError if one does not stand still in time. They go on afterwards."""
    pids = list(pids)
    try:
        process_tree.send(pids, signal.SIGSTOP)
        _wait_for(pids, "server", STOP_S, time.monotonic())
        yield
    finally:
        process_tree.send(pids, signal.SIGCONT)


def stop_all(living: Callable[[], list[int]]) -> list[int]:
    """Stop the processes that `living` lists, and what they start until they stand; return all.

    They stay stopped. Raise OSError if one does not stand still in time.
    """
    begun = time.monotonic()
    told: set[int] = set()
    while True:
        pids = living()
        fresh = [pid for pid in pids if pid not in told]
        if not fresh:
            return pids
        process_tree.send(fresh, signal.SIGSTOP)
        told.update(fresh)
        _wait_for(fresh, "process", TREE_STOP_S, begun)


def kill_all(living: Callable[[], list[int]]) -> None:
    """Kill the processes that `living` lists, after all of them stand still.

    Else some would act on the end of others until they are killed themselves: torchrun gets a signal
    when its parent dies, and a script one from torchrun.
    """
    with contextlib.suppress(OSError):  # what does not stop is killed all the same
        stop_all(living)
    process_tree.send(living(), signal.SIGKILL)


def _wait_for(pids: list[int], what: str, most_s: float, begun: float) -> None:
    """Wait until processes stand still; raise OSError."""
    while moving := [pid for pid in pids if not _stands_still(pid)]:
        if time.monotonic() > begun + most_s:
            why = f"the {what} [pid {moving[0]}] does not stop within [{most_s:g}] s"
            raise TimeoutError(None, why)
        time.sleep(_LOOK_S)


def _stands_still(pid: int) -> bool:
    """Say whether all threads of a process are stopped, or it has ended."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state in "TtZX" for state in states)
