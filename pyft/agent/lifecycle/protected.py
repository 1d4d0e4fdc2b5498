"""For how much of its time each rank was protected: a fault in the rest would have ended it.

It is looked at twice a second. Sums go to the next agent when something changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from pyft.agent.channel import page
from pyft.agent.lifecycle.log_room import LogRoom
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop
from pyft.trace import live

NOTE = "protected"
PERIOD_S = 0.5
ENOUGH = 0.99  # of the time; less is said
SOON_S = 60.0  # a shorter time counts as this one: the first second says nothing about a job
Ranks = dict[int, tuple[Member, str]]  # with what a fault would find missing, empty if nothing


@dataclass
class Times:
    """Of one rank, in seconds."""

    lived: float = 0.0
    bare: float = 0.0  # unprotected
    said: bool = False

    @property
    def share(self) -> float:
        """Return the protected part."""
        return 1 - self.bare / self.lived if self.lived else 1.0


class Protected:
    """`keep` keeps a note for the next agent; `say` tells the user."""

    def __init__(
        self,
        keep: Callable[[str, dict[str, Any]], None],
        say: Callable[[str], None] = messages.say,
    ) -> None:
        self._keep, self._say = keep, say
        self._times: dict[int, Times] = {}
        self._least = 1.0  # the share of those that have ended
        self._why: dict[int, str] = {}  # at the last look
        self._looked = 0.0
        self._room = LogRoom()

    def begin(self, loop: Loop, ranks: Callable[[], Ranks]) -> None:
        """Look from now on."""

        def again() -> None:
            self.look(ranks(), time.monotonic())
            loop.after(PERIOD_S, again)

        again()

    def look(self, ranks: Ranks, now: float) -> None:
        """Count the time since the last look as what it is now."""
        passed = now - self._looked if self._looked else 0.0
        self._looked = now
        changed = False
        for member, why in ranks.values():
            times = self._times.setdefault(member.id, Times())
            times.lived += passed
            self._room.look(member)
            if why:
                times.bare += passed
                changed |= self._warn(member, times, why)
            changed |= self._why.get(member.id, "") != why
            self._why[member.id] = why
        if changed:
            self._note()

    def _note(self) -> None:
        times = [[id, *astuple(times)] for id, times in self._times.items()]
        self._keep(NOTE, {"times": times, "least": self._least})

    def forget(self, id: int) -> None:
        """Do without a member that has ended; its share still counts."""
        self._why.pop(id, None)
        self._room.forget(id)
        if times := self._times.pop(id, None):
            self._least = min(self._least, times.share)
            self._note()

    def share(self) -> float:
        """Return that of the rank which was protected least."""
        return min([self._least, *(times.share for times in self._times.values())])

    def share_of(self, id: int) -> float:
        """Return that of one rank."""
        return self._times.get(id, Times()).share

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from what the agent before has kept."""
        self._times = {id: Times(*values) for id, *values in note["times"]}
        self._least = note["least"]

    def _warn(self, member: Member, times: Times, why: str) -> bool:
        """Say once what a fault would do; return whether that was now."""
        if times.said or times.bare <= (1 - ENOUGH) * max(times.lived, SOON_S):
            return False
        times.said = True
        gpu = member.server.gpu if member.server else member.channel.device
        self._say(
            f"rank [{member.channel.rank}] on GPU [{gpu}] has been unprotected for "
            f"[{times.bare:.1f} s] of [{times.lived:.1f} s]: {why}; a fault meanwhile ends the job"
            + (f"; {advice}" if (advice := self._room.advice(member)) else "")
        )
        return True


def why_bare(member: Member, given_up: bool) -> str:
    """Say what a replay of a rank would lack, empty if nothing."""
    if given_up:
        return "it has been given up"
    header = member.channel.header()  # first
    state = page.read(member.channel.control_fd)
    position = page.snapshot_position(member.channel.store_fd)
    return live.why_unprotected(state.journal_lost, position, header)
