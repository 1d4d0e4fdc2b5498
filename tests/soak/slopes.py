"""How much the processes of a long job grow in an hour, whichever of them are replaced meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from growth import Sample

HOUR_MS = 3_600_000
WARM_UP_MS = 20_000  # of each process
SHORTEST = 4  # samples behind that
WHAT = ("kilobytes", "shared", "descriptors")
Point = tuple[float, float]


def pooled(lives: Sequence[Sequence[Point]]) -> float:
    """Return the slope that all lives have in common, by least squares, each with its own level."""
    above = below = 0.0
    for points in lives:
        x = sum(at for at, _ in points) / len(points)
        y = sum(value for _, value in points) / len(points)
        above += sum((at - x) * (value - y) for at, value in points)
        below += sum((at - x) ** 2 for at, _ in points)
    return above / below if below else 0.0


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples behind the warm-up of a process; none where too few are left."""
    late = [one for one in samples if one.step - samples[0].step >= WARM_UP_MS]
    return late if len(late) >= SHORTEST else []


def summary(
    lives: Mapping[tuple[str, int], Sequence[Sample]], objects: Sequence[tuple[int, int, int]]
) -> dict[str, Any]:
    """Return growth per hour by role, and that of the memory objects that all share."""
    found: dict[str, Any] = {}
    for role in dict.fromkeys(who.split()[0] for who, _ in lives):
        mine = [settled(s) for (who, _), s in lives.items() if who.split()[0] == role]
        mine = [samples for samples in mine if samples]
        if not mine:
            continue
        found[role] = {
            "lives": len(mine),
            "minutes": round(sum(s[-1].step - s[0].step for s in mine) / 60_000, 1),
            **{
                what: round(
                    HOUR_MS * pooled([[(s.step, getattr(s, what)) for s in one] for one in mine]), 1
                )
                for what in WHAT
            },
        }
    late = [one for one in objects if one[0] >= WARM_UP_MS]
    if len(late) >= SHORTEST:
        found["memory objects"] = {
            "lives": 1,
            "minutes": round((late[-1][0] - late[0][0]) / 60_000, 1),
            "objects": round(HOUR_MS * pooled([[(at, n) for at, n, _ in late]]), 1),
            "shared": round(HOUR_MS * pooled([[(at, kb) for at, _, kb in late]]), 1),
        }
    return found
