"""How far a rank was in its communicators at a cut. Cuts whose lines fit can be gone back to together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NOT_MADE, ENDED = -1, 1 << 62  # in the place of a number of collectives


@dataclass
class Line:
    """How far a rank was in a communicator: collectives, and messages by the other one's rank."""

    rank: int
    collectives: int
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)

    def is_behind(self, other: Line) -> bool:
        """Say whether the other one is past something that needs this one."""
        return (
            self.collectives < other.collectives
            or self.received.get(other.rank, 0) < other.sent.get(self.rank, 0)
            or self.sent.get(other.rank, 0) < other.received.get(self.rank, 0)
        )


Lines = dict[int, Line]  # by communicator


def note_of(lines: Lines | None) -> list[Any] | None:
    """Return lines as plain values, for the next agent."""
    if lines is None:
        return None
    return [
        [key, line.rank, line.collectives, sorted(line.sent.items()), sorted(line.received.items())]
        for key, line in lines.items()
    ]


def lines_of(note: list[Any] | None) -> Lines | None:
    """Return the lines of a note."""
    if note is None:
        return None
    return {key: Line(rank, n, dict(sent), dict(got)) for key, rank, n, sent, got in note}
