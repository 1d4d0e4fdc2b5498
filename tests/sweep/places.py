"""Where faults happen: every k-th entry of a step, or anywhere, as a seed says."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyft.recovery import fault_table
from pyft.trace.reader import TraceReader

# The second half of each pair is what a fault may meet as well: snapshots at each cut, whose copies
# are overtaken by the program, and servers that are ready or are not.
SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"PYFT_CUT_EVERY": "1"},
    {"PYFT_CUT_EVERY": "1", "PYFT_BACKGROUND_COPIES": "always"},
    {"PYFT_CUT_EVERY": "2"},
    {"PYFT_BACKGROUND_COPIES": "never"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_SNAPSHOTS": "1"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_SNAPSHOTS": "1", "PYFT_BACKGROUND_COPIES": "always"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_SNAPSHOTS": "0"},
)
# Points within a server, and how often one is passed in a run of a few steps (faults.toml).
POINTS = {name: passes for name, passes in fault_table.POINTS.items() if passes}
EXACT = "server-kill"  # its calls are entries of the ring, those of others launches
PAUSE_S = 0.4  # between two deaths at any moment, on average
LAUNCHES = 10  # of a step, for faults that count those: small steps have few


def halved(point: str) -> str:
    """Return a `name:number` with half the number, empty when there is none."""
    name, _, number = point.partition(":")
    return f"{name}:{int(number) // 2}" if int(number) > 1 else ""


def earlier(fault: str) -> str:
    """Return a death at an entry, at half as many entries behind its cut; others as they are."""
    if not fault.startswith(EXACT):
        return fault
    return re.sub(r"\bcall=(\d+)", lambda found: f"call={max(1, int(found[1]) // 2)}", fault)


@dataclass(frozen=True)
class Place:
    """The faults of one run, and what else it is told."""

    faults: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    kills: tuple[tuple[float, str], ...] = ()  # seconds after the one before, and who
    instead: Place | None = None  # one that comes, should this one not come however soon
    replaces: str = ""  # what has not come
    wrapper: tuple[str, ...] = ()  # a command that starts pyft, under a limit for example

    def __str__(self) -> str:
        """Return it as one would type it."""
        faults = [f"--inject {fault}" for fault in self.faults]
        kills = [f"{who}@+{seconds:.2f}" for seconds, who in self.kills]
        settings = [f"{k}={v}" for k, v in self.settings.items()]
        return " ".join([*settings, *self.options, *faults, *kills])

    def sooner(self) -> Place | None:
        """Return what to try when this one has not come: an earlier one, then one that comes."""
        if point := halved(self.settings.get("PYFT_FAULT", ":0")):
            return replace(self, settings={**self.settings, "PYFT_FAULT": point})
        if self.kills and self.kills[0][0] > 0.01:
            return replace(self, kills=tuple((s / 2, who) for s, who in self.kills))
        if self.instead:
            return replace(self.instead, replaces=str(self))
        # Where the log is short, cuts are forced when it is full, and a step may have fewer entries.
        if (faults := tuple(map(earlier, self.faults))) != self.faults:
            return replace(self, faults=faults, replaces=self.replaces or str(self))
        return None


def shared_out(total: int, cases: Iterable[str]) -> dict[str, int]:
    """Return how many of so many places each case gets, the first ones those that are left over."""
    names = list(cases)
    each, over = divmod(total, len(names))
    return {name: each + (number < over) for number, name in enumerate(names)}


def entries_of_steps(ring: Path) -> list[int]:
    """Return how many entries each step of an undisturbed run has, its cut included."""
    counts = [0]
    with TraceReader(ring) as trace:
        for entry in trace.entries():
            counts[-1] += 1
            if entry.call == "CUT":
                counts.append(0)
    return counts


def every(
    steps: Sequence[int], rank: int, step: int, stride: int, per_run: int, first: int
) -> Iterator[Place]:
    """Yield each stride-th entry behind a cut; further ones of a run meet the next servers."""
    calls = list(range(first, steps[step] + 1, stride))
    for start in range(0, len(calls), per_run):
        faults = [f"{EXACT},rank={rank},step={step},call={calls[start]}"]
        faults += [
            f"{EXACT},rank={rank},step=1,call={call},server={number}"
            for number, call in enumerate(calls[start + 1 : start + per_run], 2)
        ]
        yield Place(tuple(faults))


@dataclass
class Dice:
    """Draws places: faults of some kinds, of any rank, at any entry, one after the other or at once."""

    entries: Mapping[int, Sequence[int]]  # of the steps of each rank
    kinds: Sequence[str]
    per_run: int
    random: random.Random
    settings: Sequence[Mapping[str, str]] = SETTINGS

    def place(self) -> Place:
        """Return the next one."""
        dice = self.random
        settings = dict(dice.choice(self.settings))
        options = ("--standby", dice.choice(["spares", "all", "none"]))
        if EXACT in self.kinds and dice.random() < 0.15:
            point = dice.choice(list(POINTS))
            number = dice.randint(1, POINTS[point])
            certain = self._certain(settings, options)
            at_point = {**settings, "PYFT_FAULT": f"{point}:{number}"}
            return Place((), at_point, options, instead=certain)
        servers: dict[int, int] = {}
        reached: dict[int, int] = {}  # the step in which the first fault of a rank comes
        faults = []
        together = dice.random() < 0.4  # in one step, rather than one after the other
        step = self._below(min(len(steps) for steps in self.entries.values()))
        for _ in range(dice.randint(1, self.per_run)):
            rank = dice.choice(sorted(self.entries))
            servers[rank] = servers.get(rank, 0) + 1
            if servers[rank] == 1:
                kind = dice.choice(list(self.kinds))
                fault, reached[rank] = self._first(rank, step if together else None, kind)
            else:
                fault = self._next(rank, servers[rank], reached[rank])
            faults.append(fault)
        # How many launches a step has is not known: the last ones may have too few.
        certain = all(fault.startswith(EXACT) for fault in faults)
        instead = None if certain else self._certain(settings, options)
        return Place(tuple(faults), settings, options, instead=instead)

    def moments(self, number: int) -> Place:
        """Return so many deaths at any moments, also within copies, snapshots and recoveries."""
        dice = self.random
        who = [f"server {rank}" for rank in sorted(self.entries)] * 3 + ["agent"]
        kills = tuple((dice.expovariate(1 / PAUSE_S), dice.choice(who)) for _ in range(number))
        options = ("--standby", dice.choice(["spares", "all", "none"]))
        settings = dict(dice.choice(self.settings))
        return Place((), settings, options, kills, instead=self._certain(settings, options))

    def _below(self, number: int) -> int:
        """Return one of so many.

        It takes as much from the dice for any number, and mostly gives the same for a near one: how
        many entries a step has differs by one now and then.
        """
        return int(self.random.random() * number)

    def _certain(self, settings: Mapping[str, str], options: tuple[str, ...]) -> Place:
        """Return a death at an entry of the ring. Not each program passes each point."""
        fault, _ = self._first(self.random.choice(sorted(self.entries)), None, EXACT)
        return Place((fault,), settings, options)

    def _first(self, rank: int, step: int | None, kind: str) -> tuple[str, int]:
        """Return a fault of a rank's first server that comes, and its step."""
        steps = self.entries[rank]
        # Launches are counted from when the agent has seen a cut: whole steps have to follow.
        last = len(steps) - 1 if kind == EXACT else max(0, len(steps) - 4)
        step = min(self._below(last + 1) if step is None else step, last)
        while kind == EXACT and not steps[step]:
            step -= 1
        most = steps[step] if kind == EXACT else LAUNCHES
        return f"{kind},rank={rank},step={step},call={1 + self._below(most)}", step

    def _next(self, rank: int, server: int, reached: int) -> str:
        """Return one of a replacement. It begins at a cut before, and has at least one step to do.

        Which one is not known: so the shortest that it may be.
        """
        dice, steps = self.random, self.entries[rank]
        kind = dice.choice(list(self.kinds))
        shortest = min((n for n in steps[: reached + 1] if n), default=1)
        # By then the server before may have died at the first entry of the last step.
        most = max(1, shortest if reached < len(steps) - 1 else min(shortest, steps[-1]))
        call = 1 + self._below(most if kind == EXACT else LAUNCHES)
        return f"{kind},rank={rank},step=0,call={call},server={server}"
