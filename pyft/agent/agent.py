"""The agent: one job, from its command's start to its end.

    launcher (`pyft run`) --- supervisor --+-- agent
                                       +-- the user's command and all it starts
                                       +-- one server per client and device

The supervisor holds whatever must outlive this process, and starts another one when it dies, which adopts
what it finds (adoption.py). When the launcher dies, the agent ends the command's whole process tree,
saves the traces and says why.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from pyft import config, log
from pyft.agent import leaving, restoring
from pyft.agent.channel import channel
from pyft.agent.clients import Clients
from pyft.agent.command import Command
from pyft.agent.going_back import GoingBack
from pyft.agent.host_images import images_of
from pyft.agent.job import asked_faults, job_folder, supervisors
from pyft.agent.job.ended_clients import EndedClients
from pyft.agent.job.environment import link_for_triton, program_environment
from pyft.agent.job.job_meta import JobMeta
from pyft.agent.job.options import JobOptions
from pyft.agent.lifecycle import adoption
from pyft.agent.lifecycle.servers import DRAIN_S, Servers
from pyft.agent.members.member import Member
from pyft.agent.operators.sockets import Sockets
from pyft.agent.operators.timeline import Timeline
from pyft.agent.process import messages, process_tree
from pyft.agent.process.loop import EventLoop
from pyft.agent.supervisor.link import Handover, SupervisorLink, orders_name
from pyft.errors import NOT_INJECTED, CommandError, UsageError
from pyft.recovery import report

# Everything must be gone 5 s after a kill: the sum of the waits below stays under that.
QUIET_S = 0.5  # helpers of the command (a resource tracker) end by themselves in this time
GRACE_S = 1.5  # between SIGTERM and SIGKILL
WORKED_S = 1.0  # an agent that does not crash so long after it has taken over is no failure


class Agent:
    """State of one job. Single-threaded; callbacks run from `run`."""

    def __init__(self, options: JobOptions, supervisor: SupervisorLink) -> None:
        self._options = options
        self._supervisor = supervisor
        self._loop = EventLoop()
        ended = EndedClients(supervisor.keep, supervisor.drop)
        self._meta = JobMeta(options, self._loop, self._live, ended)
        self._command = Command(supervisor, self._meta.values)
        self._servers = Servers(options, self._loop, supervisor, self._meta.write)
        self._operators = Sockets(self._servers)
        self._images = images = images_of(self._servers)
        self._timeline: Timeline | None = None  # if this agent has adopted what there was
        self._back = GoingBack(images, self._command, self._servers, self._meta, supervisor)

    # ---- life of the job ----------------------------------------------------------------------

    def run(self) -> int:
        """Run the command to its end, or what is left of that; return the agent's exit code."""
        self._watch_signals()
        handover = self._supervisor.take_over()
        assert handover.launcher is not None
        self._launcher = handover.launcher
        if self._images:
            self._images.launcher, self._images.relay = handover.launcher, handover.relay
        job_folder.create(self._options.log_dir)
        link_for_triton(self._options)
        if record := handover.notes.get(restoring.NOTE):
            self._back.go_again(record, handover)
            return self._end()
        self._adopt(handover)
        self._loop.watch(self._launcher, self._from_launcher)
        self._loop.watch(self._supervisor.socket, self._from_supervisor)
        if handover.orders:
            self._operators.take_orders(handover.orders)
        try:
            self._serve_metrics()
            if not self._command.pid:
                self._start_command(handover.clients_name)
        except (CommandError, UsageError) as failure:
            text, code = str(failure), failure.exit_code
            messages.send(self._launcher, "failed", text=text, exit_code=code)
            self._write_end("not started")
            self._supervisor.over()
            return code
        if self._images:
            self._images.begin(self._command.pid)
        self._loop.after(WORKED_S, self._supervisor.working)
        if not self._options.direct:
            self._loop.after(0.0, channel.get_ready)  # while the command starts
        while not self._command.stop_reason and not self._goes_away and not self._back.is_over():
            self._turn()
        if self._images and self._images.leaves and not self._command.stop_reason:
            self._leave(self._images.leaves)
        if self._back.image and not self._command.stop_reason:
            self._back.go(self._back.image)
        return self._end()

    @property
    def _goes_away(self) -> bool:
        """Say whether the processes of now are not to go on."""
        return bool(self._back.image or (self._images and self._images.leaves))

    def _leave(self, image: leaving.Image) -> None:
        """The place goes on at another host: end all of it here. On failure the job ends."""
        self._servers.ending = True
        assert self._images
        self._images.end_dump()
        try:
            leaving.leave(image, self._launcher, self._back.reaped)
        except (restoring.RestoreError, OSError) as error:
            self._command.fail(f"this host cannot leave its place: {error}")
            return
        self._servers.incidents.left()
        self._write_end(image.about["why"], 0)
        self._supervisor.over()
        messages.flush_and_exit(0)

    def _adopt(self, handover: Handover) -> None:
        """Go on where the agent before has stopped; for the first one: at the beginning."""
        self._command.adopt(handover)
        self._meta.ended.adopt(handover.notes)
        meta = self._meta.values
        meta |= {"agent_pid": os.getpid(), "supervisor_pid": os.getppid()}
        meta |= supervisors.identity(os.getppid())
        if handover.orders:
            meta["orders"] = orders_name(handover.clients_name)
        self._command.keep()
        self._clients = Clients(
            *(self._options, self._loop, self._supervisor, self._servers, self._launcher),
            *(self._meta.write_soon, self._client_saved, self._back.because_of, self._last_look),
        )
        members = adoption.adopt_members(handover, self._options, self._supervisor)
        adoption.adopt_plan(self._servers, members, handover)
        if self._images:  # before a client is found to have been killed meanwhile
            self._images.adopt(self._command.pid, handover)
        self._clients.adopt(members)
        adoption.see_deaths(self._servers, members)
        if members:
            self._servers.work(members[0])
        for name, connection in handover.clients.items():
            self._clients.accept(name, connection)
        self._supervisor.took_over()
        self._meta.write_again()
        start = self._servers.incidents.start
        self._timeline = Timeline(self._options.log_dir, self._loop, start, self._members)
        if not self._options.direct:
            self._timeline.begin()
        if handover.restarts:
            messages.say(
                f"a new agent [pid {os.getpid()}] has taken over: [{len(members)}] clients, "
                f"restart [{handover.restarts}]"
            )

    def _turn(self) -> None:
        self._loop.turn()
        self._from_supervisor()  # also what came while we waited for another answer
        self._clients.save_finished()
        if self._images:
            self._images.turn()
            if self._images.failed:
                self._command.fail(self._images.failed)

    def _end(self) -> int:
        self._command.keep()
        if self._images:
            self._meta.values["images"] = self._images.figures
            self._images.end()
            if self._images.flushes:
                self._meta.values["flushes"] = self._images.flushes.figures
        self._servers.end()
        self._operators.sum_up()
        stopped = bool(self._command.stop_reason)
        signalled, gone = process_tree.end_descendants(
            os.getppid(),
            spared=lambda: {os.getpid(), *self._servers.pids()},
            reap=self._from_supervisor,
            quiet_s=0.0 if stopped else QUIET_S,
            grace_s=GRACE_S,
        )
        if signalled and not stopped:
            messages.say(f"the command has ended; ended what it left running: pids {signalled}")
        if not gone:
            messages.say("some processes of the command could not be ended, even by SIGKILL")
        self._servers.end_all(0.0 if stopped else DRAIN_S, self._from_supervisor)
        for member in self._members():
            self._clients.save(member)
        self._servers.missed = [*self._servers.requests.missed(), *self._missed_by_variables()]
        for sentence in report.at_end(self._servers.report()):
            messages.say(sentence)
        if stopped:
            messages.say(f"{self._command.stop_reason}: ended the command and its servers")
        code = self._command.exit_code
        if self._servers.missed and not code:
            code = NOT_INJECTED
        self._write_end(self._command.stop_reason or "ended", code)
        messages.send(self._launcher, "ended", exit_code=code)
        self._supervisor.over()  # from now on no other agent would say so
        return 0

    def _last_look(self, member: Member) -> None:
        if self._timeline:
            self._timeline.look_at([member])

    def _missed_by_variables(self) -> list[dict[str, str]]:
        """Return which faults of the environment have not happened; with several hosts: none."""
        if self._options.head:
            return []
        return asked_faults.missed(self._options.log_dir, self._options.job)

    def _write_end(self, state: str, exit_code: int | None = None) -> None:
        ended = {"state": state, "exit_code": exit_code, "ended": time.time()}
        self._meta.values |= ended
        self._meta.write()

    def _members(self) -> list[Member]:
        return list(self._servers.members.values())

    def _live(self) -> dict[str, Any]:
        """Return what changes all the time, for meta.json."""
        live = [m.describe() for m in self._members() if not m.saved]
        left = len(self._servers.spares_left())
        pre_dumps = {"pre_dumps": self._images.pre_dumps} if self._images else {}
        return {"live": live, "recovery": self._servers.report(), "spares_left": left, **pre_dumps}

    # ---- processes ----------------------------------------------------------------------------

    def _start_command(self, clients_name: str) -> None:
        arguments: Sequence[str] = self._options.command
        environment = program_environment(self._options, os.environ, clients_name)
        if self._images:
            arguments, environment = self._images.started(arguments, environment, clients_name)
        self._command.start(arguments, environment)

    def _from_supervisor(self) -> None:
        while got := self._supervisor.received():
            message, fds = got
            if message["kind"] == "ended":
                self._process_ended(message["pid"], message["status"])
            elif message["kind"] == "client":
                self._clients.accept(message["name"], socket.socket(fileno=fds[0]))

    def _process_ended(self, pid: int, status: int) -> None:
        self._command.process_ended(pid, status)
        if self._images and self._images.ended(pid, status):
            return
        self._servers.reaped(pid)
        owners = [m for m in self._members() if m.server and m.server.pid == pid]
        for member in owners:
            if member.server and member.server_alive:
                member.server.status = status
                self._servers.deaths.exited(member)
        if not owners and pid != self._command.pid:
            self._supervisor.forget(pid)

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        self._loop.watch(reader, lambda: os.read(reader, 4096))

    def _on_terminate(self, *_: Any) -> None:
        self._command.stop_reason = f"the agent [pid {os.getpid()}] got SIGTERM"

    # ---- launcher, operators, clients ---------------------------------------------------------

    def _from_launcher(self) -> None:
        got = messages.receive(self._launcher)
        if got is None:
            self._command.stop_reason = "the launcher was killed"
            return
        message, _ = got
        if message["kind"] == "signal":
            self._command.signal(int(message["number"]), had=bool(message["had"]))

    def _serve_metrics(self) -> None:
        """A command that works is not ended because the port is taken now."""
        try:
            self._operators.serve_metrics()
        except UsageError as error:
            if not self._command.pid:
                raise
            messages.say(str(error))

    def _client_saved(self, member: Member, entry: dict[str, Any]) -> None:
        self._meta.ended.add(entry)
        self._meta.write_soon()
        if not entry["goodbye"] and not self._command.stop_reason and not self._command.signalled:
            self._report_lost_client(member)

    def _report_lost_client(self, member: Member) -> None:
        status = self._command.ended.get(member.channel.client_pid)
        if status is not None and os.WIFEXITED(status):
            return  # it chose to end, by os._exit or after its server's death
        how = messages.status_text(status) if status is not None else "ended without a goodbye"
        messages.say(
            f"the {member.who} {how}; its server [pid {member.server_pid}] has ended and its "
            f"trace is saved in [{self._options.log_dir}]"
        )


def main(arguments: Sequence[str]) -> int:
    """Entry of the agent process; the supervisor passes everything on the command line."""
    process_tree.set_name("pyft-agent")
    log.set_up(config.get_str("PYFT_LOG"))
    options, supervisor_fd = JobOptions.from_arguments(arguments)
    asked_faults.begin(options.log_dir, options.job, os.environ)
    supervisor = socket.socket(fileno=supervisor_fd)
    supervisor.set_inheritable(False)
    code = Agent(options, SupervisorLink(supervisor)).run()
    messages.flush_and_exit(code)
