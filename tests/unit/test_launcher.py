"""The launcher: what it keeps while a job runs."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

from pyft.agent.process import messages
from pyft.agent.supervisor.launcher import Launcher

WHERE = {
    f"{name}_{what}": 0 for name in ("ring", "object_log", "arena") for what in ("offset", "bytes")
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_agents_that_take_over_leave_no_descriptor_behind() -> None:
    """Each one tells the launcher of all clients, with the descriptor of each one's log."""
    launcher = Launcher(SimpleNamespace(head=""))  # type: ignore[arg-type]
    agent: socket.socket = launcher._agent_end
    log = os.memfd_create("log")
    before = descriptors()
    for _ in range(5):
        for name in ("rank0", "rank1"):
            messages.send(agent, "channel", (log,), name=name, areas=WHERE)
    messages.send(agent, "saved", name="rank0")
    messages.send(agent, "ended", exit_code=7)
    assert launcher._listen() == 7
    assert descriptors() == before + 1
    os.close(log)
