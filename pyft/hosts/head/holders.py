"""Which spare hosts keep copies of which place, in which failure domains, and what that survives.

A failure domain is what fails at once: a host, a rack, a power supply. Copies of one place count as
several only where no two of them, and not the place either, are in the same one. A lost place is taken
by a spare host that has its copy, and each takes one place only: so it is a matching.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from pathlib import Path

from pyft.errors import UsageError

MOST_SETS = 2000  # of domains lost at once that are looked at
MOST_HOSTS = 1 << 16  # whose domains are noted
_MOST_BYTES = 1 << 24

Holders = Mapping[int, Sequence[str]]  # of each place


class Topology:
    """Which host is in which failure domain; one that is not named is a domain of its own."""

    def __init__(self, domains: Mapping[str, str] | None = None) -> None:
        self._domains = dict(domains or {})

    @classmethod
    def read(cls, path: Path) -> Topology:
        """Read lines of HOST DOMAIN; raise UsageError."""
        domains: dict[str, str] = {}
        try:
            with path.open() as file:
                lines = file.read(_MOST_BYTES).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--topology [{path}] cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words and len(words) != 2:
                raise UsageError(f"--topology [{path}], line [{number}]: it is no HOST DOMAIN")
            if words and domains.setdefault(*words) != words[1]:
                raise UsageError(f"--topology [{path}]: host [{words[0]}] is in two domains")
        return cls(domains)

    def note(self, host: str, domain: str) -> None:
        """Take what a host says of itself; what the file says counts more."""
        if len(self._domains) < MOST_HOSTS:
            self._domains.setdefault(host, domain)

    def of(self, host: str) -> str:
        """Return the domain of a host."""
        return self._domains.get(host, host)


def choose(
    places: Mapping[int, str],
    spares: Iterable[str],
    topology: Topology,
    copies: int,
    named: Mapping[int, str] | None = None,
) -> dict[int, list[str]]:
    """Return which spare hosts keep which place: so many, each in another domain, and the least busy.

    `places`: their hosts. Where no spare host is in another domain than the place's, one that is in
    the same domain helps against the loss of the host alone. `named`: spare hosts that are to have a
    place's whatever their domain is, and those of other places only where no other one is left.
    """
    named = named or {}
    load = dict.fromkeys(sorted(spares), 0)
    chosen: dict[int, list[str]] = {}
    for place, host in places.items():
        best: dict[str, str] = {}  # of each domain
        for name in sorted(load, key=lambda one: (one in named.values(), load[one], one)):
            best.setdefault(topology.of(name), name)
        own = best.pop(topology.of(host), None)
        first = named.get(place)
        if first:
            best.pop(topology.of(first), None)
        names = [first, *best.values()] if first else list(best.values())
        chosen[place] = names[:copies] or ([own] if own else [])
        for name in chosen[place]:
            load[name] += 1
    return chosen


def survives(
    places: Mapping[int, str], holders: Holders, topology: Topology, most: int
) -> tuple[int, list[str]]:
    """Return how many domains, whichever, may be lost at once, and some that may not be.

    No more than `most`; so many that all sets of them could be looked at.
    """
    hosts = {*places.values(), *(name for names in holders.values() for name in names)}
    domains = sorted({topology.of(host) for host in hosts})
    for count in range(1, min(most, len(domains)) + 1):
        if comb(len(domains), count) > MOST_SETS:
            return count - 1, []
        for lost in combinations(domains, count):
            if not _all_taken(places, holders, topology, lost):
                return count - 1, list(lost)
    return min(most, len(domains)), []


def _all_taken(
    places: Mapping[int, str], holders: Holders, topology: Topology, lost: Sequence[str]
) -> bool:
    gone = [place for place, host in places.items() if topology.of(host) in lost]
    left = {p: [n for n in holders.get(p, ()) if topology.of(n) not in lost] for p in gone}
    return matched(left) == len(gone)


def matched(holders: Holders) -> int:
    """Return how many places can be taken at once, each by another of its hosts."""
    taken: dict[str, int] = {}

    def take(place: int, tried: set[str]) -> bool:
        for name in holders[place]:
            if name in tried:
                continue
            tried.add(name)
            if name not in taken or take(taken[name], tried):
                taken[name] = place
                return True
        return False

    return sum(take(place, set()) for place in holders)


def taker(place: int, holders: Holders) -> str:
    """Return which host takes a lost place, so that as many others as possible still can be taken."""

    def left(name: str) -> int:
        others = {p: [n for n in names if n != name] for p, names in holders.items() if p != place}
        return matched(others)

    names = sorted(holders.get(place, ()))
    return max(names, key=left, default="")
