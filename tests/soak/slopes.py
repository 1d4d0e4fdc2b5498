"""How much the processes of a long job grow in an hour, whichever of them are replaced meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from growth import Sample

HOUR_MS = 3_600_000
WARM_UP_MS = 20_000  # of each process
SHORTEST = 4  # samples behind that
HALVES_MS = 1_800_000  # of a job whose second half is told as well
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


def settled(samples: Sequence[Sample], since: float) -> list[Sample]:
    """Return the samples behind the warm-up of a process, and of a time on; none if few are left."""
    late = [one for one in samples if one.step >= max(samples[0].step + WARM_UP_MS, since)]
    return late if len(late) >= SHORTEST else []


def summary(
    lives: Mapping[tuple[str, int], Sequence[Sample]], objects: Sequence[tuple[int, int, int]]
) -> dict[str, Any]:
    """Return growth per hour by role, and that of the memory objects that all share.

    A long job has rows of its second half too. There, what fills up to its size once is full.
    """
    found = _growth(lives, objects, 0.0)
    last = objects[-1][0] if objects else 0
    if last >= HALVES_MS:
        late = _growth(lives, objects, last / 2)
        found |= {f"{role}, second half": row for role, row in late.items()}
    return found


def _growth(
    lives: Mapping[tuple[str, int], Sequence[Sample]],
    objects: Sequence[tuple[int, int, int]],
    since: float,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for role in dict.fromkeys(who.split()[0] for who, _ in lives):
        mine = [settled(s, since) for (who, _), s in lives.items() if who.split()[0] == role]
        mine = [samples for samples in mine if samples]
        if mine:
            found[role] = _of_role(mine)
    late = [one for one in objects if one[0] >= max(WARM_UP_MS, since)]
    if len(late) >= SHORTEST:
        found["memory objects"] = {
            "lives": 1,
            "minutes": round((late[-1][0] - late[0][0]) / 60_000, 1),
            "objects": round(HOUR_MS * pooled([[(at, n) for at, n, _ in late]]), 1),
            "shared": round(HOUR_MS * pooled([[(at, kb) for at, _, kb in late]]), 1),
        }
    return found


def _of_role(lives: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    slopes = {
        what: pooled([[(s.step, getattr(s, what)) for s in one] for one in lives]) for what in WHAT
    }
    return {
        "lives": len(lives),
        "minutes": round(sum(s[-1].step - s[0].step for s in lives) / 60_000, 1),
        **{what: round(HOUR_MS * slope, 1) for what, slope in slopes.items()},
    }
