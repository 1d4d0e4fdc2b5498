"""Which number a client has in messages, reports and orders.

RANK in its environment says so, where a launcher sets it. Otherwise (mp.spawn, Lightning's
launcher, plain subprocesses) it is the place in the largest communicator, as long as those that
have made one of that size have different places: parts of all ranks have equal ones. Before that,
and without communicators, it is LOCAL_RANK, else the number of the device, else one that no rank
has.

A client may claim any place. So a number that comes from one is kept: no later claim takes it, and a
larger communicator counts only when all that have such numbers have a place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from pyft.agent.channel.protocol import number_in


@dataclass
class Claim:
    """What is known of one client and device."""

    id: int
    pid: int
    device: int
    environment: Mapping[str, str]
    place: tuple[int, int] = (0, 0)  # rank and size in its largest communicator; size 0: none
    guessed: int = -1  # its number, from before it had a place
    held: tuple[int, int] = (0, 0)  # the place that its number is from; size 0: none

    @property
    def rank(self) -> int | None:
        """Return what a launcher says."""
        return number_in(self.environment, "RANK")


def place_of(word: int) -> tuple[int, int]:
    """Read what a client has written: anything may stand there. One alone has no place."""
    rank, size = word & 0xFFFFFFFF, word >> 32
    return (rank, size) if rank < size and 1 < size < 1 << 20 else (0, 0)


def numbers(claims: Sequence[Claim], devices: int) -> dict[int, int]:
    """Return the number of each client. `claims` are in the order in which they came.

    Devices of one process share its number, unless each has a place of its own.
    """
    found = {c.id: c.rank for c in claims if c.rank is not None}
    found |= {id: place[0] for id, place in places(claims).items()}
    by_pid: dict[int, int] = {}
    for claim in claims:
        if claim.id in found:
            by_pid[claim.pid] = min(found[claim.id], by_pid.get(claim.pid, found[claim.id]))
    for claim in claims:
        if claim.id in found:
            continue
        if claim.pid not in by_pid:
            taken = set(by_pid.values()) | set(found.values())
            by_pid[claim.pid] = next(n for n in _wishes(claim, devices) if n not in taken)
        found[claim.id] = by_pid[claim.pid]
    return found


def how_many(claims: Sequence[Claim]) -> int:
    """Return how many ranks there are, 0 as long as neither launcher nor communicator says so."""
    said = [number_in(c.environment, "WORLD_SIZE") or 0 for c in claims if c.rank is not None]
    return max([*said, *(c.place[1] for c in claims)], default=0)


def leads(claim: Claim, claims: Sequence[Claim]) -> bool:
    """Say whether its process works on this device: it may look at others as well."""
    others = [c for c in claims if c.pid == claim.pid and c.place[1]]
    return bool(claim.place[1]) or not others


def places(claims: Sequence[Claim]) -> dict[int, tuple[int, int]]:
    """Return the places that count, by client."""
    said = {c.rank for c in claims if c.rank is not None}
    claims = [c for c in claims if c.rank is None]
    held = [c for c in claims if c.held[1]]
    present = max((c.held[1] for c in held), default=0)
    largest = max((c.place[1] for c in claims), default=0)
    if largest > present and all(c.place[1] == largest for c in held):
        found = {c.id: c.place for c in claims if c.place[1] == largest and c.place[0] not in said}
        if len(set(found.values())) == len(found):
            return found
    kept = {c.id: c.held for c in held}
    for claim in claims:
        taken = said | {rank for rank, _ in kept.values()}
        if claim.place[1] == present > 0 and claim.place[0] not in taken:
            kept.setdefault(claim.id, claim.place)
    return kept


def _wishes(claim: Claim, devices: int) -> Iterator[int]:
    """Numbers below the count of devices are left to those that use these."""
    local = number_in(claim.environment, "LOCAL_RANK")
    if claim.guessed >= 0:
        yield claim.guessed
    yield claim.device if local is None else local
    yield from count(devices)
