"""Reads what agents say of their servers, and gives it to what decides (alone.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyft.hosts.head.alone import Alone
from pyft.hosts.head.declared import Declared
from pyft.hosts.wire import checked
from pyft.hosts.wire.link import LinkError
from pyft.hosts.wire.servers import IDS, MADE, OF_SERVERS, WORKS, message_of

MOST_SERVERS = 1024  # of a place
MOST_MEMBERS = 8192  # of communicators, which these are

Reader = Callable[[Alone, float, int, dict[str, Any]], None]


def heard(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    """Take a message; raise LinkError at what cannot be."""
    if checked.number(said, "round") == coordinator.facts.round:  # else of servers that are ended
        KINDS[said["kind"]](coordinator, now, place, said)


def _servers(said: dict[str, Any]) -> list[list[int]]:
    rows = checked.rows(said, "servers", 4, MOST_SERVERS)
    for id, epoch, state, left in rows:
        if not 0 <= id < IDS or epoch < 0 or not 0 <= state <= WORKS or left not in (0, 1):
            raise LinkError("[servers] has a row that cannot be")
    return rows


def _declare(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    members = checked.rows(said, "members", 6, MOST_MEMBERS)
    for key, _, id, epoch, state, repair in members:
        right = key >= 0 and 0 <= id < IDS and epoch >= 0
        if not right or not 0 <= state <= MADE or not 0 <= repair < 1 << 32:
            raise LinkError("[members] has a row that cannot be")
    minted = checked.rows(said, "minted", 2, MOST_MEMBERS)
    if any(key < 0 or not 0 <= id < IDS for key, id in minted):
        raise LinkError("[minted] has a row that cannot be")
    broken = checked.rows(said, "broken", 2, MOST_MEMBERS)
    if any(key < 0 for key, _ in broken):
        raise LinkError("[broken] has a row that cannot be")
    coordinator.declare(now, place, Declared(_servers(said), members, minted, broken))


def _stands(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    coordinator.stands(now, place, _servers(said))


def _who(said: dict[str, Any]) -> tuple[int, int]:
    return checked.number(said, "client", IDS - 1), checked.number(said, "epoch")


def _heard(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    coordinator.heard(now, place, *_who(said), message_of(said, OF_SERVERS))


def _looked(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    coordinator.looked(now, place, checked.number(said, "number"))


def _fault(coordinator: Alone, now: float, place: int, said: dict[str, Any]) -> None:
    coordinator.fault(now, place, *_who(said), checked.text(said, "why"))


KINDS: dict[str, Reader] = {
    "declare": _declare,
    "stands": _stands,
    "heard": _heard,
    "looked": _looked,
    "fault": _fault,
}
