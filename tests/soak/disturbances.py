"""What a run of the soak is disturbed by: faults of every kind, deaths of every process, limits, load."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from limits import ADDRESSES, DESCRIPTORS, MEMORY
from places import LAUNCHES, SETTINGS, Dice, Place

from pyft.agent.job.gpus import MAX_DEVICES
from pyft.recovery import fault_table

# They change bits without a word: what sees them stands in docs/research/silent-faults.md.
SILENT = ("bitflip", "upset", "stuck", "rot", "wrong-copy")
HARMLESS = ("slow",)  # nothing is repaired
STOPPING = tuple(k for k in fault_table.KINDS if k not in (*SILENT, *HARMLESS))
TAKES_GPU = ("gpu-lost", "ecc")
OF_COMMUNICATORS = ("comm-drop",)  # where there is more than one rank
# Points that the sweep does not draw, by who dies there.
CLIENT_POINTS = tuple(n for n in fault_table.POINTS if n.startswith(("ring.", "objects.")))
MOST_PASSES = 40
LOADS = ("processor", "memory", "disk")
LOADED = 0.4  # of all runs
LATEST_S = 6.0  # after the first client has attached


@dataclass(frozen=True)
class Disturbance:
    """One run's faults, and what may come of them."""

    family: str
    kinds: tuple[str, ...]  # as the page counts them
    place: Place
    load: str = ""
    limit: str = ""  # of limits.py, with how near the edge: `descriptors 64`, `memory 0.95`
    may_end: bool = False  # the job, with a reason

    @property
    def silent(self) -> bool:
        """Say whether bits may change without a word."""
        return self.family == "silent"

    def __str__(self) -> str:
        """Return it in a line."""
        more = [f"load={self.load}"] if self.load else []
        more += [f"limit={self.limit}"] if self.limit else []
        return " ".join([str(self.place), *more]).strip()


def kinds_of(place: Place) -> tuple[str, ...]:
    """Return what the page counts a place's faults as."""
    found = [fault.partition(",")[0] for fault in place.faults]
    if point := place.settings.get("PYFT_FAULT"):
        found.append(f"at {point.partition(':')[0]}")
    found += [f"{who.split()[0]} killed" for _, who in place.kills if not who.startswith("spare")]
    found += ["spare returned" for _, who in place.kills if who.startswith("spare")]
    return tuple(found)


class Draw:
    """Draws the disturbances of one case."""

    def __init__(self, entries: Mapping[int, Sequence[int]], spares: int) -> None:
        self._entries, self._spares = entries, spares
        self._ranks = sorted(entries)

    def draw(self, dice: random.Random) -> Disturbance:
        """Return one."""
        names, weights = zip(*WEIGHTS.items(), strict=True)
        family = dice.choices(names, weights)[0]
        drawn = getattr(self, f"_{family}")(dice)
        return replace(drawn, load=dice.choice(LOADS) if dice.random() < LOADED else "")

    def _dice(self, dice: random.Random, kinds: Sequence[str], per_run: int) -> Dice:
        return Dice(self._entries, kinds, per_run, dice, SETTINGS)

    def _stopping(self, dice: random.Random) -> Disturbance:
        """Up to three faults that a device or a server has, or a death at a point within it."""
        alone = len(self._ranks) == 1
        kinds = [k for k in STOPPING if not (alone and k in OF_COMMUNICATORS)]
        place = self._dice(dice, kinds, 3).place()
        taken = sum(fault.startswith(TAKES_GPU) for fault in place.faults)
        if taken > self._spares:  # each needs another GPU: what is too much is a death instead
            faults = tuple(
                f.replace("gpu-lost", "hang").replace("ecc", "hang") for f in place.faults
            )
            place = replace(place, faults=faults)
        return Disturbance("stopping", kinds_of(place), place)

    def _moments(self, dice: random.Random) -> Disturbance:
        """Servers and agents, whatever they do."""
        place = self._dice(dice, ("server-kill",), 1).moments(dice.randint(1, 4))
        return Disturbance("moments", kinds_of(place), place)

    def _agent(self, dice: random.Random) -> Disturbance:
        """The agent dies when it tells the supervisor something."""
        point = {"PYFT_FAULT": f"agent.says:{dice.randint(1, 12)}"}
        place = Place(self._dice(dice, ("server-kill",), 1).place().faults, point)
        return Disturbance("agent", kinds_of(place), place)

    def _spare(self, dice: random.Random) -> Disturbance:
        """A GPU is lost, no spare is there, and the job waits until one is given to it.

        A job that has all GPUs there are would wait for ever: a fault without that instead.
        """
        if len(self._ranks) == MAX_DEVICES:
            return self._stopping(dice)
        rank = dice.choice(self._ranks)
        fault = f"{dice.choice(TAKES_GPU)},rank={rank},step=0,call={dice.randint(1, LAUNCHES)}"
        given = f"spare {len(self._ranks)}"
        moments = tuple((dice.uniform(0, LATEST_S / 3), given) for _ in range(3))
        place = Place((fault,), {}, ("--spares", "0"), moments)
        return Disturbance("spare", (fault.partition(",")[0], "spare returned"), place)

    def _ends(self, dice: random.Random) -> Disturbance:
        """One dies without which the job, or a rank of it, ends."""
        who = dice.choice(("supervisor", "launcher", f"client {dice.choice(self._ranks)}"))
        place = Place((), kills=((dice.uniform(0, LATEST_S), who),))
        return Disturbance("ends", kinds_of(place), place, may_end=True)

    def _client(self, dice: random.Random) -> Disturbance:
        """A client dies within an operation of the ring."""
        point = f"{dice.choice(CLIENT_POINTS)}:{dice.randint(1, MOST_PASSES)}"
        place = Place((), {"PYFT_FAULT": point})
        return Disturbance("client", kinds_of(place), place, may_end=True)

    def _silent(self, dice: random.Random) -> Disturbance:
        place = self._one(dice, SILENT)
        fault, seed = place.faults[0], dice.randrange(1000)
        if fault.startswith(fault_table.SEEDED):
            fault += f",seed={seed}"
        return Disturbance("silent", kinds_of(place), replace(place, faults=(fault,)))

    def _slow(self, dice: random.Random) -> Disturbance:
        place = self._one(dice, HARMLESS)
        return Disturbance("slow", kinds_of(place), place)

    def _one(self, dice: random.Random, kinds: Sequence[str]) -> Place:
        return self._dice(dice, kinds, 1).place()

    def _limit(self, dice: random.Random) -> Disturbance:
        """Descriptors, addresses or memory near what is needed, and often a fault beside."""
        which = dice.choice((DESCRIPTORS, ADDRESSES, MEMORY))
        if which == DESCRIPTORS:
            edge = str(dice.choice((16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 1024)))
        else:
            edge = f"{dice.uniform(0.9, 1.1):.3f}"
        return self.limit(dice, f"{which} {edge}")

    def limit(self, dice: random.Random, which: str) -> Disturbance:
        """Return this limit, and mostly a death beside."""
        faults = self._one(dice, ("server-kill",)).faults if dice.random() < 0.6 else ()
        place = Place(faults)
        kinds = (f"few {which.partition(' ')[0]}", *kinds_of(place))
        return Disturbance("limit", kinds, place, limit=which, may_end=True)


# How often each family is drawn; `_NAME` above draws it.
WEIGHTS: Mapping[str, float] = {
    "stopping": 30,
    "moments": 14,
    "agent": 8,
    "spare": 8,
    "ends": 8,
    "client": 6,
    "silent": 8,
    "slow": 2,
    "limit": 16,
}
