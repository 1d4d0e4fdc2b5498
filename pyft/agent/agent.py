"""The agent's event loop.

    launcher (`pyft run`)  <-- socket -->  agent  --+-- the user's command and all it starts
                                                    +-- one server per client and device

Launcher and agent watch each other's end of the socket. Whoever is left ends the command's whole
process tree, saves the traces and says why.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyft.agent import job_folder, messages, metrics, process_tree
from pyft.agent.member import Member
from pyft.agent.options import JobOptions, link_for_triton, program_environment
from pyft.agent.orders import Orders, socket_name
from pyft.agent.protocol import (
    MAX_ENVIRONMENT_BYTES,
    REQUEST,
    AttachRequest,
    ChannelStatus,
    pack_refusal,
)
from pyft.agent.servers import Servers
from pyft.errors import AttachError, CommandError, PyftError
from pyft.recovery import report

# Everything must be gone 5 s after a kill: the sum of the waits below stays under that.
QUIET_S = 0.5  # helpers of the command (a resource tracker) end by themselves in this time
GRACE_S = 1.5  # between SIGTERM and SIGKILL
DRAIN_S = 5.0  # a server finishes what a client that said goodbye has left it
SERVER_END_S = 1.0  # a server whose socket is closed
META_S = 0.05  # several clients that come or go in this time are written down together
_OWN_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU, signal.SIGTERM)


class Agent:
    """State of one job. Single-threaded; callbacks run from `run`."""

    def __init__(self, options: JobOptions, launcher: socket.socket, launcher_group: int) -> None:
        self._options = options
        self._launcher = launcher
        self._launcher_group = launcher_group
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._meta_due = False
        self._reaped: dict[int, int] = {}
        self._command_pid = 0
        self._stop_reason = ""
        self._signalled = False  # the user wants the command to end
        self._servers = Servers(options, self, self._write_meta)
        self._orders = Orders(self._servers)
        self._listeners: list[socket.socket] = []
        self._next_id = 0
        self._name = f"pyft-{options.job}-{secrets.token_hex(4)}"
        self._meta: dict[str, Any] = {
            "job": options.job,
            "command": list(options.command),
            "devices": options.devices,
            "gpus": options.gpus,
            "spares": options.spares,
            "protect": options.protect,
            "direct": options.direct,
            "started": time.time(),
            "agent_pid": os.getpid(),
            "state": "running",
            "channels": [],
        }

    # ---- life of the job ----------------------------------------------------------------------

    def run(self) -> int:
        """Run the command to its end; return the exit code of the agent itself."""
        inherited = {number: signal.getsignal(number) for number in _OWN_SIGNALS}
        self._watch_signals()
        process_tree.become_subreaper()
        job_folder.create(self._options.log_dir)
        link_for_triton(self._options)
        self._write_meta()
        if not self._options.direct:
            self._listen(self._name, self._attach)
            self._listen(socket_name(self._options.job), self._take_order)
            if self._options.metrics_port:
                self._listeners.append(
                    metrics.serve(self._options.metrics_port, self, self._meters)
                )
        self.watch(self._launcher, self._from_launcher)
        try:
            self._start_command(inherited)
        except OSError as error:
            failure = _start_failure(self._options.command[0], error)
            messages.send(self._launcher, "failed", text=str(failure), exit_code=failure.exit_code)
            self._finish("not started")
            return failure.exit_code
        while not self._stop_reason and self._command_pid not in self._reaped:
            self._turn()
        return self._end()

    def _turn(self) -> None:
        now = time.monotonic()
        due = [timer for timer in self._timers if timer[0] <= now]
        self._timers = [timer for timer in self._timers if timer[0] > now]
        for _, action in due:
            action()
        next_due = now if due else min((at for at, _ in self._timers), default=now + 60.0)
        for key, _ in self._selector.select(max(0.0, next_due - now)):
            if key.fd in self._selector.get_map():  # an earlier callback may have closed it
                key.data()
        self._reap()
        self._save_finished_members()

    def _end(self) -> int:
        for listener in self._listeners:
            listener.close()
        self._servers.end()
        stopped = bool(self._stop_reason)
        signalled, gone = process_tree.end_descendants(
            spared=self._servers.pids,
            reap=self._reap,
            quiet_s=0.0 if stopped else QUIET_S,
            grace_s=GRACE_S,
        )
        if signalled and not stopped:
            messages.say(f"the command has ended; ended what it left running: pids {signalled}")
        if not gone:
            messages.say("some processes of the command could not be ended, even by SIGKILL")
        self._end_servers()
        for member in self._members():
            self._save(member)
        self._show_report()
        if stopped:
            messages.say(f"{self._stop_reason}: ended the command and its servers")
        status = self._reaped.get(self._command_pid, signal.SIGKILL)
        self._finish(self._stop_reason or "ended", messages.exit_code(status))
        messages.send(self._launcher, "ended", exit_code=messages.exit_code(status))
        return 0

    def _end_servers(self) -> None:
        def alive() -> list[Member]:
            self._reap()
            return [m for m in self._members() if m.server_alive and not m.saved]

        drain = 0.0 if self._stop_reason else DRAIN_S
        deadline = time.monotonic() + drain
        while any(m.said_goodbye() for m in alive()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for member in alive():
            self._servers.end_server(member)
        deadline = time.monotonic() + SERVER_END_S
        while alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        for member in alive():
            member.kill_server()
        deadline = time.monotonic() + SERVER_END_S
        while alive() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _show_report(self) -> None:
        found = self._servers.report()
        if found["faults"]:
            messages.say("\n".join(["faults of this job:", *report.table(found)]))

    def _finish(self, state: str, exit_code: int | None = None) -> None:
        self._meta |= {"state": state, "exit_code": exit_code, "ended": time.time()}
        self._write_meta()

    def _members(self) -> list[Member]:
        return list(self._servers.members.values())

    def _write_meta_soon(self) -> None:
        """Not at once: replacing a file takes up to 8 ms, for which all other clients would wait."""
        if not self._meta_due:
            self._meta_due = True
            self.after(META_S, self._write_meta)

    def _write_meta(self) -> None:
        self._meta_due = False
        live = [m.describe() for m in self._members() if not m.saved]
        now = {"live": live, "recovery": self._servers.report()}
        try:
            job_folder.write_meta(self._options.log_dir, self._meta | now)
        except OSError as error:
            messages.say(f"[{self._options.log_dir}] cannot be written: {error.strerror}")

    # ---- processes ----------------------------------------------------------------------------

    def _start_command(self, inherited: dict[int, Any]) -> None:
        agent = os.getpid()
        group = self._launcher_group

        def before_exec() -> None:
            process_tree.die_with_parent(signal.SIGTERM, agent)
            # In the launcher's process group the command owns the terminal, as without pyft.
            with contextlib.suppress(OSError):
                os.setpgid(0, group)
            for number, handler in inherited.items():
                ignored = handler is signal.SIG_IGN
                signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)

        process = subprocess.Popen(
            self._options.command,
            env=program_environment(self._options, os.environ, self._name),
            preexec_fn=before_exec,
            close_fds=False,  # descriptors the user passes down stay; ours are close-on-exec
        )
        process.returncode = 0  # reaped by waitpid(-1) below
        self._command_pid = process.pid
        messages.send(self._launcher, "started", pid=process.pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped[pid] = status
            self._servers.standby.reaped(pid)
            for member in self._members():
                if member.server and member.server.pid == pid and member.server_alive:
                    member.server.status = status
                    self._servers.exited(member)

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        self.watch(reader, lambda: os.read(reader, 4096))

    def _on_terminate(self, *_: Any) -> None:
        self._stop_reason = f"the agent [pid {os.getpid()}] got SIGTERM"

    # ---- what the loop offers (pyft.agent.servers.Loop) ---------------------------------------

    def watch(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` can be read."""
        self._selector.register(source, selectors.EVENT_READ, action)

    def forget(self, source: Any) -> None:
        """Stop that."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, later."""
        self._timers.append((time.monotonic() + seconds, action))

    def _listen(self, name: str, greet: Callable[[socket.socket, int], None]) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind("\0" + name)
        listener.listen(64)
        self._listeners.append(listener)
        self.watch(listener, lambda: self._accept(listener, greet))

    # ---- launcher -----------------------------------------------------------------------------

    def _from_launcher(self) -> None:
        got = messages.receive(self._launcher)
        if got is None:
            self._stop_reason = "the launcher was killed"
            return
        message, _ = got
        if message["kind"] == "signal" and self._command_pid not in self._reaped:
            self._signalled = True
            process_tree.send([self._command_pid], int(message["number"]))

    # ---- clients ------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, greet: Callable[[socket.socket, int], None]) -> None:
        connection, _ = listener.accept()
        pid, uid, _ = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if uid != os.getuid():
            messages.say(f"refused a connection of another user [uid {uid}]")
            connection.close()
            return
        self.watch(connection, lambda: greet(connection, pid))

    def _take_order(self, connection: socket.socket, _: int) -> None:
        self.forget(connection)
        with connection:
            self._orders.answer(connection)

    def _meters(self) -> str:
        return metrics.text(self._servers)

    def _attach(self, connection: socket.socket, peer_pid: int) -> None:
        self.forget(connection)
        try:
            message = connection.recv(REQUEST.size + MAX_ENVIRONMENT_BYTES + 1)
            if not message:
                connection.close()
                return
            request = AttachRequest.parse(message)
            if request.pid != peer_pid:
                raise AttachError(f"[pid {peer_pid}] claims to be [pid {request.pid}]", 1)
            member = Member.create(self._next_id, request, connection, self._options)
            try:
                self._servers.attach(member)
            except BaseException:
                member.channel.close()
                raise
        except PyftError as error:  # also a missing native file or a bad PYFT_* variable
            messages.say(f"{error}, asked for by [pid {peer_pid}]")
            with contextlib.suppress(OSError):
                connection.send(pack_refusal(getattr(error, "errno", 22), str(error)))
            connection.close()
            return
        except OSError:
            connection.close()
            return
        self._next_id += 1
        member.answer()
        self.watch(connection, lambda: self._client_spoke(member))
        self._watch_process(member, peer_pid)
        messages.send(
            self._launcher, "channel", fds=(member.channel.log_fd,), name=member.channel.name
        )
        self._write_meta_soon()

    def _watch_process(self, member: Member, pid: int) -> None:
        """A forked child may hold the connection open after the client's death."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            member.client_dead = True
            self._client_ended(member)
            return

        def ended() -> None:
            self.forget(pidfd)
            os.close(pidfd)
            member.client_dead = True
            self._client_ended(member)

        self.watch(pidfd, ended)

    def _client_spoke(self, member: Member) -> None:
        try:
            alive = bool(member.connection.recv(4096))
        except OSError:
            alive = False
        if not alive:
            self._client_ended(member)

    def _client_ended(self, member: Member) -> None:
        self.forget(member.connection)
        if member.client_gone:
            return
        member.client_gone = True
        if not member.client_dead:
            # The end of the process tells how it ended; but it may live on without a channel.
            self.after(SERVER_END_S, member.stop_waiting)
        self._servers.client_gone(member)
        if member.server_alive:
            if member.said_goodbye():
                self.after(DRAIN_S, member.kill_server)
            else:
                member.channel.set_status(ChannelStatus.CLIENT_GONE, "the client is gone")
                self._servers.end_server(member)
                self.after(SERVER_END_S, member.kill_server)

    def _save_finished_members(self) -> None:
        for member in self._members():
            if member.client_gone and member.client_dead and not member.server_alive:
                self._save(member)

    def _save(self, member: Member) -> None:
        if member.saved:
            return
        self.forget(member.connection)
        self._servers.incidents.recount(member)
        entry = member.save(self._options.log_dir)
        self._meta["channels"].append(entry)
        messages.send(self._launcher, "saved", name=member.channel.name)
        self._write_meta_soon()
        if not entry["goodbye"] and not self._stop_reason and not self._signalled:
            self._report_lost_client(member)

    def _report_lost_client(self, member: Member) -> None:
        status = self._reaped.get(member.channel.client_pid)
        if status is not None and os.WIFEXITED(status):
            return  # it chose to end, by os._exit or after its server's death
        how = messages.status_text(status) if status is not None else "ended without a goodbye"
        messages.say(
            f"the {member.who} {how}; its server [pid {member.server_pid}] has ended and its "
            f"trace is saved in [{self._options.log_dir}]"
        )


def _start_failure(program: str, error: OSError) -> CommandError:
    code = 127 if isinstance(error, FileNotFoundError) else 126
    return CommandError(f"cannot start [{program}]: {os.strerror(error.errno or 5)}", code)


def main(arguments: Sequence[str]) -> int:
    """Entry of the agent process; the launcher passes everything on the command line."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # so that Ctrl-C reaches the command but not agent and servers
    process_tree.set_name("pyft-agent")
    options, launcher_fd, launcher_group = JobOptions.from_arguments(arguments)
    launcher = socket.socket(fileno=launcher_fd)
    launcher.set_inheritable(False)
    code = Agent(options, launcher, launcher_group).run()
    messages.flush_and_exit(code)
    return code
