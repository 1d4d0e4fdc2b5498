"""Starts, watches and replaces the servers of a job, as pyft.recovery.plan decides."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from pyft import config
from pyft.agent.channel import page
from pyft.agent.job.environment import job_token
from pyft.agent.job.options import MAX_DEVICES, JobOptions, replays_all
from pyft.agent.lifecycle import protected
from pyft.agent.lifecycle.audits import Audits
from pyft.agent.lifecycle.deaths import Deaths
from pyft.agent.lifecycle.decisions import Decisions
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.lifecycle.injector import Injector
from pyft.agent.lifecycle.pauses import Pauses
from pyft.agent.lifecycle.protected import Protected
from pyft.agent.lifecycle.reserve import STANDBY_AFTER_S, Reserve
from pyft.agent.lifecycle.router import Router
from pyft.agent.lifecycle.starts import Starts
from pyft.agent.lifecycle.watch import Watch
from pyft.agent.members import ranks
from pyft.agent.members.member import Member
from pyft.agent.members.server import Server
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop
from pyft.agent.replicas.comparison import Comparison
from pyft.agent.replicas.peers import Peers
from pyft.agent.replicas.sharing import Sharing
from pyft.agent.replicas.spilling import Spilling
from pyft.agent.standby.room import Room
from pyft.agent.standby.standby import Standby
from pyft.agent.supervisor.link import SupervisorLink
from pyft.errors import AttachError
from pyft.hosts.place.elsewhere import Elsewhere
from pyft.recovery import events, inject
from pyft.recovery.classify import Fault
from pyft.recovery.gpus import Gpus, Strikes
from pyft.recovery.plan import Plan
from pyft.recovery.rank import State
from pyft.recovery.requests import Requests

DRAIN_S = 5.0  # a server finishes what a client that said goodbye has left it
SERVER_END_S = 1.0  # a server whose socket is closed
POLL_S = 0.01  # when the job ends


class Servers:
    """All servers of a job. Single-threaded: callbacks run from the agent's loop."""

    def __init__(
        self,
        options: JobOptions,
        loop: Loop,
        supervisor: SupervisorLink,
        changed: Callable[[], None],
    ) -> None:
        self.options = options
        self.supervisor = supervisor
        self.loop = loop
        self.changed = changed  # meta.json is out of date
        self.members: dict[int, Member] = {}
        self.next_id = 0
        self.gpus = Gpus(options.devices, options.spares, _strikes())
        protect = options.protect != "none"
        waits = options.on_no_spare == "wait"
        together = protect and replays_all(options)
        self.plan = Plan(self.gpus, protect, waits, together, options.dmr == "audit")
        self.starts = Starts(self)
        self.audits = Audits(self)
        self.decisions = Decisions(self)
        self.event, self.keep = self.decisions.event, self.decisions.keep
        self.incidents = Incidents(lambda note: supervisor.keep("faults", note))
        self.pauses = Pauses(supervisor.keep)
        self.protected = Protected(supervisor.keep)
        sharing = Sharing(
            self.members,
            lambda note, fds: supervisor.keep("shares", note, fds),
            options.protect == "jit",
        )
        self.spilling = Spilling(self.members, sharing, loop.after)
        self.comparison = Comparison(
            self.members, self.event, supervisor.keep, sharing, self.spilling
        )
        self.plan.starting.snapshots = self.comparison
        self.peers = Peers(self.members, self.comparison.replicas_of, self.works)
        self.seed = secrets.randbits(64) | 1  # of all digests: ranks compare them
        self.job_token = job_token(os.environ)
        self.requests = Requests()
        self.missed: list[dict[str, str]] = []  # of the requests, at the job's end
        # With several hosts: says whether the head has to be asked what is done about a death.
        self.asks_head: Callable[[Member, int, Fault], bool] = lambda member, epoch, fault: False
        self.elsewhere: Elsewhere | None = None  # what the head is told of these servers
        self.program = options.native_dir / "pyft-server"
        self.standby = Standby(supervisor, self.program)
        self.room = Room(self.standby, options.real_gpus, loop)
        self.watch = Watch(self)
        self.reserve = Reserve(self)
        self.injector = Injector(self)
        self.router = Router(self)
        self.deaths = Deaths(self)
        self.ending = False
        self._works = False

    def begin(self) -> None:
        """Begin a job: let the faults come that were asked for."""
        for text in self.options.inject:
            injection = inject.parse(text)
            self.requests.add(injection, by_agent=not injection.by_server)

    # ---- members ------------------------------------------------------------------------------

    def attach(self, member: Member) -> None:
        """Start the first server of a client; raise AttachError when that is impossible."""
        self.members[member.id] = member
        self.next_id = member.id + 1
        channel = member.channel
        self.pauses.tell(channel.control_fd)
        if channel.store_fd >= 0:
            page.write_store(channel.store_fd, seed=self.seed)
            if self.plan.rollback:
                page.write_store(channel.store_fd, compares=page.TOGETHER)
        self.number()
        event = events.Attached(member.id, channel.rank, channel.device)
        for action in self.decisions.decide(event):
            if isinstance(action, events.Refuse):
                del self.members[member.id]
                raise AttachError(action.text, 19)
            try:
                self.starts.start(member, action)
            except OSError as error:
                self.decisions.decide(events.ClientGone(member.id))
                self.forget(member.id)
                code = error.errno or 5
                raise AttachError(f"the server cannot be started: {error}", code) from None
        if not self.plan.rollback:
            self.comparison.joined(member)
        self.reserve.follow_modules()
        if not self._works:
            self.work(member)

    def number(self) -> None:
        """Find out which ranks the clients are, as far as that can be known."""
        present = [m for m in self.members.values() if not m.client_gone and not m.saved]
        claims = [member.claim() for member in present]
        found, places = ranks.numbers(claims, self.options.devices), ranks.places(claims)
        if (world := ranks.how_many(claims)) and (said := self.requests.without_rank(world)):
            self.keep()
            for sentence in said:
                messages.say(sentence)
        held = {member.id: places.get(member.id, (0, 0)) for member in present}
        if any(member.held != held[member.id] for member in present):
            for member in present:
                member.held = held[member.id]
            self.keep()
        for member, claim in zip(present, claims, strict=True):
            rank = found[member.id]
            member.leads = ranks.leads(claim, claims)
            if claim.rank is None and not claim.place[1]:
                member.guessed = rank
            page.write(member.channel.control_fd, rank=rank)
            if rank == member.channel.rank:
                continue
            member.channel.rank = rank
            if known := self.plan.ranks.get(member.id):
                known.rank = rank
                self.incidents.renamed(member.id, rank)
                self.keep()
                self.changed()

    def work(self, first: Member) -> None:
        """Watch the servers from now on, and have others stand by soon."""
        self._works = True
        self.watch.begin(self.loop)
        if self.plan.protect:
            self.protected.begin(self.loop, self._bare_ranks)
        self.loop.after(STANDBY_AFTER_S, lambda: self.reserve.fill(first))

    def client_gone(self, member: Member) -> None:
        """Nothing needs the server of this member any more: its death will be no fault."""
        self.incidents.client_gone(member.id)
        self.comparison.gone(member)
        self.peers.ended(member.id)
        self.reserve.follow_modules()
        self.event(events.ClientGone(member.id))
        if not member.server_alive:
            self.event(events.Left(member.id))

    def forget(self, id: int) -> None:
        """Do without a member whose trace is saved: a job may have thousands, one after the other.

        Its place in meta.json and its faults stay.
        """
        self.members.pop(id, None)
        self.plan.tidy(self.members)
        self.watch.forget(id)
        self.protected.forget(id)
        if self.elsewhere:
            self.elsewhere.tidy(self.plan.ranks)

    def reaped(self, pid: int) -> None:
        """Forget a process that has ended, if it stood by."""
        if self.audits.reaped(pid):
            return
        self.room.gone(pid)
        self.standby.reaped(pid)

    def end_server(self, member: Member) -> None:
        """Ask a server to end."""
        if member.server and not member.server.asked_to_end:
            self.loop.forget(member.server.socket)
            member.ask_server_to_end()

    def end(self) -> None:
        """The job ends: whatever dies from now on is no fault."""
        self.ending = True
        self.audits.end()
        self.standby.end()
        for member in self.members.values():
            if not member.client_gone:
                self.decisions.decide(events.ClientGone(member.id))
            self.incidents.client_gone(member.id)

    def end_all(self, drain_s: float, look: Callable[[], None]) -> None:
        """End every server: those first that have no work left. `look` hears of what has ended."""

        def alive() -> list[Member]:
            look()
            return [m for m in self.members.values() if m.server_alive and not m.saved]

        def wait(seconds: float, any_left: Callable[[], bool]) -> None:
            deadline = time.monotonic() + seconds
            while any_left() and time.monotonic() < deadline:
                time.sleep(POLL_S)

        wait(drain_s, lambda: any(member.said_goodbye() for member in alive()))
        for member in alive():
            self.end_server(member)
        wait(SERVER_END_S, lambda: bool(alive()))
        for member in alive():
            member.kill_server()
        wait(SERVER_END_S, lambda: bool(alive()))

    def pids(self) -> set[int]:
        """Return the servers' processes."""
        working = {m.server_pid for m in self.members.values() if m.server_alive}
        return working | self.standby.pids | self.audits.pids

    def works(self, id: int) -> bool:
        """Say whether a member's server works, and is not being replaced."""
        rank, member = self.plan.ranks.get(id), self.members.get(id)
        running = rank is not None and rank.state is State.RUNNING
        return running and member is not None and not member.client_gone

    def listen(self, member: Member, server: Server) -> None:
        """Take what a server says from now on."""
        self.loop.watch(server.socket, lambda: self.router.read(member, server))

    def control_fds(self) -> list[int]:
        """Return the control pages of the clients that live."""
        return [m.channel.control_fd for m in self.members.values() if not m.client_gone]

    # ---- for operators ------------------------------------------------------------------------

    def cannot_add(self, gpu: int) -> str:
        """Return why a GPU cannot become a spare."""
        installed = len(self.options.real_gpus) or MAX_DEVICES
        if not 0 <= gpu < installed:
            return f"GPU [{gpu}] does not exist: the job can have [{installed}]"
        return f"GPU [{gpu}] is in use already" if self.gpus.usable(gpu) else ""

    def spares_left(self) -> list[int]:
        """Return the GPUs that could take over a device now."""
        return self.gpus.free(self.plan.starting.in_use())

    def report(self) -> dict[str, Any]:
        """Return the faults so far."""
        share = round(self.protected.share(), 6) if self.plan.protect else 0.0
        found = {"corruptions": self.comparison.found}
        found["corruptions_earlier"] = self.comparison.earlier
        more = found | {"not_injected": self.missed}
        more["strikes"] = [
            {"gpu": gpu, "steps": steps, "left": gpu in self.gpus.lost}
            for gpu, steps in sorted(self.gpus.strikes.of.items())
        ]
        return self.incidents.summary() | more | {"protected_share": share}

    def _bare_ranks(self) -> dict[int, tuple[Member, str]]:
        """Return those that live, and what a fault of each would find missing, empty if nothing."""
        ranks = self.plan.ranks
        return {
            id: (member, protected.why_bare(member, ranks[id].state is State.GIVEN_UP))
            for id, member in self.members.items()
            if id in ranks and not member.saved and not member.client_gone
        }

    def heartbeat_timeout(self, member: Member) -> float:
        """Return after how many seconds of silence a server counts as dead; the client says it."""
        return float(config.get("PYFT_HEARTBEAT_TIMEOUT_S", member.environment))

    def hang_timeout(self) -> float:
        """Return after how many seconds a started entry counts as stuck."""
        return float(config.get("PYFT_HANG_S", os.environ))

    def collective_timeout(self) -> float:
        """Return after how many seconds ranks that wait for each other go back; 0: never.

        On several hosts no agent sees all of them.
        """
        return 0.0 if self.options.head else float(config.get("PYFT_COLLECTIVE_S", os.environ))


def _strikes() -> Strikes:
    most, within = (
        int(config.get(name, os.environ)) for name in ("PYFT_DMR_STRIKES", "PYFT_DMR_STRIKE_STEPS")
    )
    return Strikes(most, within)
