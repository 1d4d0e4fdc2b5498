"""Starts, watches and replaces the servers of a job, as pyft.recovery.plan decides."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from pyft import config
from pyft.agent import messages, nvml, page, ranks, standby
from pyft.agent.comparison import Comparison
from pyft.agent.incidents import Incidents
from pyft.agent.keeper_link import KeeperLink
from pyft.agent.member import Member
from pyft.agent.options import (
    JOB_TOKEN,
    MAX_DEVICES,
    JobOptions,
    job_token,
    replays_all,
    server_environment,
)
from pyft.agent.pauses import Pauses
from pyft.agent.peers import Peers
from pyft.agent.protocol import ChannelStatus
from pyft.agent.room import Room
from pyft.agent.server import LastWords, Server
from pyft.agent.spilling import Spilling
from pyft.agent.standby import Standby
from pyft.agent.watch import Watch
from pyft.errors import AttachError
from pyft.recovery import classify, events, facts, inject, report
from pyft.recovery.classify import Blame
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan, State
from pyft.recovery.requests import Request, Requests, Seen

# How long a Timer runs, by its first word (docs/deadlines.md).
TIMERS_S = {"fence": 10.0, "repair": 30.0}
STANDBY_AFTER_S = 1.0  # servers that stand by are started so long after one has begun to work


class Loop(Protocol):
    """What the agent's event loop offers."""

    def watch(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` can be read."""

    def forget(self, source: Any) -> None:
        """Stop that; unknown sources are no error."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, later."""


class Servers:
    """All servers of a job. Single-threaded: callbacks run from the agent's loop."""

    def __init__(
        self, options: JobOptions, loop: Loop, keeper: KeeperLink, changed: Callable[[], None]
    ) -> None:
        self._options = options
        self._keeper = keeper
        self._loop = loop
        self._changed = changed  # meta.json is out of date
        self.members: dict[int, Member] = {}
        self.next_id = 0
        self.gpus = Gpus(options.devices, options.spares)
        protect = options.protect != "none"
        waits = options.on_no_spare == "wait"
        self.plan = Plan(self.gpus, protect, waits, protect and replays_all(options))
        self.incidents = Incidents(lambda note: keeper.keep("faults", note))
        self.pauses = Pauses(keeper.keep)
        jit = options.protect == "jit"
        self.comparison = Comparison(self.members, self.event, keeper.keep, jit)
        self.spilling = Spilling(self.members, self.comparison.sharing, loop.after)
        self.comparison.before_end = self.spilling.before
        self.peers = Peers(self.members, self.comparison.replicas_of, self._works)
        self.seed = secrets.randbits(64) | 1  # of all digests: ranks compare them
        self.job_token = job_token(os.environ)
        self.requests = Requests()
        self.missed: list[dict[str, str]] = []  # of the requests, at the job's end
        self._program = options.native_dir / "pyft-server"
        self.standby = Standby(keeper, self._program)
        self.room = Room(self.standby, options.real_gpus, loop)
        self.watch = Watch(self)
        real = options.backend != "soft"
        held = () if self.plan.rollback else (events.Message.HELD, events.Message.WITHDRAW)
        self._of_captures = {events.Message.CAPTURED, *held}
        self._nvml = nvml.load(options.real_gpus) if real else None
        self._ending = False

    def begin(self) -> None:
        """Begin a job: let the faults come that were asked for."""
        for text in self._options.inject:
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
        for action in self._decide(event):
            if isinstance(action, events.Refuse):
                del self.members[member.id]
                raise AttachError(action.text, 19)
            try:
                self._start(action)
            except OSError as error:
                del self.members[member.id]
                self._decide(events.ClientGone(member.id))
                code = error.errno or 5
                raise AttachError(f"the server cannot be started: {error}", code) from None
        if not self.plan.rollback:
            self.comparison.joined(member)
        self._follow_modules()
        if len(self.members) == 1:
            self.work(member)

    def number(self) -> None:
        """Find out which ranks the clients are, as far as that can be known."""
        present = [m for m in self.members.values() if not m.client_gone and not m.saved]
        claims = [member.claim() for member in present]
        found = ranks.numbers(claims, self._options.devices)
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
                self._changed()

    def work(self, first: Member) -> None:
        """Watch the servers from now on, and have others stand by soon."""
        self.watch.begin(self._loop)
        self._loop.after(STANDBY_AFTER_S, lambda: self._fill_standby(first))

    def _fill_standby(self, member: Member) -> None:
        """Not while a client or a recovery waits for the processor."""
        if self._ending:
            return
        channel = member.channel
        environment = self._environment(member, self.gpus.behind[channel.device])
        for name in inject.ONCE:
            environment.pop(name, None)
        names = list(dict.fromkeys(self._options.real_gpus))

        def variables(gpu: int) -> dict[str, str]:
            if gpu == standby.ANY:
                return {}
            return {"PYFT_STANDBY": str(names.index(self._options.real_gpus[gpu]))}

        self.standby.fill(environment, self._standby_gpus(), variables)
        self._follow_modules()

    def _follow_modules(self) -> None:
        if config.get_str("PYFT_STANDBY_MODULES") == "0":
            return
        alive = [m for m in self.members.values() if m.server and not m.client_gone]
        gpus = {m.id: m.server.gpu for m in alive if m.server}
        self.standby.follow({m.id: m.channel for m in alive}, gpus)

    def reaped(self, pid: int) -> None:
        """Forget a process that has ended, if it stood by."""
        self.room.gone(pid)
        self.standby.reaped(pid)

    def _standby_gpus(self) -> list[int]:
        """Return for which GPUs servers should stand by."""
        options = self._options
        if not self.plan.protect or options.standby == "none":
            return []
        in_use = {m.server.gpu for m in self.members.values() if m.server and m.server_alive}
        both = options.standby == "all"
        if not options.real_gpus:  # they differ in nothing
            return [standby.ANY] * (options.spares + (len(in_use) if both else 0))
        return self.gpus.free(in_use) + (sorted(in_use) if both else [])

    def client_gone(self, member: Member) -> None:
        """Nobody needs the server of this member any more: its death will be no fault."""
        self.incidents.client_gone(member.id)
        self.comparison.gone(member)
        self.peers.ended(member.id)
        self._follow_modules()
        self.perform(self._decide(events.ClientGone(member.id)))
        if not member.server_alive:
            self.event(events.Left(member.id))

    def end_server(self, member: Member) -> None:
        """Ask a server to end."""
        if member.server and not member.server.asked_to_end:
            self._loop.forget(member.server.socket)
            member.ask_server_to_end()

    def end(self) -> None:
        """The job ends: whatever dies from now on is no fault."""
        self._ending = True
        self.standby.end()
        for member in self.members.values():
            if not member.client_gone:
                self._decide(events.ClientGone(member.id))
            self.incidents.client_gone(member.id)

    def pids(self) -> set[int]:
        """Return the servers' processes."""
        return {m.server_pid for m in self.members.values() if m.server_alive} | self.standby.pids

    def exited(self, member: Member) -> None:
        """Take note of a death that wait() has confirmed."""
        server = member.server
        assert server is not None
        assert server.status is not None
        while self.read(member, server):  # what it said before it died
            pass
        self._loop.forget(server.socket)
        rank = self.plan.ranks.get(member.id)
        if self._ending or rank is None:
            return
        if member.client_gone or member.said_goodbye():
            self.event(events.Left(member.id))
            return
        fault = self._fault_of(member, server)
        self.incidents.died(member, rank, fault)
        self.comparison.restarted(member)
        self.spilling.restarted(member.id)
        self.perform(self._decide(events.Exited(member.id, server.epoch, fault)))

    def _fault_of(self, member: Member, server: Server) -> classify.Fault:
        """Go by what the server has said. What the page says of it, the client can have written."""
        last = page.read(member.channel.control_fd)
        words = server.words or LastWords(0, 0, 0, "")
        fault = classify.of_exit(
            server.status or 0,
            words.kind,
            words.code,
            words.text,
            words.seq or last.dispatching_seq,
            last.captured_cut,
        )
        fault = classify.worse(fault, self._nvml.look(server.gpu) if self._nvml else None)
        rank = self.plan.ranks.get(member.id)
        replays = rank is not None and rank.state is State.RECOVERING
        if replays and last.shared & page.Shared.IMPORTS and fault.row.blame is Blame.PROGRAM:
            return classify.of_shared_memory(fault)
        return fault

    def ask_nvml(self) -> None:
        """End the servers on GPUs about which the driver has reported something."""
        for gpu, fault in self._nvml.xids() if self._nvml else []:
            for member in self.members.values():
                if member.server and member.server_alive and member.server.gpu == gpu:
                    self.event(events.Suspected(member.id, member.server.epoch, fault))

    def event(self, event: events.Event) -> list[str]:
        """Take an order or a suspicion; return why an order is refused."""
        actions = self._decide(event)
        self.perform(actions)
        return [action.text for action in actions if isinstance(action, events.Refuse)]

    def _decide(self, event: events.Event) -> list[events.Action]:
        """Ask the plan. What it has decided is kept before anything of it is done."""
        actions = self.plan.handle(event)
        self.keep()
        self.pauses.follow(self.plan.ranks.values(), self.control_fds)
        return actions

    def control_fds(self) -> list[int]:
        """Return the control pages of the clients that live."""
        return [m.channel.control_fd for m in self.members.values() if not m.client_gone]

    def keep(self) -> None:
        """Keep for the next agent what cannot be seen."""
        servers = {id: m.server_note() for id, m in self.members.items() if not m.saved}
        plan = facts.of_plan(self.plan)
        requests = self.requests.note()
        note = {"next_id": self.next_id, "plan": plan, "servers": servers, "requests": requests}
        note["job_token"] = self.job_token
        self._keeper.keep("servers", note)

    # ---- actions ------------------------------------------------------------------------------

    def perform(self, actions: list[events.Action]) -> None:
        """Do what has been decided."""
        for action in actions:
            if isinstance(action, events.Timer):
                due = events.Due(action.what)
                self._loop.after(TIMERS_S[str(action.what[0])], lambda due=due: self.event(due))
            elif not isinstance(action, events.Refuse):
                member = self.members[action.id]
                if isinstance(action, events.Start):
                    self._replace(member, action)
                elif isinstance(action, events.Kill):
                    rank = self.plan.ranks[action.id]
                    self.incidents.suspected(member, rank)
                    member.kill_server()
                elif isinstance(action, events.Send):
                    self._send(member, action)
                elif isinstance(action, events.Wait):
                    member.channel.set_status(ChannelStatus.RECOVERING, action.text)
                    if self.plan.ranks[action.id].state is State.WAITING:
                        messages.say(action.text)  # somebody has to do something
                elif isinstance(action, events.GiveUp):
                    self._give_up(member, action.text)
                elif isinstance(action, events.Live):
                    self.incidents.live(member)
                    self._loop.after(STANDBY_AFTER_S, lambda m=member: self._fill_standby(m))
                    self._say_recovered(member)
                    self._changed()

    def _start(self, action: events.Start) -> None:
        member = self.members[action.id]
        channel = member.channel
        channel.epoch = action.epoch
        member.servers += 1
        if member.servers == 1:
            page.write(channel.control_fd, epoch=action.epoch)
        else:
            page.prepare_for_next_server(channel.control_fd, action.epoch, action.mode)
        environment = self._environment(member, action.gpu)
        if member.servers > 1:
            for name in inject.ONCE:
                environment.pop(name, None)
            if self._options.real_gpus:
                environment["PYFT_SELF_TEST"] = "1"
        environment |= inject.lost_gpus(channel.device, action.gpu, self.gpus.lost)
        if cut := self.comparison.arbitrates(member):
            environment["PYFT_ARBITRATE"] = str(cut)
        sets = self.plan.rollback or self.comparison.sharing
        if line := sets.entry(member.id):
            environment["PYFT_LINE"] = str(line)
        environment |= self._asked_of(member, action.epoch)
        where = (action.epoch, action.gpu)
        if server := self.standby.take(environment, *where):
            self.room.taken(server)
        else:
            server = Server.spawn(self._keeper, self._program, environment, *where)
        before, member.server = member.server, server
        self.keep()  # who has memory of the job is known to every later agent
        if before:
            self._keeper.forget(before.pid)
        self.listen(member, server)
        server.introduce(channel)

    def _environment(self, member: Member, gpu: int) -> dict[str, str]:
        known, device = max(self.gpus.known) + 1, member.channel.device
        environment = server_environment(self._options, member.environment, device, gpu, known)
        return environment | {JOB_TOKEN: self.job_token}

    def _asked_of(self, member: Member, epoch: int) -> dict[str, str]:
        """Return what a new server is told about a fault whose place it finds itself."""
        self.count(member)
        if not member.is_main():
            return {}
        rank = ranks.number_in(member.environment, "RANK")  # or the server is told later
        places = []
        for request in self.requests.of_server(rank, member.servers):
            request.told.append((member.id, epoch))
            page.clear_fault_note(member.channel.control_fd, request.number)
            who = f"rank:{request.injection.rank}," if rank is None else ""
            places.append(f"{who}{request.injection.place()},note:{request.number}")
        return {"PYFT_KILL_AT": ";".join(places)} if places else {}

    def count(self, member: Member) -> None:
        """Take what has become of the faults that were asked for, as far as a member shows it."""
        channel = member.channel
        if channel.control_fd < 0:
            return
        epochs = [incident.epoch_from for incident in self.incidents.of(member.id)]
        self.requests.look(member.id, page.read_fault_notes(channel.control_fd), epochs)
        if member.is_main():
            state = page.read(channel.control_fd)
            place = (state.kill_cuts, state.kill_entries, state.kill_step_entries)
            seen = Seen(channel.rank, member.servers, state.decided_cut, place)
            self.requests.saw(member.id, seen)

    def listen(self, member: Member, server: Server) -> None:
        """Take what a server says from now on."""
        self._loop.watch(server.socket, lambda: self.read(member, server))

    def _replace(self, member: Member, action: events.Start) -> None:
        rank = self.plan.ranks[action.id]
        together = len(self.plan.rollback.of(rank.id)) if self.plan.rollback else 1
        self.incidents.started(member, rank, together)
        try:
            self._start(action)
        except OSError as error:
            evidence = f"the server cannot be started: {error}"
            fault = classify.Fault(classify.row_of("exit", 70), evidence)
            self._loop.after(0.1, lambda: self._not_started(member, action.epoch, fault))
        self._changed()

    def _not_started(self, member: Member, epoch: int, fault: classify.Fault) -> None:
        self.incidents.died(member, self.plan.ranks[member.id], fault)
        self.event(events.Exited(member.id, epoch, fault))

    def _send(self, member: Member, action: events.Send) -> None:
        server = member.server
        if server and server.alive and server.epoch == action.epoch:
            server.send(action)  # who does not take it is dead, or late: both are noticed

    def _give_up(self, member: Member, why: str) -> None:
        member.given_up = why
        self.keep()
        self.comparison.gone(member)
        sentence = member.death_sentence()
        if self.plan.protect:
            sentence = f"{sentence}; it is not replaced: {why}"
        member.channel.set_status(ChannelStatus.SERVER_DEAD, sentence)
        self.incidents.given_up(member, why)
        messages.say(sentence)

    def _say_recovered(self, member: Member) -> None:
        done = self.incidents.last(member.id)
        if done and done.mode == "deliver":
            messages.say(
                f"rank [{done.rank}] gets the error itself: fault [{done.fault}] has come at the "
                f"same place each time, also on its own ({done.evidence})"
            )
        elif done:
            total, notice, repair = self.incidents.stood_still(member.id)
            messages.say(
                f"rank [{done.rank}] goes on after [{report.span(total)}] on GPU [{done.gpu_to}]: "
                f"[{report.span(notice)}] to notice, [{report.span(repair)}] to repair "
                f"(fault [{done.fault}], epoch [{done.epoch_to}], "
                f"[{done.replayed_entries}] entries replayed, {report.in_words(done)})"
            )
            if page.read(member.channel.control_fd).shared & page.Shared.EXPORTS:
                messages.say(
                    f"rank [{done.rank}] had shared memory with other processes (CUDA IPC): those "
                    "that have opened it keep what was in it, and share it no longer"
                )

    def _works(self, id: int) -> bool:
        rank, member = self.plan.ranks.get(id), self.members.get(id)
        running = rank is not None and rank.state is State.RUNNING
        return running and member is not None and not member.client_gone

    # ---- messages of servers ------------------------------------------------------------------

    def read(self, member: Member, server: Server) -> bool:
        """Take one message; say whether there may be another one."""
        try:
            event = server.receive(member.id)
        except (OSError, ConnectionError):
            self._loop.forget(server.socket)  # its end is reported by wait()
            return False
        except ValueError as error:
            messages.say(f"{error}, from the server [pid {server.pid}] of {member.who}")
            server.taken()
            return True
        if event is None:
            return False
        if event.kind is events.Message.WANT_STORE:
            self.spilling.wanted(member.id, server, event.key, event.rank)
        elif event.kind is events.Message.WANT_PEER:
            self.peers.wanted(member.id, server, event.key)
        elif event.kind is events.Message.SPILLED:
            self.spilling.spilled(event)
        elif event.kind is events.Message.SHORT:
            self.room.wanted(server, event.key)
        elif event.kind is events.Message.GIVEN_UP:
            self.room.given_up(server)
        elif event.kind is events.Message.FAULT:
            server.words = LastWords.of(event)
            self.keep()
        elif event.kind in self._of_captures:
            if server is member.server:  # what one before it had is not in the store any more
                self.comparison.received(member, event)
        else:
            self.perform(self._decide(event))
        server.taken()
        return True

    # ---- orders of operators ------------------------------------------------------------------

    def inject(self, injection: inject.Injection) -> str:
        """Let a fault happen, now or at its place; return why that is impossible."""
        alive = [m for m in self.members.values() if m.server_alive and not m.client_gone]
        mine = [m for m in alive if m.channel.rank == injection.rank and m.is_main()]
        if not mine:
            return f"rank [{injection.rank}] has no server"
        for member in self.members.values():
            self.count(member)  # numbers of what has happened are free again
        injection = replace(injection, server=mine[0].servers)
        request = self.requests.add(injection, by_agent=True)
        if injection.has_place:
            self.keep()
            return ""
        problem = self.inject_now(request, mine[0])
        if problem:
            self.requests.drop(request)
        return problem

    def inject_now(self, request: Request, member: Member) -> str:
        """Let a fault happen; return why that is impossible."""
        assert member.server is not None
        injection = request.injection
        request.told.append((member.id, member.server.epoch))
        page.clear_fault_note(member.channel.control_fd, request.number)
        self.keep()  # it happens once, whoever dies
        messages.say(f"injects fault [{injection}]")
        if injection.kind not in ("slow", "bitflip"):
            self.incidents.injected(member)
        if injection.kind == "server-kill":
            member.kill_server()
            return ""
        if injection.kind == "comm-drop":
            fault = classify.of_agent("communicator", "asked for: its connections count as broken")
            self.event(events.Suspected(member.id, member.server.epoch, fault))
            return ""
        words = injection.words(member.channel.device, request.number).encode()
        epoch = member.server.epoch
        order = events.Send(member.id, epoch, events.Message.INJECT, payload=words)
        return "" if member.server.send(order) else f"rank [{injection.rank}] does not listen"

    def cannot_add(self, gpu: int) -> str:
        """Return why a GPU cannot become a spare."""
        installed = len(self._options.real_gpus) or MAX_DEVICES
        if not 0 <= gpu < installed:
            return f"GPU [{gpu}] does not exist: the job can have [{installed}]"
        return f"GPU [{gpu}] is in use already" if self.gpus.usable(gpu) else ""

    def report(self) -> dict[str, Any]:
        """Return the faults so far."""
        more = {"corruptions": self.comparison.found, "not_injected": self.missed}
        return self.incidents.summary() | more

    def heartbeat_timeout(self, member: Member) -> float:
        """Return after how many seconds of silence a server counts as dead."""
        with contextlib.suppress(Exception):
            return float(config.get("PYFT_HEARTBEAT_TIMEOUT_S", member.environment))
        return 30.0

    def hang_timeout(self) -> float:
        """Return after how many seconds a started entry counts as stuck."""
        return float(config.get("PYFT_HANG_S", os.environ))
