"""When the ranks of a job are held for an image, and which image counts.

    NONE --due, PREPARE--> HOLD --all stand behind the cut of step s, which is their line--> DUMP
      ^             |                                                                 |
      +--passed over, all are released-------+--a dump fails, a client goes on--------+
      |                                                                              |
      +--the image counts, the one before is dropped-------- COPY <--all is dumped---+

PREPARE is a pre-dump, where there can be one: all run meanwhile. Whatever becomes of it, the hold follows.
An image is of all clients at once and is named by the step s of its line: no rank has consumed
anything from after the cut that another one lacks. One that fails loses nothing; the one before
counts until the next one is whole. Without input or output: `pyft/agent/images.py` does it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyft.recovery.pace import Pace
from pyft.recovery.stillness import STILL_S, Stillness

HOLD_S = 2.0  # for all that stand at the cut: for servers to drain
UNKNOWN_STEP_S, MOST_HOLD_S = 10.0, 300.0
PREPARE_S = 60.0  # for a pre-dump
TAKE_S = 60.0  # for the dump; the clients' deadline is put off so long
MOST_TAKE_S = 300.0  # for CRIU to end, if only to be passed over: else it hangs
AHEAD = 2  # steps from the order to the cut
SHARE = 100.0  # so many times what an image has cost lie between two
LEAST_S = 1.0
MOST_PAUSE_S = 300.0  # after images that were passed over
MOST_RESTORES = 3  # of one image: whatever kills a client then comes again


def hold_s(ahead: int, step_s: float) -> float:
    """Return for how long clients may be held that are to come to a cut so many steps ahead.

    `step_s`: seconds of a step, 0 if that is not known. Each may take twice as long.
    """
    return min(MOST_HOLD_S, HOLD_S + 2.0 * ahead * (step_s or UNKNOWN_STEP_S))


def between_s(cost_s: float, mttf_s: float = 0.0) -> float:
    """Return the seconds from an image to the next one.

    `cost_s`: for how long all have stood still for this one. `mttf_s`: mean seconds until a host is
    lost: then the interval that costs least, of first order (Young, 1974). 0: it is not known, and
    images take a hundredth of the time.
    """
    wanted = math.sqrt(2.0 * cost_s * mttf_s) if mttf_s else SHARE * cost_s
    return max(LEAST_S, wanted)


class Phase(enum.Enum):
    """What is under way."""

    NONE = "none"
    PREPARE = "prepare"
    HOLD = "hold"
    DUMP = "dump"
    COPY = "copy"


@dataclass(frozen=True)
class ClientState:
    """What can be seen of a client and its server."""

    id: int
    steps: int  # so far
    held_step: int  # 0: it does not wait
    held_cut: int
    line: int  # the cut that is its line
    drained: bool  # the server has taken all that the client has written
    behind: str = ""  # of what it has written behind the cut: what cannot be repeated alone
    works: bool = True  # it has a server, which recovers nothing
    # Where it is in its communicators at that cut: key, rank, peer (-1: collectives), sent, received.
    lines: tuple[tuple[int, int, int, int, int], ...] = ()
    rank: int = -1  # of the program; -1: it is not known
    # See pyft/recovery/stillness.py, which looks at these.
    stands: bool | None = None
    signs: tuple[int, ...] = ()
    seen_at: float = 0.0


@dataclass(frozen=True)
class Prepare:
    """What can be written while all run is to be written now; prepared() is to be called then."""


@dataclass(frozen=True)
class Hold:
    """All clients are to stand still behind the cut of this step."""

    step: int


@dataclass(frozen=True)
class Release:
    """All go on. With a reason: there is no image of this step."""

    why: str = ""


@dataclass(frozen=True)
class Dump:
    """The processes are to be dumped; they stay stopped."""

    number: int
    step: int


@dataclass(frozen=True)
class Copy:
    """Their memory is to be copied: they, and the servers, stand still."""

    number: int
    step: int


@dataclass(frozen=True)
class Keep:
    """This image counts now, and no other one."""

    number: int


@dataclass(frozen=True)
class Drop:
    """What there is of an image is to be removed."""

    number: int


Action = Prepare | Hold | Release | Dump | Copy | Keep | Drop


class ImagePlan:
    """All images of a job. `every`: steps between two; 0: as their cost allows."""

    def __init__(self, every: int = 0) -> None:
        self.phase = Phase.NONE
        self.every = every
        self.prepares = False  # there can be pre-dumps
        self.step = 0  # of the hold, or of the image that is made
        self.number = 0  # of the last one that was begun
        self.current = 0  # the one that counts; 0: none
        self.current_step = 0
        self.restores = 0  # of that
        self.passed = 0  # in a row
        self._since = 0.0  # the phase's
        self._stood_s = 0.0  # for how long the pre-dump has let all stand still
        self._next = 0.0  # time of the next hold
        self._last_step = 0
        self._pace, self._hold_s = Pace(), HOLD_S
        self._stillness = Stillness()

    # ---- holds --------------------------------------------------------------------------------

    def look(self, now: float, clients: Sequence[ClientState]) -> list[Action]:
        """Decide, after anything has changed and when time has passed."""
        if clients:
            self._pace.saw(now, max(c.steps for c in clients))
        if self.phase is Phase.NONE:
            return self._due(now, clients) if self._is_due(now, clients) else []
        if self.phase is Phase.PREPARE:
            return []
        if self.phase is Phase.HOLD:
            return self._hold(now, clients)
        if now > self._since + TAKE_S:
            return self._pass_over(now, f"it has taken more than [{TAKE_S:g}] s")
        return []

    def prepared(
        self, now: float, clients: Sequence[ClientState], stood_s: float = 0.0
    ) -> list[Action]:
        """Go on when there is a pre-dump, or none. `stood_s`: for how long all stood still for it."""
        if self.phase is not Phase.PREPARE:
            return []
        if not _are_ready(clients):
            return self._pass_over(now, "a rank is being recovered")
        return self._begin(now, clients, stood_s)

    def deadline(self) -> float:
        """Return how long a client may be held from the beginning of the phase."""
        return self._hold_s if self.phase is Phase.HOLD else TAKE_S

    def dumped(self, now: float, clients: Sequence[ClientState], why: str = "") -> list[Action]:
        """Go on when the processes are dumped; `why` they are not."""
        if self.phase is not Phase.DUMP:
            return []
        if not why and (late := self._missing(clients)):
            why = f"after the dump, {late}"
        if not why and now > self._since + TAKE_S:
            why = f"it has taken more than [{TAKE_S:g}] s"
        if why:
            return self._pass_over(now, why)
        self.phase = Phase.COPY
        return [Copy(self.number, self.step)]

    def copied(self, now: float, why: str = "") -> list[Action]:
        """The image is whole."""
        if self.phase is not Phase.COPY:
            return []
        if why:
            return self._pass_over(now, why)
        before, self.current, self.current_step = self.current, self.number, self.step
        self.restores = self.passed = 0
        self._end(now, between_s(self._stood_s + now - self._since))
        return [Keep(self.current), Release(), *([Drop(before)] if before else [])]

    def interrupted(self, now: float, why: str) -> list[Action]:
        """Something happens for which no client may be held."""
        return self._pass_over(now, why) if self.phase is not Phase.NONE else []

    # ---- a client is lost ---------------------------------------------------------------------

    def lost(self) -> tuple[int, str]:
        """Return the image to which all go back, or 0 and why there is none."""
        if not self.current:
            return 0, "there is no image yet"
        if self.restores >= MOST_RESTORES:
            return 0, f"image [{self.current}] has been restored [{self.restores}] times"
        self.restores += 1
        return self.current, ""

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, int]:
        """Return what has to be known of the images."""
        names = ("number", "current", "current_step", "restores")
        return {name: getattr(self, name) for name in names}

    def adopt(self, now: float, note: dict[str, int]) -> list[Action]:
        """Go on where the agent before has stopped: what it was about is given up."""
        for name, value in note.items():
            setattr(self, name, value)
        self._last_step = self.current_step
        self._end(now, LEAST_S)
        unfinished = [Drop(self.number)] if self.number != self.current else []
        return [Release(), *unfinished]

    # ---- how that is decided ------------------------------------------------------------------

    def _is_due(self, now: float, clients: Sequence[ClientState]) -> bool:
        if not _are_ready(clients):
            return False
        if self.every and not self.passed:
            return max(c.steps for c in clients) + AHEAD >= self._last_step + self.every
        return now >= self._next

    def _due(self, now: float, clients: Sequence[ClientState]) -> list[Action]:
        if not self.prepares:
            return self._begin(now, clients)
        self.phase, self._since = Phase.PREPARE, now
        return [Prepare()]

    def _begin(
        self, now: float, clients: Sequence[ClientState], stood_s: float = 0.0
    ) -> list[Action]:
        self.phase, self._since, self._stillness = Phase.HOLD, now, Stillness()
        self._stood_s = stood_s
        self._hold_s = hold_s(AHEAD, self._pace.step_s(now))
        self.step = max(c.steps for c in clients) + AHEAD
        return [Hold(self.step)]

    def _hold(self, now: float, clients: Sequence[ClientState]) -> list[Action]:
        if any(not c.works for c in clients):
            return self._pass_over(now, "a rank is being recovered")
        if past := self._past(clients):
            return self._pass_over(now, past)
        missing = self._missing(clients)
        if not missing:
            if behind := next((c.behind for c in clients if c.behind), ""):
                return self._pass_over(now, f"behind the cut stands [{behind}]")
            self.phase, self._since = Phase.DUMP, now
            self.number += 1
            return [Dump(self.number, self.step)]
        if self._stillness.lasts(now, clients) >= STILL_S:
            return self._pass_over(now, f"{missing}: {self._in_vain(clients)}")
        if now > self._since + self._hold_s:
            return self._pass_over(now, f"within [{self._hold_s:.3g}] s {missing}")
        return []

    def _past(self, clients: Sequence[ClientState]) -> str:
        """Say which has not stopped at the step: it never will, and the others wait for it."""
        late = (c for c in clients if c.steps > self.step and c.held_step != self.step)
        return next((f"client [{c.id}] is past step [{self.step}]" for c in late), "")

    def _in_vain(self, clients: Sequence[ClientState]) -> str:
        """Say why a hold cannot come about in which nothing moves."""
        free = [c.id for c in clients if c.held_step != self.step]
        held = [c.id for c in clients if c.held_step == self.step]
        return f"clients {free} wait for others" + (
            f", and clients {held} are held" if held else ""
        )

    def _missing(self, clients: Sequence[ClientState]) -> str:
        """Say which does not stand behind the cut, or whose server has not drained."""
        if not clients:
            return "no client is left"
        for client in clients:
            if client.held_step != self.step:
                return f"client [{client.id}] does not stand at step [{self.step}]"
        for client in clients:
            if client.line != client.held_cut:
                return f"the cut of client [{client.id}] is not its line"
            if not client.drained:
                return f"the server of client [{client.id}] has not drained"
        return ""

    def _pass_over(self, now: float, why: str) -> list[Action]:
        begun = self.phase in (Phase.DUMP, Phase.COPY)
        self.passed += 1
        self._end(now, min(MOST_PAUSE_S, LEAST_S * 2.0**self.passed))
        return [Release(why), *([Drop(self.number)] if begun else [])]

    def _end(self, now: float, pause: float) -> None:
        self._next = now + max(LEAST_S, pause)
        if self.step:
            self._last_step = self.step
        self.phase, self.step = Phase.NONE, 0


def _are_ready(clients: Sequence[ClientState]) -> bool:
    return bool(clients) and all(c.works and c.steps and c.line for c in clients)
