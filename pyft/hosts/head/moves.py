"""How an operator moves a rank to a spare host: its place is drained, to the host that was named.

All ranks of a place go together, since they share processes, memory and servers of one host.
"""

from __future__ import annotations

from pyft.hosts.head.places import Place
from pyft.hosts.head.without_gpu import WithoutGpu


class Moves(WithoutGpu):
    """Decides about ranks that are to be moved."""

    def ranks(self, number: int, ranks: list[int]) -> None:
        """Note which ranks a place runs."""
        self.facts.places[number].ranks = ranks

    def move(self, now: float, rank: int, to: str) -> str:
        """Begin to move the place of a rank; return why not. Where that is under way, all is well."""
        place, why = self._place_of(rank)
        if place is None:
            return why
        drain = self.facts.drain
        if drain and drain.place == place.number:
            return self._asked_otherwise(drain, to)
        if place.host == to:
            return f"host [{to}] has rank [{rank}] already"
        return self.drain(now, place.host, to)

    def cancel_move(self, now: float, rank: int) -> str:
        """Call a move off; return why not."""
        place, why = self._place_of(rank)
        if place is None:
            return why
        drain = self.facts.drain
        if not drain or drain.place != place.number:
            return f"rank [{rank}] is not being moved"
        return self.cancel(now, drain.host)

    def _place_of(self, rank: int) -> tuple[Place | None, str]:
        """Return the place that runs a rank, or why none is known."""
        places = [p for p in self.facts.places.values() if rank in p.ranks]
        if len(places) == 1:
            return places[0], ""
        if places:
            numbers = [p.number for p in places]
            return None, f"places {numbers} say that they run rank [{rank}]: name a host to drain"
        known = sorted({one for p in self.facts.places.values() for one in p.ranks})
        which = f"those known are [{known[0]}] to [{known[-1]}]" if known else "none is known yet"
        return None, f"rank [{rank}] is none of this job: {which}"
