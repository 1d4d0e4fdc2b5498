"""Where faults happen: every k-th entry of a step, or anywhere, as a seed says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyft.trace.reader import TraceReader

# The second half of each pair is what a fault may meet as well: captures at each cut, whose copies
# are overtaken by the program, and servers that are ready or are not.
SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"PYFT_CUT_EVERY": "1"},
    {"PYFT_CUT_EVERY": "1", "PYFT_LATE_COPIES": "always"},
    {"PYFT_CUT_EVERY": "2"},
    {"PYFT_LATE_COPIES": "never"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_CAPTURES": "1"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_CAPTURES": "1", "PYFT_LATE_COPIES": "always"},
    {"PYFT_CUT_EVERY": "1", "PYFT_SHARE_CAPTURES": "0"},
)
# Points within a server, and how often one is passed in a run of a few steps.
POINTS = {
    "cut.after_join": 4,
    "cut.after_stage": 4,
    "cut.after_release": 3,
    "cut.copying": 40,
    "cut.before_publish": 4,
    "store.before_publish": 8,
    "store.after_publish": 8,
    "server.before_answer": 200,
    "server.before_dispatch": 3000,
}
EXACT = "server-kill"  # its calls are entries of the ring, those of others launches
PAUSE_S = 0.4  # between two deaths at any moment, on average
LAUNCHES = 50  # of a step, for faults that count those


@dataclass(frozen=True)
class Place:
    """The faults of one run, and what else it is told."""

    faults: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    kills: tuple[tuple[float, str], ...] = ()  # seconds after the one before, and who

    def __str__(self) -> str:
        """Return it as one would type it."""
        faults = [f"--inject {fault}" for fault in self.faults]
        kills = [f"{who}@+{seconds:.2f}" for seconds, who in self.kills]
        settings = [f"{k}={v}" for k, v in self.settings.items()]
        return " ".join([*settings, *self.options, *faults, *kills])


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

    def place(self) -> Place:
        """Return the next one."""
        dice = self.random
        settings = dict(dice.choice(SETTINGS))
        options = ("--standby", dice.choice(["spares", "all", "none"]))
        if EXACT in self.kinds and dice.random() < 0.15:
            point = dice.choice(list(POINTS))
            number = dice.randint(1, POINTS[point])
            return Place((), {**settings, "PYFT_FAULT": f"{point}:{number}"}, options)
        servers: dict[int, int] = {}
        faults = []
        together = dice.random() < 0.4  # in one step, rather than one after the other
        step = dice.randrange(len(next(iter(self.entries.values()))))
        for _ in range(dice.randint(1, self.per_run)):
            rank = dice.choice(list(self.entries))
            servers[rank] = servers.get(rank, 0) + 1
            faults.append(self._fault(rank, servers[rank], step if together else None))
        return Place(tuple(faults), settings, options)

    def moments(self, number: int) -> Place:
        """Return so many deaths at any moments, also within copies, captures and recoveries."""
        dice = self.random
        who = [f"server {rank}" for rank in self.entries] * 3 + ["agent"]
        kills = tuple((dice.expovariate(1 / PAUSE_S), dice.choice(who)) for _ in range(number))
        options = ("--standby", dice.choice(["spares", "all", "none"]))
        return Place((), dict(dice.choice(SETTINGS)), options, kills)

    def _fault(self, rank: int, server: int, step: int | None) -> str:
        dice = self.random
        kind = dice.choice(list(self.kinds))
        steps = self.entries[rank]
        if step is None:
            step = dice.randrange(len(steps))
        if server > 1:  # counted from where it starts: in its replay, or a step later
            step = dice.choice([0, 0, 1])
        step = min(step, len(steps) - 1)
        most = max(1, steps[step]) if kind == EXACT else LAUNCHES
        text = f"{kind},rank={rank},step={step},call={dice.randint(1, most)}"
        return text + (f",server={server}" if server > 1 else "")
