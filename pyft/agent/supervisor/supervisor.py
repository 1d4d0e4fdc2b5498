"""The supervisor: holds what has to outlive an agent, and starts the next one when it dies (A21).

    launcher --- supervisor --+-- agent         decides everything
                          +-- the command   children of the supervisor, which alone
                          +-- servers       can tell how they ended

Besides processes it holds descriptors: the channels' memory, and the agent's ends of all sockets.
So no process sees an agent die; what is said to it meanwhile waits in the sockets for the next one.
The agent gives each object a name, and a note for its successor, which the supervisor does not
read. `link.py` is the agent's side.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyft.agent.job.options import JobOptions
from pyft.agent.process import descriptors, fault, messages, process_tree
from pyft.agent.process.criu_work import CriuWork
from pyft.agent.process.notes import read_note
from pyft.agent.supervisor.callers import Callers, listen
from pyft.agent.supervisor.children import (
    COMMAND,
    CRIU,
    RESTORE,
    Child,
    start_command,
    start_criu,
    start_server,
)
from pyft.agent.supervisor.link import orders_name
from pyft.hosts.place import relayed

ATTEMPTS = 3  # agents in a row that end without having worked
GRACE_S = 1.5
_AGENT_SCRIPT = Path(__file__).resolve().parents[1] / "__main__.py"
_OWN_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU, signal.SIGTERM)


class Supervisor:
    """One per job. Single-threaded, since parent-death signals come from the thread that forked."""

    def __init__(
        self,
        options: JobOptions,
        launcher: socket.socket,
        group: int,
        clients_name: str,
        kept: dict[str, list[int]] | None = None,
        own_output: Mapping[str, int] | None = None,
        criu: CriuWork | None = None,
    ) -> None:
        """`own_output`: stdout and stderr of agent and servers, if the command has others."""
        self._criu = criu or CriuWork()
        self._options, self._own_output = options, dict(own_output or {})
        self._launcher = launcher
        self._group = group
        self._clients_name = clients_name
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}
        self._kept: dict[str, list[int]] = dict(kept or {})  # the first one is the note
        self._callers = Callers(clients_name, self._tell_of)
        self._orders: socket.socket | None = None
        self._relay: socket.socket | None = None
        self._agent_pid = 0
        self._agent: socket.socket | None = None
        self._restarts = 0
        self._failed = 0  # agents in a row that have not worked
        self._took_over = False
        self._worked = False
        self._over = False  # the agent says that the job has ended
        self._inherited = {number: signal.getsignal(number) for number in _OWN_SIGNALS}
        self._limits = descriptors.raise_limit()

    def run(self) -> int:
        """Keep until the job has ended."""
        process_tree.become_subreaper()
        self._watch_signals()
        if not self._options.direct:
            calls, accept = self._callers.listen()
            self._selector.register(calls, selectors.EVENT_READ, accept)
            self._orders = listen(orders_name(self._clients_name))
        if self._options.head:
            self._relay = relayed.opened(self._clients_name)
        self._start_agent()
        while self._agent_pid:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # an earlier one may have ended it
                    key.data()
            self._reap()
        self._callers.sum_up()
        return 0 if self._over else 1

    # ---- the agent ----------------------------------------------------------------------------

    def _start_agent(self) -> None:
        self._agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd, supervisor = theirs.fileno(), os.getpid()
        os.set_inheritable(fd, True)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", str(_AGENT_SCRIPT), "--supervisor-fd", str(fd)),
                *self._options.to_arguments(),
            ],
            env=os.environ if not self._restarts else _without_fault(),
            preexec_fn=lambda: process_tree.die_with_parent(signal.SIGKILL, supervisor),
            pass_fds=(fd,),
            **self._own_output,
        )
        process.returncode = 0  # reaped by this class
        theirs.close()
        self._agent_pid = process.pid
        self._took_over = self._worked = False
        self._selector.register(self._agent, selectors.EVENT_READ, self._from_agent)
        self._hand_over()

    def _hand_over(self) -> None:
        fds = [one for one in (self._launcher, self._orders, self._relay) if one]
        self._tell("hello", fds, clients_name=self._clients_name, restarts=self._restarts)
        for name, kept in self._kept.items():
            self._tell("kept", kept, name=name)
        for name, connection in self._callers.connections.items():
            self._tell_of(name, connection)
        for child in self._children.values():
            ends = [child.socket] if child.socket else []
            self._tell("child", ends, name=child.name, pid=child.pid, status=child.status)
        self._tell("all")

    def _tell(self, kind: str, fds: list[Any] | None = None, **values: Any) -> None:
        """Say something to the agent; if it is dead, the next one hears it."""
        if self._agent:
            numbers = tuple(fd if isinstance(fd, int) else fd.fileno() for fd in fds or [])
            messages.send(self._agent, kind, numbers, **values)

    def _agent_died(self, status: int) -> None:
        while self._agent:  # what it said before it died
            self._from_agent()
        self._agent_pid = 0
        if self._over:
            return
        # A kill from outside says nothing about an agent that has found its way; a crash does.
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        fine = self._worked or (killed and self._took_over)
        self._failed = 0 if fine else self._failed + 1
        if self._failed < ATTEMPTS:
            self._restarts += 1
            self._start_agent()
            return
        how = messages.status_text(status)
        text = f"[{ATTEMPTS}] agents in a row have ended before they worked, the last one {how}"
        messages.send(self._launcher, "lost", text=text)
        process_tree.end_descendants(
            os.getpid(), spared=tuple, reap=self._reap, quiet_s=0.0, grace_s=GRACE_S
        )

    def _from_agent(self) -> None:
        assert self._agent is not None
        got = messages.receive(self._agent, messages.MOST_DESCRIPTORS)  # a store of each rank
        if got is None:  # its death is told by wait()
            self._selector.unregister(self._agent)
            self._agent.close()
            self._agent = None
            return
        message, fds = got
        kind = message["kind"]
        if kind == "keep":
            self._drop(message["name"])
            self._kept[message["name"]] = fds
            self._drop(message["answered"])
        elif kind == "drop":
            self._drop(message["name"])
        elif kind == "start":
            self._start(message["name"], read_note(fds[0]))
        elif kind == "kill":
            self._kill(message["pid"], message["number"])
        elif kind == "forget":
            child = self._children.get(message["pid"])
            if child and child.status is not None:
                self._children.pop(child.pid).close()
        elif kind == "took over":
            self._took_over = True
        elif kind == "working":
            self._worked = True
        elif kind == "over":
            self._over = True

    def _drop(self, name: str) -> None:
        for fd in self._kept.pop(name, []):
            os.close(fd)
        self._callers.drop(name)

    # ---- processes ----------------------------------------------------------------------------

    def _start(self, name: str, what: dict[str, Any]) -> None:
        """Start a process. An agent that died before it got the answer has not asked."""
        if not _listens(self._agent):
            return
        try:
            child = self._child(name, what)
        except (OSError, subprocess.SubprocessError) as error:  # the latter: before exec()
            self._tell("started", error=getattr(error, "errno", 0) or errno.EIO)
            return
        self._children[child.pid] = child
        self._tell("started", [child.socket] if child.socket else [], pid=child.pid)

    def _child(self, name: str, what: dict[str, Any]) -> Child:
        if name not in CRIU:
            arguments, environment = what["arguments"], what["environment"]
            if name != COMMAND:
                return start_server(name, arguments, environment, self._own_output)
            users = (self._group, self._inherited, self._limits)
            return start_command(arguments, environment, *users, self._options)
        child = start_criu(name, what, self._kept, self._criu)
        if name == RESTORE:  # what is restored is a child of this process, and the command
            root = what["root"]
            self._children[root] = Child(COMMAND, root, None)
        return child

    def _kill(self, pid: int, number: int) -> None:
        """Signal a child; only its parent knows for certain that the number still is its own."""
        child = self._children.get(pid)
        if child and child.status is None:
            process_tree.send([pid], number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._criu.ended(pid)
            if pid == self._agent_pid:
                self._agent_died(status)
            elif child := self._children.get(pid):
                child.status = status
                self._tell("ended", pid=pid, status=status)

    # ---- signals and clients ------------------------------------------------------------------

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        self._selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 4096))

    def _on_terminate(self, *_: Any) -> None:
        """A signal to the supervisor means the job, and the agent knows how to end that."""
        if self._agent_pid:
            process_tree.send([self._agent_pid], signal.SIGTERM)

    def _tell_of(self, name: str, connection: socket.socket) -> None:
        self._tell("client", [connection], name=name)


def _own_output(standard: Mapping[int, int]) -> dict[str, int]:
    """Put pipes in place of stdout and stderr, for the command; return what pyft itself has."""
    own = {}
    for fd, name in ((1, "stdout"), (2, "stderr")):
        if fd in standard:
            own[name] = os.dup(fd)
            os.dup2(standard[fd], fd)
    for end in set(standard.values()):
        os.close(end)
    return own


def _without_fault() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != fault.VARIABLE}


def _listens(agent: socket.socket | None) -> bool:
    """Say whether the other end is still open."""
    if agent is None:
        return False
    poller = select.poll()
    poller.register(agent, select.POLLRDHUP)
    return not poller.poll(0)


def fork(
    options: JobOptions,
    launcher: socket.socket,
    keep_out: socket.socket,
    name: str,
    kept: dict[str, list[int]] | None = None,
    standard: Mapping[int, int] | None = None,
    criu: CriuWork | None = None,
) -> int:
    """Start the supervisor as a copy of this process, which has no thread yet; return its pid.

    `launcher` is the supervisor's end of the launcher's socket, `keep_out` the launcher's own. `kept`:
    notes, each with its descriptors, of a job that has begun elsewhere. `standard`: what the command
    has instead of the launcher's stdout and stderr. `criu`: what the launcher reads.
    """
    group = os.getpgrp()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        keep_out.close()
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # so that Ctrl-C reaches the command but nothing of ours
        process_tree.set_name("pyft-supervisor")
        if os.getppid() == parent:
            own = _own_output(standard or {})
            code = Supervisor(options, launcher, group, name, kept, own, criu).run()
    except BaseException:  # nothing of the launcher's may run here
        traceback.print_exc()
    finally:
        messages.flush_and_exit(code)
