"""Where the servers of ranks start, and with what: a GPU, an epoch, a mode, a cut. Pure, as plan.py."""

from __future__ import annotations

from typing import Protocol

from pyft.recovery.events import Action, Attached, Mode, Refuse, Start, Wait
from pyft.recovery.gpus import Gpus
from pyft.recovery.rank import Rank, State
from pyft.recovery.together import Together


class Snapshots(Protocol):
    """What ranks that compare and share their snapshots say of the next server of one of them."""

    def entry(self, id: int) -> int:
        """Return the entry of the cut from which it has to start; 0: any."""

    def arbitrates(self, id: int) -> int:
        """Return the cut about which its replay decides; 0: none."""


class Starting:
    """The starts of a job, in the order of their epochs."""

    def __init__(self, ranks: dict[int, Rank], gpus: Gpus, together: Together) -> None:
        self.epoch = 0
        self.snapshots: Snapshots | None = None  # of ranks whose communicators are repaired
        self._ranks = ranks
        self._gpus = gpus
        self._together = together

    def in_use(self) -> set[int]:
        """Return the GPUs on which servers are."""
        return {rank.gpu for rank in self._ranks.values() if rank.has_server}

    def first(self, event: Attached) -> list[Action]:
        """Start the first server of a client."""
        gpu = self._gpus.place(event.device, leave=False, in_use=self.in_use())
        if gpu is None:
            return [Refuse(f"no GPU is left for device [{event.device}]")]
        self.epoch += 1
        self._ranks[event.id] = Rank(event.id, event.rank, event.device, gpu, self.epoch)
        return [Start(event.id, self.epoch, gpu, Mode.NORMAL)]

    def next(self, rank: Rank, leave: bool) -> list[Action]:
        """Start the next server of a rank, on another GPU if it is to leave; nothing: there is none."""
        gpu = self._gpus.place(rank.device, leave, self.in_use())
        if gpu is None:
            return []
        self.epoch += 1
        rank.gpu, rank.epoch, rank.state = gpu, self.epoch, State.RECOVERING
        if rank.mode is Mode.NORMAL and self._together.is_serial(rank):
            rank.mode = Mode.SERIAL
        sentence = f"rank [{rank.rank}] is moved to a new server on GPU [{rank.gpu}]"
        return [Wait(rank.id, sentence), self._start_of(rank)]

    def waiting(self) -> list[Action]:
        """Start the servers of ranks that wait for a GPU, as far as there are some."""
        actions: list[Action] = []
        for rank in self._ranks.values():
            if rank.state is State.WAITING:
                actions += self.next(rank, leave=False)
        return actions

    def _start_of(self, rank: Rank) -> Start:
        """Return all that the next server begins with, as it is decided now."""
        where = (rank.id, rank.epoch, rank.gpu, rank.mode)
        if sets := self._together.sets:
            together = 1 + len(self._together.others(rank))
            return Start(*where, sets.entry(rank.id), together=together)
        if self.snapshots:
            return Start(*where, self.snapshots.entry(rank.id), self.snapshots.arbitrates(rank.id))
        return Start(*where)
