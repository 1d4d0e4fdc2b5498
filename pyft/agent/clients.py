"""The clients of a job: from attach until their traces are saved."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyft._native import linux
from pyft.agent.channel.protocol import AttachRequest, pack_refusal
from pyft.agent.job.options import JobOptions
from pyft.agent.lifecycle.servers import DRAIN_S, SERVER_END_S, Servers
from pyft.agent.members.member import Member
from pyft.agent.process import descriptors, messages
from pyft.agent.process.loop import Loop
from pyft.agent.supervisor.link import SupervisorLink
from pyft.errors import AttachError, PyftError
from pyft.wire.layout import ATTACH_REQUEST, MAX_ENVIRONMENT_BYTES, ChannelStatus

REQUEST_S = 10.0  # from a connection to its attach request
LARGEST_REQUEST = ATTACH_REQUEST.size + MAX_ENVIRONMENT_BYTES


class Clients:
    """All clients of a job. `saved` is called with the meta.json entry of each that has ended.

    `look` is called with one that has ended while its memory is still there.
    """

    def __init__(
        self,
        options: JobOptions,
        loop: Loop,
        supervisor: SupervisorLink,
        servers: Servers,
        launcher: socket.socket,
        changed: Callable[[], None],
        saved: Callable[[Member, dict[str, Any]], None],
        lost: Callable[[Member], bool] = lambda member: False,
        look: Callable[[Member], None] = lambda member: None,
    ) -> None:
        self._options = options
        self._loop = loop
        self._supervisor = supervisor
        self._servers = servers
        self._launcher = launcher
        self._changed = changed
        self._saved = saved
        self._lost = lost  # says whether the job goes back to an image because of it
        self._look = look
        self._silent: set[str] = set()  # connections that have not asked for a server yet

    def accept(self, name: str, connection: socket.socket) -> None:
        """Answer a new client, whose connection the supervisor holds under this name."""
        pid, uid = linux.peer_of(connection)
        if uid != os.geteuid():  # the supervisor has looked already
            self._close(name, connection)
            return

        def late() -> None:
            if name in self._silent:
                messages.say(f"[pid {pid}] connects and asks for nothing within [{REQUEST_S:g} s]")
                self._close(name, connection)

        self._silent.add(name)
        self._loop.watch(connection, lambda: self._attach(name, connection, pid))
        self._loop.after(REQUEST_S, late)

    def adopt(self, members: list[Member]) -> None:
        """Go on with the clients of the agent before."""
        for member in members:
            if not member.channel.header()["appended"]:
                member.answer()  # perhaps it has not got its answer; a second one is not read
            self._tell_launcher(member)
            self._watch(member)
            if member.is_gone():
                self._ended(member)

    def save_finished(self) -> None:
        """Save the traces of clients that are gone, and whose servers are."""
        for member in list(self._servers.members.values()):
            if member.client_gone and member.client_dead and not member.server_alive:
                self.save(member)

    def save(self, member: Member) -> None:
        """Save the trace of a client, and forget it."""
        if member.saved:
            return
        self._loop.forget(member.connection)
        self._loop.forget(member.pidfd)
        self._servers.incidents.recount(member)
        self._servers.injector.count(member)
        self._look(member)
        self._saved(member, member.save(self._options.log_dir))
        self._servers.forget(member.id)
        self._servers.keep()
        self._supervisor.drop(f"client-{member.id}")
        self._supervisor.forget(member.server_pid)
        messages.send(self._launcher, "saved", name=member.channel.name)

    # ---- attach -------------------------------------------------------------------------------

    def _attach(self, name: str, connection: socket.socket, peer_pid: int) -> None:
        """The request stays in the socket until it is answered: the next agent would find it."""
        message = b""
        try:
            flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
            message = connection.recv(LARGEST_REQUEST + 1, flags)
        except BlockingIOError:  # there is nothing to read after all
            return
        except OSError:  # it has gone
            pass
        self._loop.forget(connection)
        self._silent.discard(name)
        if not message:
            self._close(name, connection)
            return
        try:
            member = self._make_member(message, connection, peer_pid)
        except (PyftError, OSError) as error:  # also a native file, a variable, a descriptor
            is_ours = isinstance(error, PyftError)
            text = str(error) if is_ours else f"a client has no channel: {error.strerror}"
            messages.say(f"{text}, asked for by [pid {peer_pid}]")
            with contextlib.suppress(OSError):
                connection.send(pack_refusal(getattr(error, "errno", 0) or errno.EINVAL, text))
                connection.recv(1)  # or the peer would get a reset instead of the answer
            self._close(name, connection)
            return
        self._supervisor.keep(f"client-{member.id}", member.note(), member.fds(), name)
        member.answer()
        connection.recv(1)
        self._watch(member)
        self._tell_launcher(member)
        self._changed()

    def _make_member(self, message: bytes, connection: socket.socket, peer_pid: int) -> Member:
        request = AttachRequest.parse(message)
        if request.pid != peer_pid:
            raise AttachError(f"[pid {peer_pid}] claims to be [pid {request.pid}]", 1)
        if why := descriptors.why_too_few(len(self._servers.members)):
            raise AttachError(why, errno.EMFILE)
        pidfd = _pidfd(peer_pid)
        try:
            id, process = self._servers.next_id, self._process_of(request)
            member = Member.create(id, request, connection, self._options, pidfd, process)
            try:
                self._servers.attach(member)
            except BaseException:
                member.channel.close()
                raise
        except BaseException:
            os.close(pidfd)
            raise
        return member

    def _process_of(self, request: AttachRequest) -> int:
        """Return which process of its pid it is: each exec makes a new one, and pids come again."""
        same = [m for m in self._servers.members.values() if m.channel.client_pid == request.pid]
        present = [m for m in same if not m.client_gone and not m.is_gone()]
        if present and request.device not in (m.channel.device for m in present):
            return present[0].channel.process
        before = [m.channel.process for m in same]
        for path in self._options.log_dir.glob(f"rank*-pid{request.pid}-dev*.ring"):
            again = path.stem.partition("-dev")[2].partition("-")[2]
            before.append(int(again) if again.isdecimal() else 1)
        return max(before, default=0) + 1

    def _close(self, name: str, connection: socket.socket) -> None:
        self._silent.discard(name)
        self._loop.forget(connection)
        self._supervisor.drop(name)
        connection.close()

    # ---- while it lives, and its end ----------------------------------------------------------

    def _watch(self, member: Member) -> None:
        """A forked child may hold the connection open after the client's death: look at both."""

        def died() -> None:
            self._loop.forget(member.pidfd)
            member.client_dead = True
            self._ended(member)

        self._loop.watch(member.connection, lambda: self._spoke(member))
        self._loop.watch(member.pidfd, died)

    def _tell_launcher(self, member: Member) -> None:
        fds = (member.channel.log_fd,)
        where = asdict(member.channel.areas)
        messages.send(self._launcher, "channel", fds=fds, name=member.channel.name, areas=where)

    def _spoke(self, member: Member) -> None:
        try:
            alive = bool(member.connection.recv(4096))
        except OSError:
            alive = False
        if alive:
            self._servers.number()  # it has a place among the ranks
        else:
            self._ended(member)

    def _ended(self, member: Member) -> None:
        self._loop.forget(member.connection)
        if member.client_gone or self._lost(member):
            return
        member.client_gone = True
        if not member.client_dead:
            # The end of the process tells how it ended; but it may live on without a channel.
            self._loop.after(SERVER_END_S, member.stop_waiting)
        self._servers.client_gone(member)
        if member.server_alive:
            if member.said_goodbye():
                self._loop.after(DRAIN_S, member.kill_server)
            else:
                member.channel.set_status(ChannelStatus.CLIENT_GONE, "the client is gone")
                self._servers.end_server(member)
                self._loop.after(SERVER_END_S, member.kill_server)


def _pidfd(pid: int) -> int:
    """Return what tells of a process's end; raise OSError if it has ended already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:  # some containers have no such call
        why = f"[pidfd_open] of [pid {pid}] fails with [{error.strerror}]: use a kernel that has it"
        raise AttachError(why, error.errno or 0) from None
