"""Images of one place of several: the head says when all are held, and which image counts.

It stands where pyft.recovery.images stands in a job of one host, and is asked and told the same; what
that decides itself this one has decided by the head. Without input or output but the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyft.agent.process.awake import AwakeClock
from pyft.hosts.place import servers_words
from pyft.hosts.place.actions import (
    Action,
    Alone,
    Declare,
    Fail,
    GoBack,
    Leave,
    MadeAs,
    Mirror,
    Relay,
)
from pyft.hosts.wire import checked
from pyft.hosts.wire.head_link import HeadLink
from pyft.hosts.wire.link import LinkError
from pyft.recovery.images import (
    TAKE_S,
    ClientState,
    Copy,
    Drop,
    Dump,
    Hold,
    ImagePlan,
    Keep,
    Phase,
    Prepare,
    Release,
)
from pyft.recovery.stillness import STILL_S, Stillness

STATUS_S = 0.1
MOST_HOLD_MS = 600_000
AGAIN_S = 1.0  # between two calls for help
ANSWER_S = 120.0  # for the head to say what is done about a loss, while this place runs


@dataclass
class Asking:
    """About the death of a server. `since`, `told_at`: when the head was asked, first and last.

    `since` is of a clock that stands still while the place does: a head may be away for longer.
    """

    epoch: int
    why: str
    since: float
    told_at: float = -math.inf


class RemoteImages(ImagePlan):
    """The images of a place, as the head decides."""

    def __init__(self) -> None:
        super().__init__()
        self.round = 0  # of going back, that this place has seen
        self.back_in = 0  # the round in which it is restored: the next agent comes back in it
        self.came_back = 0  # the round in which it was
        self.is_fresh = 0  # nothing has happened since
        self.lost_why = ""  # what has died here, as long as the head has not answered
        self._lost_since = 0.0  # by that clock, too
        self._clock = AwakeClock()
        self._told_at = self._told_lost_at = 0.0
        self._told_held = 0
        self._told_still = False  # that nothing moves here, and not all are held
        self._told_ranks: list[int] = []  # at this connection
        self._told_lacks: tuple[str, list[int]] = ("", [])  # likewise
        self._take_s = TAKE_S
        self._late = ""  # which does not stand at the step
        self._mirrors: list[tuple[str, str, int]] = []  # of the image that is being made
        self._wanted: dict[tuple[int, int], tuple[int, str]] = {}  # client, key: round and id
        self._faults: dict[int, Asking] = {}  # of servers, which the head has to decide about
        self.logs: list[str] = []  # names of the files which the image has to cut back
        self.places: list[str] = []  # addresses of all, once they are there
        self.link: HeadLink | None = None

    def hello(self, place: int, life: int, address: str = "") -> dict[str, Any]:
        """Return what the head is told at each new connection."""
        where = {"place": place, "life": life, "address": address}
        can = {"prepares": True} if self.prepares else {}
        return {"role": "agent", "restored": self.came_back, **where, **can}

    # ---- asked by the agent -------------------------------------------------------------------

    def look(self, now: float, clients: Sequence[ClientState]) -> list[Action]:
        """Do what the head has said, and tell it what has changed."""
        actions: list[Action] = []
        assert self.link
        while said := self.link.heard():
            try:
                actions += self._ordered(now, said)
            except LinkError as error:
                actions.append(Fail(f"the head says what cannot be: {error}"))
        for client, fault in self._faults.items():
            self._tell_fault(now, client, fault)
        if self.lost_why:
            self._tell_lost(now)
        elif self.phase is Phase.HOLD:
            self._tell_held(clients)
            self._tell_still(now, clients)
        elif now >= self._told_at + STATUS_S and clients:
            self._tell_status(now, max(c.steps for c in clients))
            self._tell_ranks(sorted({c.rank for c in clients if c.rank >= 0}))
        return actions

    def prepared(
        self, now: float, clients: Sequence[ClientState], stood_s: float = 0.0
    ) -> list[Action]:
        """Tell the head that the hold need not wait for this place."""
        if self.phase is Phase.PREPARE:
            self.phase = Phase.NONE
            self._say("prepared", stood_us=math.ceil(1e6 * stood_s))
        return []

    def dumped(self, now: float, clients: Sequence[ClientState], why: str = "") -> list[Action]:
        """Go on when the processes are dumped; `why` they are not."""
        if self.phase is not Phase.DUMP:
            return []
        if not why and (late := self._missing(clients)):
            why = f"after the dump, {late}"
        if why:
            self._say("passed", why=why)
            return self._given_up(why, self.number)
        self.phase = Phase.COPY
        return [Copy(self.number, self.step)]

    def copied(self, now: float, why: str = "") -> list[Action]:
        """The image is whole here. All stand still until it is at all places."""
        if self.phase is not Phase.COPY:
            return []
        if why:
            self._say("passed", why=why)
            return self._given_up(why, self.number)
        self._say("copied", number=self.number, logs=self.logs)
        return [Mirror(self.number, self._mirrors)] if self._mirrors else []

    def lost(self) -> tuple[int, str]:
        """Nothing is decided here."""
        return 0, ""

    def deadline(self) -> float:
        """Return how long a client may be held from the beginning of the phase."""
        return self._hold_s if self.phase is Phase.HOLD else self._take_s

    def tell_lost(self, now: float, why: str) -> None:
        """Ask the head what is to be done about a death."""
        if not self.lost_why:
            self.lost_why, self._lost_since = why, self._clock.now()
            self._tell_lost(now)

    def tell_fault(self, now: float, client: int, epoch: int, why: str) -> None:
        """Ask the head whether a server is replaced while all others go on."""
        self._faults[client] = Asking(epoch, why, self._clock.now())
        self._tell_fault(now, client, self._faults[client])

    def tell_lacks_gpu(self, why: str, happened: list[int]) -> None:
        """Tell the head why a rank of this place has no GPU, or that all have one.

        `happened`: numbers of the faults that were asked for and have happened.
        """
        if self._told_lacks != (why, happened):
            self._told_lacks = (why, happened)
            self._say("lacks_gpu", round=self.round, why=why, happened=happened)

    def ask_again(self) -> None:
        """Ask about all deaths at the next look: the head knows of this place's servers now."""
        for fault in self._faults.values():
            fault.told_at = -math.inf

    def unanswered(self) -> str:
        """Return which death the head has said nothing about in its time; none: an empty string.

        To be asked at each look, or the clock stands still.
        """
        now = self._clock.now()
        asked = [(one.since, one.why) for one in self._faults.values()]
        asked += [(self._lost_since, self.lost_why)] if self.lost_why else []
        since, why = min(asked, default=(math.inf, ""))
        return why if now > since + ANSWER_S else ""

    def want_id(self, client: int, key: int, made_as: str) -> None:
        """Ask the head for the id of a communicator, or tell it."""
        self._wanted[client, key] = (self.round, made_as)
        self._say("want_id", round=self.round, client=client, key=key, made_as=made_as)

    @property
    def is_dumping(self) -> bool:
        """Say whether the processes are stopped, or about to be, for an image."""
        return self.phase in (Phase.DUMP, Phase.COPY)

    def tell_relayed(self, place: int, data: str) -> None:
        """Have the head pass on what the relay of this place says to that of another one."""
        self._say("relay", round=self.round, to=place, data=data)

    def note(self) -> dict[str, int]:
        """Return what the next agent has to know."""
        own = ("round", "back_in", "is_fresh")
        return super().note() | {name: int(getattr(self, name)) for name in own}

    def adopt(self, now: float, note: dict[str, int]) -> list[Action]:
        """Go on where the agent before has stopped; what was restored waits for the head's word."""
        for name, value in note.items():
            setattr(self, name, value)
        self.step, self.phase, self.came_back = 0, Phase.NONE, self.back_in
        return [] if self.back_in else [Release()]

    # ---- told by the head ---------------------------------------------------------------------

    def _ordered(self, now: float, said: dict[str, Any]) -> list[Action]:
        kind = said["kind"]
        if kind in servers_words.KINDS:
            return self._of_servers(said)
        if kind == "welcome":
            self._told_ranks, self._told_lacks = [], ("", [])
            for (client, key), (round, made_as) in self._wanted.items():
                self._say("want_id", round=round, client=client, key=key, made_as=made_as)
            return [Declare()]
        if kind == "prepare":
            self.phase = Phase.PREPARE
            return [Prepare()]
        if kind == "hold":
            self.step, self._told_held = checked.number(said, "step"), 0
            self._late, self._told_still, self._stillness = "", False, Stillness()
            self._hold_s = checked.number(said, "milliseconds", MOST_HOLD_MS) / 1000
            self.phase, self._since = Phase.HOLD, now
            return [Hold(self.step)]
        if kind == "dump":
            return self._dump(now, said)
        if kind == "release":
            why = checked.text(said, "why")
            self.passed = self.passed + 1 if why else 0
            return self._given_up(why, checked.number(said, "number"))
        if kind == "keep":
            return self._kept(checked.number(said, "number"))
        if kind == "mirror":
            return [Mirror(checked.number(said, "number"), checked.hosts(said, "mirrors"))]
        if kind == "drop":
            return [Drop(checked.number(said, "number"))]
        if kind == "back":
            self.round = checked.number(said, "round")
            self._wanted, self.back_in, self.is_fresh = {}, self.round, 1
            self._faults.clear()
            return [GoBack(checked.number(said, "number"), checked.text(said, "why"))]
        if kind == "leave":
            return [Leave(checked.number(said, "number"), checked.text(said, "why"))]
        if kind == "go":
            self.phase = Phase.NONE
            return [Release()]
        if kind == "made_as":
            return self._made_as(said)
        if kind == "relay":
            of_now = checked.number(said, "round") == self.round
            return [Relay(checked.data(said, "data"))] if of_now else []
        if kind == "places":
            self.places = checked.names(said, "addresses")
        if kind in ("fail", "refused"):
            return [Fail(checked.text(said, "why"))]
        return []

    def _dump(self, now: float, said: dict[str, Any]) -> list[Action]:
        if self.phase is not Phase.HOLD or checked.number(said, "step") != self.step:
            return []
        self.number = checked.number(said, "number")
        self.phase, self._since = Phase.DUMP, now
        self._take_s = checked.number(said, "milliseconds", MOST_HOLD_MS) / 1000
        self._mirrors = checked.hosts(said, "mirrors")
        return [Dump(self.number, self.step)]

    def _kept(self, number: int) -> list[Action]:
        before, self.current = self.current, number
        return [Keep(number), *([Drop(before)] if before and before != number else [])]

    def _of_servers(self, said: dict[str, Any]) -> list[Action]:
        if checked.number(said, "round") != self.round:
            return []
        action = servers_words.action_of(said)
        if isinstance(action, Alone):
            asked = self._faults.get(action.client)
            if not asked or asked.epoch != action.epoch:
                return []
            del self._faults[action.client]
        return [action]

    def _made_as(self, said: dict[str, Any]) -> list[Action]:
        if checked.number(said, "round") != self.round:
            return []
        client, key = checked.number(said, "client"), checked.number(said, "key", (1 << 64) - 1)
        made_as = checked.text(said, "made_as")
        if made_as:
            self._wanted.pop((client, key), None)
        return [MadeAs(client, key, made_as)]

    def _given_up(self, why: str, number: int) -> list[Action]:
        if self.phase is Phase.HOLD and why and self._late:
            why = f"{why} ({self._late})"
        self.phase, self.step = Phase.NONE, 0
        drop: list[Action] = [Drop(number)] if number and number != self.current else []
        return [Release(why), *drop]

    # ---- what the head is told ----------------------------------------------------------------

    def _tell_held(self, clients: Sequence[ClientState]) -> None:
        if self._told_held == self.step or any(not c.works for c in clients):
            return
        if past := self._past(clients):
            self._told_held = self.step
            self._say("passed", why=past)
            return
        self._late = self._missing(clients)
        if self._late:
            return
        self._told_held = self.step
        if behind := next((c.behind for c in clients if c.behind), ""):
            self._say("passed", why=f"behind the cut stands [{behind}]")
            return
        lines = [line for client in clients for line in client.lines]
        self._say("held", step=self.step, lines=[list(line) for line in lines])

    def _tell_still(self, now: float, clients: Sequence[ClientState]) -> None:
        """Tell the head when only other places can move this one, and when that is over."""
        is_still = self._stillness.lasts(now, clients) >= STILL_S
        is_still = is_still and self._late != "" and self._told_held != self.step
        if is_still != self._told_still:
            self._told_still = is_still
            why = f"{self._late}: {self._in_vain(clients)}" if is_still else ""
            self._say("still", step=self.step, why=why)

    def _tell_status(self, now: float, steps: int) -> None:
        self._told_at = now
        self._pace.saw(now, steps)
        self._say("status", steps=steps, step_us=math.ceil(1e6 * self._pace.step_s(now)))

    def _tell_ranks(self, ranks: list[int]) -> None:
        if ranks != self._told_ranks:
            self._told_ranks = ranks
            self._say("ranks", ranks=ranks)

    def _tell_lost(self, now: float) -> None:
        if now >= self._told_lost_at + AGAIN_S:
            self._told_lost_at = now
            self._say("lost", why=self.lost_why)

    def _tell_fault(self, now: float, client: int, fault: Asking) -> None:
        if now >= fault.told_at + AGAIN_S:
            fault.told_at = now
            values = {"client": client, "epoch": fault.epoch, "why": fault.why}
            self._say("fault", round=self.round, **values)

    def _say(self, kind: str, **values: Any) -> None:
        if self.link:
            self.link.say(kind, **values)
