"""Whether a hold can still come about: not if every rank is held, or waits for one that is.

A rank that waits for others in a collective moves only when they do, and those that are held do not.
So where nothing else is left that moves, the rest of the hold's time would be lost for all.
Without input or output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

STILL_S = 0.4  # several looks of a server at its device


class Seen(Protocol):
    """What of a client state is looked at."""

    @property
    def stands(self) -> bool | None:
        """Say whether only others can move it: it is held, or waits. None: not looked at."""

    @property
    def signs(self) -> tuple[int, ...]:
        """Return what changes with whatever it does."""

    @property
    def seen_at(self) -> float:
        """Return when its server has looked at its device last."""


@dataclass
class Stillness:
    """Of the clients of one agent, as long as a hold lasts."""

    _signs: tuple[tuple[int, ...], ...] = ()
    _since: float = 0.0
    _all_stand: bool = False  # at the last close look, and the signs are those

    def lasts(self, now: float, clients: Sequence[Seen]) -> float:
        """Return for how long none of them can have moved by itself, 0 if one may have."""
        signs = tuple(client.signs for client in clients)
        if signs != self._signs:
            self._signs, self._since, self._all_stand = signs, now, False
        if clients and all(client.stands is not None for client in clients):
            self._all_stand = all(client.stands for client in clients)
        if not self._all_stand:
            return 0.0
        return max(0.0, min(client.seen_at for client in clients) - self._since)
