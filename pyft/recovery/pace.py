"""How long a step takes, from what is seen of their number. Without input or output."""

from __future__ import annotations

from collections import deque

_WINDOW = 4  # times at which the number was seen to have grown


class Pace:
    """Of one job."""

    def __init__(self) -> None:
        self._steps = -1
        self._grew: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

    def saw(self, now: float, steps: int) -> None:
        """Note how many there were at that time. The first look is in the middle of a step."""
        if steps < self._steps:  # all have gone back to a line
            self._grew.clear()
        elif steps > self._steps >= 0:
            self._grew.append((now, steps))
        self._steps = steps

    def step_s(self, now: float) -> float:
        """Return the seconds that a step takes, at least those of the one that runs; 0: not known."""
        if len(self._grew) < 2:
            return 0.0
        (began, first), (ended, last) = self._grew[0], self._grew[-1]
        return max((ended - began) / (last - first), now - ended)
