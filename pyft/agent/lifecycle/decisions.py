"""Asks pyft.recovery.plan about each event, keeps what it has decided, and does it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyft import log
from pyft.agent.channel import page
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.lifecycle.reserve import STANDBY_AFTER_S
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.recovery import events, facts, report
from pyft.recovery.rank import State
from pyft.wire.layout import ChannelStatus

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

# How long a Timer runs, by its first word (docs/deadlines.md).
TIMERS_S = {"fence": 10.0, "repair": 30.0}
LOG = log.logger("plan")


class Decisions:
    """One handler per kind of action. An order that is refused is answered where it came from."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._handlers: dict[type, Callable[[Member, Any], None]] = {
            events.Start: servers.starts.replace,
            events.Kill: self._kill,
            events.Send: self._send,
            events.Wait: self._wait,
            events.GiveUp: self._give_up,
            events.Live: self._live,
            events.Audit: servers.audits.wanted,
            events.Unaudited: servers.audits.too_late,
        }

    def event(self, event: events.Event) -> list[str]:
        """Take what has happened, or an order; return why an order is refused."""
        actions = self.decide(event)
        self.perform(actions)
        return [action.text for action in actions if isinstance(action, events.Refuse)]

    def decide(self, event: events.Event) -> list[events.Action]:
        """Ask the plan. What it has decided is kept before anything of it is done."""
        servers = self._servers
        actions = servers.plan.handle(event)
        _log("event", event, often=isinstance(event, events.Received))
        for action in actions:
            _log("action", action, often=isinstance(action, events.Send))
        if servers.elsewhere:
            servers.elsewhere.follow(servers.plan.ranks.values(), servers.plan.departures.left)
        self.keep()
        servers.pauses.follow(servers.plan.ranks.values(), servers.control_fds)
        return actions

    def keep(self) -> None:
        """Keep for the next agent what cannot be seen."""
        self._servers.supervisor.keep("servers", self.note())

    def note(self) -> dict[str, Any]:
        """Return that, in plain values."""
        servers = self._servers
        return {
            "next_id": servers.next_id,
            "plan": facts.of_plan(servers.plan),
            "servers": {id: m.server_note() for id, m in servers.members.items() if not m.saved},
            "requests": servers.requests.note(),
            "job_token": servers.job_token,
            "elsewhere": servers.elsewhere.note() if servers.elsewhere else None,
        }

    def perform(self, actions: Iterable[events.Action]) -> None:
        """Do what has been decided."""
        for action in actions:
            if isinstance(action, events.Timer):
                self._begin_timer(action)
            elif not isinstance(action, events.Refuse):
                member = self._servers.members.get(action.id)
                if member is not None:  # else it has ended
                    self._handlers[type(action)](member, action)

    def _begin_timer(self, action: events.Timer) -> None:
        due = events.Due(action.what)
        seconds = TIMERS_S[str(action.what[0])]

        def passed() -> None:
            if action.what[0] != "fence" or self._lives(int(action.what[1])):
                self.event(due)

        self._servers.loop.after(seconds, passed)

    def _lives(self, id: int) -> bool:
        """Say whether a server that was to be ended still lives; what follows may be the head's."""
        member = self._servers.members.get(id)
        return bool(member and member.server_alive)

    def _kill(self, member: Member, action: events.Kill) -> None:
        self._servers.incidents.suspected(member, self._servers.plan.ranks[action.id])
        member.kill_server()

    def _send(self, member: Member, action: events.Send) -> None:
        server = member.server
        if server and server.alive and server.epoch == action.epoch:
            server.send(
                action.message
            )  # one that does not take it is dead, or late: both are noticed

    def _wait(self, member: Member, action: events.Wait) -> None:
        member.channel.set_status(ChannelStatus.RECOVERING, action.text)
        if self._servers.plan.ranks[action.id].state is State.WAITING:
            messages.say(action.text)  # an operator has to do something
            self._servers.incidents.waits(member)
            self._servers.changed()

    def _give_up(self, member: Member, action: events.GiveUp) -> None:
        member.given_up = why = action.text
        self.keep()
        self._servers.comparison.gone(member)
        sentence = member.death_sentence()
        if self._servers.plan.protect:
            sentence = f"{sentence}; it is not replaced: {why}"
        member.channel.set_status(ChannelStatus.SERVER_DEAD, sentence)
        self._servers.incidents.given_up(member, why)
        messages.say(sentence)
        self._servers.changed()

    def _live(self, member: Member, action: events.Live) -> None:
        self._servers.incidents.live(member)
        self._servers.loop.after(STANDBY_AFTER_S, lambda: self._servers.reserve.fill(member))
        say_recovered(self._servers.incidents, member)
        self._say_strikes(member)
        self._servers.changed()

    def _say_strikes(self, member: Member) -> None:
        done = self._servers.incidents.last(member.id)
        if not done or done.fault != "mismatch":
            return
        gpus, gpu = self._servers.gpus, done.gpu_from
        times = len(gpus.strikes.of.get(gpu, []))
        end = "it is not used again" if gpu in gpus.lost else "it goes on"
        if gpu not in gpus.lost and times >= gpus.strikes.most:
            end = "no other is free: `pyft spare --gpu G` brings one"
            if not self._servers.plan.is_believed(member.id, gpu):
                end = f"it goes on: only the log of rank [{done.rank}] says that"
        messages.say(f"GPU [{gpu}] has computed wrongly [{times}] times; {end}")


def _log(what: str, message: events.Event | events.Action, often: bool) -> None:
    LOG.log(log.TRACE if often else logging.DEBUG, "%s %s", what, message)


def say_recovered(incidents: Incidents, member: Member) -> None:
    """Tell the user what became of the last fault of a member."""
    done = incidents.last(member.id)
    if done and done.mode == "deliver":
        messages.say(
            f"rank [{done.rank}] gets the error itself: fault [{done.fault}] has come at the "
            f"same place each time, also on its own ({done.evidence})"
        )
    elif done:
        total, notice, repair = incidents.stood_still(member.id)
        messages.say(
            f"rank [{done.rank}] goes on after [{report.span(total)}] on GPU [{done.gpu_to}]: "
            f"[{report.span(notice)}] to notice, [{report.span(repair)}] to repair "
            f"(fault [{done.fault}], [{done.replayed_entries}] entries replayed, "
            f"{report.in_words(done)})"
        )
        if page.read_one(member.channel.control_fd, "shared") & page.Shared.EXPORTS:
            messages.say(
                f"rank [{done.rank}] had shared memory with other processes (CUDA IPC): those "
                "that have opened it keep what was in it, and share it no longer"
            )
