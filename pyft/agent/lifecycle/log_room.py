"""How large ring and arena would have to be for what a rank's client writes in a step.

Where all ranks replay they have common cuts between steps only. So the log has to hold one step, what
is left of the one before, and some more. Clients write what is read here: it only makes a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyft.agent.channel import page
from pyft.agent.members.member import Member

STEPS = 3  # that the log should hold
MIB = 1 << 20
MOST_MB = 1 << 16  # what is larger is no advice


@dataclass(frozen=True)
class Written:
    """By a client: steps, and bytes of calls and of their data; up to now, or in a step."""

    steps: int
    ring: float
    arena: float


class LogRoom:
    """Measures steps, by looks from time to time."""

    def __init__(self) -> None:
        self._seen: dict[int, Written] = {}  # when the last step was seen to end
        self._step: dict[int, Written] = {}  # what one has needed

    def look(self, member: Member) -> None:
        """Look once."""
        header, state = member.channel.header(), page.read(member.channel.control_fd)
        now = Written(state.steps, header["appended"], header["arena_head"])
        before = self._seen.setdefault(member.id, now)
        if now.steps <= before.steps:
            return
        self._seen[member.id] = now
        steps = now.steps - before.steps
        self._step[member.id] = Written(
            steps, (now.ring - before.ring) / steps, (now.arena - before.arena) / steps
        )

    def forget(self, id: int) -> None:
        """Do without a member that has ended."""
        self._seen.pop(id, None)
        self._step.pop(id, None)

    def advice(self, member: Member) -> str:
        """Return which settings would be enough, empty if these are, or no step is known."""
        if not (step := self._step.get(member.id)):
            return ""
        areas = member.channel.areas
        found = [
            f"{name}={_enough(bytes)}"
            for name, bytes, room in (
                ("PYFT_RING_MB", step.ring, areas.ring_bytes),
                ("PYFT_ARENA_MB", step.arena, areas.arena_bytes),
            )
            if room < STEPS * bytes <= MOST_MB * MIB
        ]
        if not found:
            return ""
        return (
            f"a step writes [{step.ring / MIB:.1f} MB] of calls and [{step.arena / MIB:.1f} MB] of "
            f"data: {' and '.join(found)} would be enough"
        )


def _enough(bytes: float) -> int:
    """Return the room for so large steps, in MB: a power of two."""
    return 1 << max(0, int(STEPS * bytes / MIB)).bit_length()
