"""The launcher: what it keeps while a job runs."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.channel.untrusted import Areas
from pyft.agent.job import job_folder
from pyft.agent.process import messages, process_tree
from pyft.agent.supervisor.launcher import Launcher
from pyft.errors import CommandError

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


@pytest.mark.parametrize("outside", [False, True])
def test_the_agent_is_told_of_a_signal_that_the_command_has_from_its_terminal(
    monkeypatch: pytest.MonkeyPatch, outside: bool
) -> None:
    """It is to know that the user wants the end: what ends then was not killed by a fault.

    Where the session's leader is in another PID namespace, the command has a session of its own.
    """
    monkeypatch.setattr(process_tree, "is_session_outside", lambda: outside)
    launcher = Launcher(SimpleNamespace(head="", movable=True))  # type: ignore[arg-type]
    codes = [0x80, 0]  # of the kernel, of a process

    def come(_: object) -> Any:
        if not codes:
            threading.Event().wait()  # a thread that ends with this process
        return SimpleNamespace(si_signo=int(signal.SIGINT), si_code=codes.pop(0))

    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(signal, "sigwaitinfo", come)
    launcher._forward_signals()
    for had in (not outside, False):
        got = messages.receive(launcher._agent_end)
        assert got == ({"kind": "signal", "number": int(signal.SIGINT), "had": had}, [])


def test_what_it_saves_has_the_rank_that_was_found_out_later(tmp_path: Path) -> None:
    """Without supervisor and agent: the name of a log is that of the attach, with rank 0."""
    launcher = Launcher(SimpleNamespace(head="", log_dir=tmp_path))  # type: ignore[arg-type]
    named = {"name": "rank3-pid7-dev1", "memory": "rank0-pid7-dev1", "rank": 3, "pid": 7}
    here = {"device": 1, "server_pid": 8, "log_fd": 9, "control_fd": 10, "store_fd": -1}
    job_folder.write_meta(tmp_path, {"state": "running", "channels": [], "live": [named | here]})
    log = os.memfd_create("log")
    os.ftruncate(log, 8192)
    launcher._logs["rank0-pid7-dev1"] = (log, Areas(**WHERE))
    launcher._save_logs()
    meta = job_folder.load_meta(tmp_path)
    (entry,) = meta["channels"]
    assert (entry["rank"], entry["file"]) == (3, "rank3-pid7-dev1.ring")
    assert (tmp_path / entry["file"]).stat().st_size == 8192
    assert meta["live"] == []


def test_the_head_hears_that_a_place_could_not_start() -> None:
    """Else it waits for the lease, and takes the host for lost."""
    launcher = Launcher(SimpleNamespace(head="h:1"))  # type: ignore[arg-type]
    launcher._supervisor_pid = os.posix_spawnp("true", ["true"], os.environ)
    said: list[Any] = []
    lease: Any = SimpleNamespace(begin=lambda: said.append("begin"), end=said.append)
    why = "port [9] cannot be used: Address already in use"
    messages.send(launcher._agent_end, "failed", text=why, exit_code=2)
    with pytest.raises(CommandError, match="port .9. cannot be used") as raised:
        launcher._run(lease)
    assert raised.value.exit_code == 2
    assert said == ["begin", 2]
