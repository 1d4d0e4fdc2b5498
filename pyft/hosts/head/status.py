"""What an operator is told of a job on several hosts: what each holds, and what faults have cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyft.hosts.head.places import Facts

if TYPE_CHECKING:
    from pyft.hosts.head.moves import Moves

MOST_FAULTS = 20
MOST_TOLD = 64  # spare hosts, and hosts that were drained


class Faults:
    """Each time that all went back: why, and what it has cost. Made of the ledger's entries."""

    def __init__(self) -> None:
        self.last: list[dict[str, Any]] = []
        self.count = 0
        self.alone = 0  # servers that were replaced while all others went on

    def take(self, entry: dict[str, Any], facts: Facts) -> None:
        """Take an entry with its time of day."""
        if entry["kind"] == "back":
            self.count += 1
            repeated = max(0, entry.get("steps", 0) - facts.line_step)
            fault = {"why": entry["why"], "step": facts.line_step, "repeated": repeated}
            self.last = [*self.last, fault | {"at": entry.get("at", 0.0), "seconds": None}]
            self.last = self.last[-MOST_FAULTS:]
        elif entry["kind"] == "alone":
            self.alone += 1
        elif entry["kind"] == "onward" and self.last:
            self.last[-1]["seconds"] = round(entry.get("at", 0.0) - self.last[-1]["at"], 3)


def describe(coordinator: Moves, faults: Faults, now: float) -> dict[str, Any]:
    """Return all of it, in plain values."""
    facts, drain = coordinator.facts, coordinator.facts.drain
    places = [
        {
            "place": place.number,
            "host": place.host,
            "life": place.life,
            "state": _state(coordinator, place.number),
            "ranks": place.ranks,
            "step": place.steps,
            "lease_s": round(max(0.0, place.lease - now), 1),
        }
        for place in facts.places.values()
    ]
    spares = [
        {"host": spare.name, "images": sorted([*image] for image in spare.images)}
        for spare in sorted(facts.spares.values(), key=lambda one: one.name)[:MOST_TOLD]
        if spare.lease > now and spare.port
    ]
    return {
        "phase": coordinator.phase.value,
        "failed": facts.failed,
        "term": facts.term,
        "places": places,
        "spares": spares,
        "line": {"number": facts.line, "step": facts.line_step, "holders": _texts(facts.holders)},
        "pending": coordinator.pending.number if coordinator.pending else 0,
        "passed": coordinator.passed,
        "passed_why": coordinator.passed_why if coordinator.passed else "",
        "drain": asdict(drain) if drain else None,
        "drains": {name: list(facts.drains[name]) for name in list(facts.drains)[-MOST_TOLD:]},
        "faults": {"count": faults.count, "alone": faults.alone, "last": faults.last},
    }


def _texts(holders: dict[int, list[str]]) -> dict[str, list[str]]:
    """Return that with keys as JSON has them."""
    return {str(place): names for place, names in holders.items()}


def _state(coordinator: Moves, number: int) -> str:
    """Return what a place is doing."""
    place = coordinator.facts.places[number]
    if place.code is not None:
        return f"ended with [{place.code}]"
    if not place.life:
        return "has not started"
    if place.leaving:
        return "leaves its host"
    if not place.claimed:
        return "is being taken"
    if not coordinator.facts.is_back and place.restored != coordinator.facts.round:
        return "goes back"
    if place.lacks_gpu:
        return "waits for a GPU"
    return "runs" if place.present else "has no agent"
