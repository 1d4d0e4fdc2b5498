"""The launcher: the process the user's shell waits for.

It starts the supervisor, which starts the agent, forwards signals, and passes on the command's exit code.
When the supervisor dies, its children become the launcher's (it is a subreaper) and the launcher ends them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyft.agent.channel import channel
from pyft.agent.channel.untrusted import Areas, log_header
from pyft.agent.job import job_folder
from pyft.agent.job.environment import JOB_TOKEN
from pyft.agent.job.options import JobOptions
from pyft.agent.process import descriptors, messages, process_tree
from pyft.agent.process.criu_work import CriuWork
from pyft.agent.process.notes import read_note
from pyft.agent.supervisor import supervisor
from pyft.agent.supervisor.valve import Valves
from pyft.errors import AgentLostError, CommandError
from pyft.hosts.place.lease import Lease
from pyft.hosts.wire.link import key_for, token
from pyft.images import image_folder, reopened

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_SI_KERNEL = 0x80  # the terminal sent it, to the command's process group as well
_GRACE_S = 1.5


class Launcher:
    """Runs one job."""

    def __init__(
        self, options: JobOptions, name: str = "", kept: dict[str, list[int]] | None = None
    ) -> None:
        """`name`, `kept`: of a place that was another host's, what its next agent is to find."""
        self.options = options
        self._name, self._kept = name, kept or {}
        self._socket, self._agent_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._supervisor_pid = 0
        self._criu = CriuWork()
        self._memory_folder = -1  # of the job's images
        self._why_lost = ""
        self._valves: Valves | None = None
        self.left: dict[str, Any] = {}  # what the last agent has said of its place, which leaves
        self.left_memory: dict[int, list[int]] = {}  # in its image, of each client
        # Log objects by channel name, to save if all else is lost.
        self._logs: dict[str, tuple[int, Areas]] = {}
        self.spared: tuple[int, ...] = ()  # processes below it that are not the job's

    def run(self) -> int:
        """Return the command's exit code, or raise what kept it from starting or ending."""
        process_tree.become_subreaper()
        lease = self._claim() if self.options.head else None
        name = self._name or f"pyft-{self.options.job}-{secrets.token_hex(8)}"
        ends = (self._agent_end, self._socket)
        self._valves = Valves() if self.options.movable else None
        standard = self._valves.ends if self._valves else {}
        if self.options.movable:
            self._memory_folder = image_folder.in_memory()
            where = image_folder.name_of(self._memory_folder)
            self.options = replace(self.options, memory_folder=where)
        own = (self._kept, standard, self._criu)
        self._supervisor_pid = supervisor.fork(self.options, *ends, name, *own)
        self._agent_end.close()
        self._forward_signals()  # before any other thread: one that blocks none would get them
        if self._valves:
            self._valves.begin()
        try:
            return self._run(lease)
        finally:
            if self._valves:
                self._valves.end()
            if self._memory_folder >= 0 and not self.left:  # an image that stays lies in it
                os.close(self._memory_folder)

    def _run(self, lease: Lease | None) -> int:
        descriptors.raise_limit()  # it has a descriptor of each client's log
        for fd in (fd for fds in self._kept.values() for fd in fds):
            os.close(fd)
        if lease:
            lease.begin()
        failure: CommandError | None = None
        try:
            code = self._listen()
        except CommandError as error:
            failure, code = error, error.exit_code
        _, status = os.waitpid(self._supervisor_pid, 0)
        if lease and self.left:
            lease.leave()
        elif lease:
            lease.end(1 if code is None else code)  # else the head waits for a host that is lost
        if failure:
            raise failure
        if code is None:
            lost = self._clean_up(status)
            raise lease.why_ended(lost) if lease else lost
        return code

    def _claim(self) -> Lease:
        """Take the place before anything of it starts; raise UsageError."""
        lease = Lease(self.options, self._criu)
        self.options = replace(self.options, life=lease.claim())
        key = key_for(token(), "collectives")
        os.environ.setdefault(JOB_TOKEN, key.hex()[:32])
        return lease

    def _forward_signals(self) -> None:
        ours = {n for n in _FORWARDED if signal.getsignal(n) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)
        has_own_session = self.options.movable and process_tree.is_session_outside()

        def loop() -> None:
            while True:
                info = signal.sigwaitinfo(ours)
                if self.left:  # the command has gone; what there is now ends with this process
                    os._exit(128 + info.si_signo)
                had = info.si_code == _SI_KERNEL and not has_own_session
                messages.send(self._socket, "signal", number=info.si_signo, had=had)

        threading.Thread(target=loop, daemon=True).start()

    def _listen(self) -> int | None:
        """Return the exit code, or None when supervisor and agent have ended without giving one."""
        while True:
            got = messages.receive(self._socket)
            if got is None:
                return None
            message, fds = got
            kind = message["kind"]
            if kind == "channel" and fds:
                self._forget_log(message["name"])  # each agent tells of it
                self._logs[message["name"]] = (fds[0], Areas(**message["areas"]))
            elif kind == "saved":
                self._forget_log(message["name"])
            elif kind == "lost":
                self._why_lost = message["text"]
            elif kind == "failed":
                raise CommandError(message["text"], message["exit_code"])
            elif kind == "left part":
                self.left_memory[int(message["client"])] = fds
            elif kind == "left":
                self.left = read_note(fds[0])
                return 0
            elif kind == "valves" and self._valves:
                self._valves.order(message["what"], int(message["number"]))
            elif kind == "ended":
                return int(message["exit_code"])

    def _forget_log(self, name: str) -> None:
        if log := self._logs.pop(name, None):
            os.close(log[0])

    def _clean_up(self, status: int) -> AgentLostError:
        _, gone = process_tree.end_descendants(
            os.getpid(), lambda: self.spared, reap=_reap_all, quiet_s=0.0, grace_s=_GRACE_S
        )
        shutil.rmtree(self.options.log_dir / "images", ignore_errors=True)
        (self.options.log_dir / reopened.NAME).unlink(missing_ok=True)
        saved = self._save_logs()
        where = f"; traces are in [{self.options.log_dir}]" if saved else ""
        what = "ended the command and its servers" if gone else "some processes resist SIGKILL"
        how = f"the supervisor [pid {self._supervisor_pid}] {messages.status_text(status)}"
        return AgentLostError(f"{self._why_lost or how}: {what}{where}")

    def _save_logs(self) -> list[str]:
        folder = self.options.log_dir
        meta = job_folder.read_meta(folder)
        live = {entry.get("memory"): entry for entry in meta.get("live", [])}
        saved = []
        for name, (fd, areas) in self._logs.items():
            with contextlib.suppress(OSError):
                entry = live.get(name, {"name": name})  # which has the rank in its name
                path = folder / Path(f"{entry['name']}.ring").name
                channel.save_log(fd, path, areas)
                entry |= {"file": path.name, "goodbye": False, **log_header(fd, areas)}
                meta.setdefault("channels", []).append(entry)
                saved.append(name)
            os.close(fd)
        meta |= {
            "state": self._why_lost or "the supervisor was killed",
            "ended": time.time(),
            "live": [],
        }
        with contextlib.suppress(OSError):
            job_folder.write_meta(folder, meta)
        return saved


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
