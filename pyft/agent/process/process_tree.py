"""Linux process supervision: subreaper, parent-death signal, the tree below a process.

A *child subreaper* adopts orphans of its descendants, so nothing a job starts can leave the tree
below launcher and supervisor, not even by double fork or setsid.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

from pyft._native import linux


def become_subreaper() -> None:
    """Adopt orphans below this process."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Name this process in `ps` and `top` (15 characters are kept)."""
    linux.prctl(linux.PR_SET_NAME, name.encode())


def is_session_outside() -> bool:
    """Say whether this session's leader is outside of the PID namespace, as after `unshare --pid`.

    CRIU dumps no process of such a session: it cannot name the leader.
    """
    return os.getsid(0) == 0


def die_with_parent(signal_number: int, parent: int) -> None:
    """For use between fork and exec: get `signal_number` when process `parent` dies."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:  # it died before the call above
        os.kill(os.getpid(), signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Return pid -> parent pid of every process that is not a zombie."""
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name in parentheses may contain anything, ')' included.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # ended meanwhile
        if state not in (b"Z", b"X"):
            parents[int(entry)] = int(parent)
    return parents


def descendants(root: int, spared: Collection[int] = ()) -> list[int]:
    """Return the living processes below `root`, without `spared` and what is below those."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in spared:
                found.append(child)
                todo.append(child)
    return found


def send(pids: Collection[int], signal_number: int) -> None:
    """Signal each process; one that is gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def end_descendants(
    root: int,
    spared: Callable[[], Collection[int]],
    reap: Callable[[], None],
    quiet_s: float,
    grace_s: float,
    give_up_s: float = 1.5,
) -> tuple[list[int], bool]:
    """End everything below process `root`: wait `quiet_s`, SIGTERM, wait `grace_s`, SIGKILL.

    Returns the processes that had to be signalled, and whether all are gone now (a process in an
    uninterruptible system call may outlive even SIGKILL).
    """
    signalled: set[int] = set()

    def wait(seconds: float, signal_number: int | None) -> bool:
        deadline = time.monotonic() + seconds
        told: set[int] = set()
        while True:
            reap()
            left = descendants(root, spared())
            if not left:
                return True
            if signal_number is not None:
                fresh = [pid for pid in left if pid not in told]
                send(fresh if signal_number != signal.SIGKILL else left, signal_number)
                # A stopped process acts on SIGTERM only after it has been continued.
                send(fresh, signal.SIGCONT)
                told.update(fresh)
                signalled.update(fresh)
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    gone = wait(quiet_s, None) or wait(grace_s, signal.SIGTERM) or wait(give_up_s, signal.SIGKILL)
    return sorted(signalled), gone
