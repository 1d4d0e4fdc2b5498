"""The processes that the supervisor starts for an agent: the command, servers, CRIU."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyft._native import linux
from pyft.agent.job.options import JobOptions
from pyft.agent.process import descriptors, process_tree
from pyft.agent.process.criu_work import CriuWork, Work

COMMAND = "command"
PRE_DUMP, DUMP, RESTORE = "pre-dump", "dump", "restore"  # CRIU, which lives on if the agent dies
CRIU = (PRE_DUMP, DUMP, RESTORE)


@dataclass
class Child:
    """A process that an agent has asked for. Its status is kept until an agent has used it."""

    name: str
    pid: int
    socket: socket.socket | None  # the agent's end
    status: int | None = None

    def close(self) -> None:
        """Give up the descriptor."""
        if self.socket:
            self.socket.close()


def start_command(
    arguments: list[str],
    environment: dict[str, str],
    group: int,
    inherited: Mapping[int, Any],
    limits: descriptors.Limits,
    options: JobOptions,
) -> Child:
    """Start the user's command in a process group.

    With the signal handlers and the limits of descriptors that pyft was given.
    """
    supervisor, movable = os.getpid(), options.movable
    own_session = movable and process_tree.is_session_outside()
    if options.head or options.flush:  # its images may be restored on another host
        linux.spread_pids()

    def before_exec() -> None:
        if movable:
            linux.refuse_io_uring()
        process_tree.die_with_parent(signal.SIGTERM, supervisor)
        descriptors.lower_limit(limits)
        # In the launcher's process group the command owns the terminal, as without pyft.
        with contextlib.suppress(OSError):
            os.setsid() if own_session else os.setpgid(0, group)
        for number, handler in inherited.items():
            ignored = handler is signal.SIG_IGN
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)

    process = subprocess.Popen(
        arguments,
        env=environment,
        preexec_fn=before_exec,
        close_fds=False,  # descriptors the user passes down stay; ours are close-on-exec
    )
    process.returncode = 0
    return Child(COMMAND, process.pid, None)


def start_server(
    name: str, arguments: list[str], environment: dict[str, str], output: Mapping[str, int]
) -> Child:
    """Start a server with a socket, of which the agent gets our end. `output`: stdout and stderr."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = theirs.fileno()
    # A driver puts modules where there is room in the process (C6).
    fixed = environment.get("PYFT_BACKEND_LIBRARY") == "cuda"
    # The server asks for its parent-death signal itself, and looks whether it came too late.
    # Without a function before exec() the supervisor's memory is shared until then, not copied.
    own = {"PYFT_SERVER_FD": str(fd), "PYFT_SUPERVISOR_PID": str(os.getpid())}
    try:
        process = subprocess.Popen(
            arguments,
            env={**environment, **own},
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
            preexec_fn=linux.same_addresses if fixed else None,
            **output,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    process.returncode = 0
    return Child(name, process.pid, ours)


def start_criu(
    name: str, what: dict[str, Any], kept: Mapping[str, list[int]], work: CriuWork
) -> Child:
    """Start CRIU. What it restores becomes a child of this process, and the command.

    What is pre-dumped runs meanwhile. So a lease may stop it, and CRIU with it: see CriuWork.
    """

    def begins() -> None:
        if name != PRE_DUMP:
            work.begins(Work(os.getpid(), what["root"], name == RESTORE))

    inherited = [(kept[note][at], key) for note, at, key in what["inherit"]]
    inherited += [(fd, key) for fd, key in what["standard"]]
    words = [word for fd, key in inherited for word in ("--inherit-fd", f"fd[{fd}]:{key}")]
    process = subprocess.Popen(
        [*what["arguments"], *words],
        env=what["environment"],
        stdin=None if name == RESTORE else subprocess.DEVNULL,
        pass_fds=[fd for fd, _ in inherited],
        preexec_fn=begins,
    )
    process.returncode = 0
    return Child(name, process.pid, None)
