"""The launcher: the process the user's shell waits for.

It starts the keeper, which starts the agent, forwards signals, and passes on the command's exit code.
When the keeper dies, its children become the launcher's (it is a subreaper) and the launcher ends them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
import time

from pyft.agent import channel, job_folder, keeper, messages, process_tree
from pyft.agent.options import JobOptions
from pyft.agent.untrusted import Areas, log_header
from pyft.errors import AgentLostError, CommandError

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

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._socket, self._agent_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._keeper_pid = 0
        self._why_lost = ""
        # Log objects by channel name, to save if all else is lost.
        self._logs: dict[str, tuple[int, Areas]] = {}

    def run(self) -> int:
        """Return the command's exit code, or raise what kept it from starting or ending."""
        process_tree.become_subreaper()
        name = f"pyft-{self._options.job}-{secrets.token_hex(8)}"
        self._keeper_pid = keeper.fork(self._options, self._agent_end, self._socket, name)
        self._agent_end.close()
        self._forward_signals()
        code = self._listen()
        _, status = os.waitpid(self._keeper_pid, 0)
        if code is None:
            raise self._clean_up(status)
        return code

    def _forward_signals(self) -> None:
        ours = {n for n in _FORWARDED if signal.getsignal(n) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)

        def loop() -> None:
            while True:
                info = signal.sigwaitinfo(ours)
                if info.si_code != _SI_KERNEL:
                    messages.send(self._socket, "signal", number=info.si_signo)

        threading.Thread(target=loop, daemon=True).start()

    def _listen(self) -> int | None:
        """Return the exit code, or None when keeper and agent have ended without giving one."""
        while True:
            got = messages.receive(self._socket)
            if got is None:
                return None
            message, fds = got
            kind = message["kind"]
            if kind == "channel" and fds:
                self._logs[message["name"]] = (fds[0], Areas(**message["areas"]))
            elif kind == "saved":
                if log := self._logs.pop(message["name"], None):
                    os.close(log[0])
            elif kind == "lost":
                self._why_lost = message["text"]
            elif kind == "failed":
                raise CommandError(message["text"], message["exit_code"])
            elif kind == "ended":
                return int(message["exit_code"])

    def _clean_up(self, status: int) -> AgentLostError:
        _, gone = process_tree.end_descendants(
            os.getpid(), spared=tuple, reap=_reap_all, quiet_s=0.0, grace_s=_GRACE_S
        )
        saved = self._save_logs()
        where = f"; traces are in [{self._options.log_dir}]" if saved else ""
        what = "ended the command and its servers" if gone else "some processes resist SIGKILL"
        how = f"the keeper [pid {self._keeper_pid}] {messages.status_text(status)}"
        return AgentLostError(f"{self._why_lost or how}: {what}{where}")

    def _save_logs(self) -> list[str]:
        folder = self._options.log_dir
        meta = job_folder.read_meta(folder)
        live = {entry.get("name"): entry for entry in meta.get("live", [])}
        saved = []
        for name, (fd, areas) in self._logs.items():
            with contextlib.suppress(OSError):
                channel.save_log(fd, folder / f"{name}.ring", areas)
                entry = live.get(name, {"name": name})
                entry |= {"file": f"{name}.ring", "goodbye": False, **log_header(fd, areas)}
                meta.setdefault("channels", []).append(entry)
                saved.append(name)
            os.close(fd)
        meta |= {
            "state": self._why_lost or "the keeper was killed",
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
