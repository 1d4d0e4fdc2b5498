"""Ends a dump that is under way when all go back, or the job ends: by itself, if it can.

Only CRIU lets go of what it holds, at its end. A tree of which all processes are killed is dumped no
further, so that end is near. One that does not come to it is killed. What it did to connections may stay
in either case: it leaves at once when a process dies, or is stopped, in which it works.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection

from pyft.agent.process import messages, process_tree
from pyft.agent.process.awake import AwakeClock
from pyft.agent.process.stopped import kill_all
from pyft.images import packet_filter, repair_mode, tree

KILLED_S = 5.0  # for what is killed to be gone
LOOK_S = 0.01


def end_dump(pid: int, root: int, most_s: float, *, with_tree: bool) -> None:
    """Wait so long for the end of CRIU, which dumps the tree below `root`, then kill it.

    `with_tree`: kill that at once. Without CRIU it would go on in the middle of something.
    """
    cut = tree.connections(tree.members(root))
    if with_tree:
        kill_all(lambda: tree.members(root))
    if not _ends(pid, most_s):
        process_tree.send([pid], signal.SIGKILL)
        if not _ends(pid, KILLED_S):  # in a system call that nothing ends; it may still add rules
            return
    let_go(cut, tree.members(root))


def let_go(connections: Collection[tuple[str, str]], pids: Collection[int] = ()) -> None:
    """Have none of these cut or halted any more: CRIU has ended in the middle of a dump.

    They are as in /proc/net/tcp. `pids`: of those that go on with them.
    """
    if not connections:
        return
    try:
        packet_filter.remove_rules(tree.filter_keys(connections))
    except OSError as error:
        messages.say(f"--movable: CRIU's rules stay in the network's filter: {error.strerror}")
    try:
        repair_mode.end(pids)
    except OSError as error:
        messages.say(f"--movable: CRIU's halt of TCP connections stays: {error.strerror}")


def _ends(pid: int, seconds: float) -> bool:
    """Say whether a process ends in this time, and is waited for by its parent."""
    clock = AwakeClock()
    deadline = clock.now() + seconds
    while os.path.exists(f"/proc/{pid}"):
        if clock.now() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
