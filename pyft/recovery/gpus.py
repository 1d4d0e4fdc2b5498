"""Which physical GPU stands behind which device of the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SERVER = -1  # no rank: the server has found it, without its log


@dataclass(frozen=True)
class Word:
    """The rank whose log blames a GPU, as an audit has it, and what others would lose by that.

    A client can change its own log, also between one replay and the next. So what is found by its
    log alone takes nothing from others: see `Strikes.believed`.
    """

    rank: int
    own: bool  # the GPU is the rank's, and no other rank works on it
    only: bool  # the job has no other client


@dataclass
class Strikes:
    """GPUs that have computed wrongly, and when: by the steps of those ranks."""

    most: int = 2
    within: int = 10000
    _found: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # GPU: step, rank
    _alone: dict[int, int] = field(default_factory=dict)  # rank: the GPU left on its word alone

    @property
    def of(self) -> dict[int, list[int]]:
        """The steps, by GPU."""
        return {gpu: [step for step, _ in found] for gpu, found in self._found.items()}

    def add(self, gpu: int, step: int, word: Word | None = None) -> bool:
        """Note one more; say whether the GPU has had enough, and that is believed."""
        counted = [(at, who) for at, who in self._found.get(gpu, []) if step - at < self.within]
        self._found[gpu] = [*counted, (step, word.rank if word else SERVER)]
        return len(self._found[gpu]) >= self.most and self.believed(gpu, word)

    def believed(self, gpu: int, word: Word | None) -> bool:
        """Say whether a GPU may be left: a server has found it, two ranks say so, or no other pays.

        One rank's word is enough for its own GPU, once: the spare that it then takes is one less for
        all others.
        """
        if not word or word.only or self._witnesses(gpu) > 1:
            return True
        return word.own and self._alone.get(word.rank, gpu) == gpu

    def left(self, gpu: int, word: Word | None) -> None:
        """Note that a GPU is left."""
        if word and not word.only and self._witnesses(gpu) == 1:
            self._alone[word.rank] = gpu

    def clear(self, gpu: int) -> None:
        """Forget what a GPU has done, which an operator takes for well again."""
        self._found.pop(gpu, None)
        self._alone = {rank: one for rank, one in self._alone.items() if one != gpu}

    def note(self) -> list[Any]:
        """Return all of it, for the next agent."""
        return [sorted(self._found.items()), sorted(self._alone.items())]

    def restore(self, note: Iterable[Any]) -> None:
        """Go on from the note of an agent before this one."""
        found, alone = note
        self._found = {int(gpu): [(step, who) for step, who in all] for gpu, all in found}
        self._alone = dict(alone)

    def _witnesses(self, gpu: int) -> int:
        return len({who for _, who in self._found.get(gpu, [])})


class Gpus:
    """`devices` devices on GPUs 0, 1, 2 …, and `spares` further GPUs."""

    def __init__(self, devices: int, spares: int, strikes: Strikes | None = None) -> None:
        self.behind = {device: device for device in range(devices)}  # device -> GPU
        self.known = set(range(devices + spares))
        self.lost: dict[int, str] = {}  # GPU -> why it is never used again
        self.drained: set[int] = set()
        self.strikes = strikes or Strikes()

    def usable(self, gpu: int) -> bool:
        """Say whether work may be put on a GPU."""
        return gpu in self.known and gpu not in self.lost and gpu not in self.drained

    def free(self, in_use: set[int]) -> list[int]:
        """Return the spares: usable GPUs that no device stands on and no server occupies."""
        taken = in_use | set(self.behind.values())
        return [gpu for gpu in sorted(self.known) if self.usable(gpu) and gpu not in taken]

    def place(self, device: int, leave: bool, in_use: set[int]) -> int | None:
        """Return the GPU for a device: its own one, unless that is unusable or to be left.

        To be left without a spare: the own one again. None: nothing is usable.
        """
        own = self.behind[device]
        if self.usable(own) and not leave:
            return own
        spares = self.free(in_use)
        if spares:
            self.behind[device] = spares[0]
            return spares[0]
        return own if self.usable(own) else None

    def why_not(self, gpu: int, in_use: set[int]) -> str:
        """Return why a GPU cannot take over a device; nothing if it can."""
        if gpu not in self.known:
            return f"GPU [{gpu}] does not exist: there are {sorted(self.known)}"
        if gpu in self.lost:
            return f"GPU [{gpu}] is lost: {self.lost[gpu]}"
        if gpu in self.drained:
            return f"GPU [{gpu}] is drained"
        if gpu not in self.free(in_use):
            return f"GPU [{gpu}] is in use"
        return ""

    def lose(self, gpu: int, why: str) -> None:
        """Never use a GPU again, unless an operator says that it is well."""
        self.lost.setdefault(gpu, why)

    def struck(self, gpu: int, step: int, word: Word | None, in_use: set[int]) -> str:
        """Note what a GPU has computed wrongly; return why it is left now, if another one is free."""
        enough = self.strikes.add(gpu, step, word)
        if not enough or not self.free(in_use):
            return ""
        self.strikes.left(gpu, word)
        return f"it has computed wrongly [{len(self.strikes.of[gpu])}] times"

    def add(self, gpu: int) -> None:
        """Take a GPU into use, a new one or one that was lost or drained."""
        self.known.add(gpu)
        self.lost.pop(gpu, None)
        self.drained.discard(gpu)
        self.strikes.clear(gpu)
