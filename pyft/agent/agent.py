"""The agent's event loop.

    launcher (`pyft run`) --- keeper --+-- agent
                                       +-- the user's command and all it starts
                                       +-- one server per client and device

The keeper holds whatever must outlive this process, and starts another one when it dies, which adopts
what it finds (adoption.py). When the launcher dies, the agent ends the command's whole process tree,
saves the traces and says why.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyft.agent import adoption, channel, job_folder, messages, metrics, process_tree
from pyft.agent.clients import DRAIN_S, SERVER_END_S, Clients
from pyft.agent.door import Door, Listener, Refusals
from pyft.agent.keeper import COMMAND
from pyft.agent.keeper_link import KeeperLink, Legacy
from pyft.agent.member import Member
from pyft.agent.options import JobOptions, link_for_triton, program_environment
from pyft.agent.orders import ANSWER_S, Orders, socket_name
from pyft.agent.servers import Servers
from pyft.errors import NOT_INJECTED, CommandError, UsageError
from pyft.recovery import report

# Everything must be gone 5 s after a kill: the sum of the waits below stays under that.
QUIET_S = 0.5  # helpers of the command (a resource tracker) end by themselves in this time
GRACE_S = 1.5  # between SIGTERM and SIGKILL
MOST_ORDERS = 16  # connections that have not said theirs
META_S = 0.05  # several clients that come or go in this time are written down together
WORKED_S = 1.0  # an agent that does not crash so long after it has taken over is no failure


class Agent:
    """State of one job. Single-threaded; callbacks run from `run`."""

    def __init__(self, options: JobOptions, keeper: KeeperLink) -> None:
        self._options = options
        self._keeper = keeper
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._meta_due = False
        self._ended: dict[int, int] = {}  # pid -> status of the keeper's children
        self._command_pid = 0
        self._stop_reason = ""
        self._signalled = False  # the user wants the command to end
        self._servers = Servers(options, self, keeper, self._write_meta)
        self._orders = Orders(self._servers)
        self._refusals = Refusals("the socket for orders")
        self._metrics: socket.socket | None = None
        self._meta: dict[str, Any] = {
            "job": options.job,
            "command": list(options.command),
            "devices": options.devices,
            "gpus": options.gpus,
            "spares": options.spares,
            "protect": options.protect,
            "direct": options.direct,
            "started": time.time(),
            "state": "running",
            "channels": [],
        }

    # ---- life of the job ----------------------------------------------------------------------

    def run(self) -> int:
        """Run the command to its end, or what is left of that; return the agent's exit code."""
        self._watch_signals()
        legacy = self._keeper.take_over()
        assert legacy.launcher is not None
        self._launcher = legacy.launcher
        job_folder.create(self._options.log_dir)
        link_for_triton(self._options)
        self._adopt(legacy)
        self.watch(self._launcher, self._from_launcher)
        self.watch(self._keeper.socket, self._from_keeper)
        if legacy.orders:
            self._take_orders_from(legacy.orders)
        try:
            if self._options.metrics_port and not self._options.direct:
                self._serve_metrics()
            if not self._command_pid:
                self._start_command(legacy.clients_name)
        except (CommandError, UsageError) as failure:
            text, code = str(failure), failure.exit_code
            messages.send(self._launcher, "failed", text=text, exit_code=code)
            self._finish("not started")
            return code
        self.after(WORKED_S, self._keeper.working)
        if not self._options.direct:
            self.after(0.0, channel.get_ready)  # while the command starts
        while not self._stop_reason and self._command_pid not in self._ended:
            self._turn()
        return self._end()

    def _adopt(self, legacy: Legacy) -> None:
        """Go on where the agent before has stopped; for the first one: at the beginning."""
        kept = legacy.notes.get("job", {})
        self._meta |= kept.get("meta", {})
        self._meta |= {"agent_pid": os.getpid(), "keeper_pid": os.getppid()}
        self._stop_reason = self._stop_reason or kept.get("stop_reason", "")
        self._signalled = kept.get("signalled", False)
        if legacy.orders:
            self._meta["orders"] = socket_name(legacy.clients_name)
        self._keep()
        for process in legacy.processes.values():
            if process.name == COMMAND:
                self._command_pid = process.pid
            if process.status is not None:
                self._ended[process.pid] = process.status
        self._clients = Clients(
            *(self._options, self, self._keeper, self._servers, self._launcher),
            *(self._write_meta_soon, self._client_saved),
        )
        members = adoption.adopt_members(legacy, self._options, self._keeper)
        adoption.adopt_plan(self._servers, members, legacy)
        self._clients.adopt(members)
        adoption.see_deaths(self._servers, members)
        if members:
            self._servers.work(members[0])
        for name, connection in legacy.clients.items():
            self._clients.accept(name, connection)
        self._keeper.took_over()
        self._write_meta()
        if legacy.restarts:
            messages.say(
                f"a new agent [pid {os.getpid()}] has taken over: [{len(members)}] clients, "
                f"restart [{legacy.restarts}]"
            )

    def _keep(self) -> None:
        note = {"meta": self._meta, "stop_reason": self._stop_reason, "signalled": self._signalled}
        self._keeper.keep("job", note)

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
        self._from_keeper()  # also what came while we waited for another answer
        self._clients.save_finished()

    def _end(self) -> int:
        self._keep()
        self._servers.end()
        self._refusals.sum_up()
        stopped = bool(self._stop_reason)
        signalled, gone = process_tree.end_descendants(
            os.getppid(),
            spared=lambda: {os.getpid(), *self._servers.pids()},
            reap=self._from_keeper,
            quiet_s=0.0 if stopped else QUIET_S,
            grace_s=GRACE_S,
        )
        if signalled and not stopped:
            messages.say(f"the command has ended; ended what it left running: pids {signalled}")
        if not gone:
            messages.say("some processes of the command could not be ended, even by SIGKILL")
        self._end_servers()
        for member in self._members():
            self._clients.save(member)
        self._servers.missed = self._servers.requests.missed()
        self._show_report()
        if stopped:
            messages.say(f"{self._stop_reason}: ended the command and its servers")
        status = self._ended.get(self._command_pid, signal.SIGKILL)
        code = messages.exit_code(status)
        if self._servers.missed and not code:
            code = NOT_INJECTED
        self._finish(self._stop_reason or "ended", code)
        messages.send(self._launcher, "ended", exit_code=code)
        return 0

    def _end_servers(self) -> None:
        def alive() -> list[Member]:
            self._from_keeper()
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
        elif found["agent_restarts"]:
            messages.say(report.table(found)[-1])
        for sentence in report.not_injected(found):
            messages.say(sentence)

    def _finish(self, state: str, exit_code: int | None = None) -> None:
        self._meta |= {"state": state, "exit_code": exit_code, "ended": time.time()}
        self._write_meta()
        self._keeper.over()

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

    def _start_command(self, clients_name: str) -> None:
        arguments = self._options.command
        environment = program_environment(self._options, os.environ, clients_name)
        try:
            self._command_pid, _ = self._keeper.start(COMMAND, arguments, environment)
        except OSError as error:
            raise _start_failure(arguments[0], error) from None

    def _from_keeper(self) -> None:
        while got := self._keeper.received():
            message, fds = got
            if message["kind"] == "ended":
                self._process_ended(message["pid"], message["status"])
            elif message["kind"] == "client":
                self._clients.accept(message["name"], socket.socket(fileno=fds[0]))

    def _process_ended(self, pid: int, status: int) -> None:
        self._ended[pid] = status
        self._servers.reaped(pid)
        owners = [m for m in self._members() if m.server and m.server.pid == pid]
        for member in owners:
            if member.server and member.server_alive:
                member.server.status = status
                self._servers.exited(member)
        if not owners and pid != self._command_pid:
            self._keeper.forget(pid)

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
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

    # ---- launcher, operators, clients ---------------------------------------------------------

    def _from_launcher(self) -> None:
        got = messages.receive(self._launcher)
        if got is None:
            self._stop_reason = "the launcher was killed"
            return
        message, _ = got
        if message["kind"] == "signal":
            self._signalled = True
            self._keep()
            self._keeper.kill(self._command_pid, int(message["number"]))

    def _take_orders_from(self, listener: socket.socket) -> None:
        door = Listener(listener, self._refusals)
        Door(self, door, self._orders.answer, most=MOST_ORDERS, seconds=ANSWER_S)

    def _serve_metrics(self) -> None:
        port = self._options.metrics_port
        try:
            self._metrics = metrics.serve(port, self, lambda: metrics.text(self._servers))
        except OSError as error:
            why = f"--metrics-port [{port}] cannot be used: {error.strerror}"
            if not self._command_pid:
                raise UsageError(why) from None
            messages.say(why)

    def _client_saved(self, member: Member, entry: dict[str, Any]) -> None:
        self._meta["channels"].append(entry)
        self._keep()
        self._write_meta_soon()
        if not entry["goodbye"] and not self._stop_reason and not self._signalled:
            self._report_lost_client(member)

    def _report_lost_client(self, member: Member) -> None:
        status = self._ended.get(member.channel.client_pid)
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
    """Entry of the agent process; the keeper passes everything on the command line."""
    process_tree.set_name("pyft-agent")
    options, keeper_fd = JobOptions.from_arguments(arguments)
    keeper = socket.socket(fileno=keeper_fd)
    keeper.set_inheritable(False)
    code = Agent(options, KeeperLink(keeper)).run()
    messages.flush_and_exit(code)
