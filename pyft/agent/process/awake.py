"""A clock that stands still while this process does: stopped by a lease, paused, or without a core.

What such a process has not heard meanwhile says nothing about those that would have said it.
"""

from __future__ import annotations

import threading
import time

MOST_S = 0.25  # that counts between two looks, which have to come more often


class AwakeClock:
    """Seconds in which this process has run. Any thread may look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at = self._now = time.monotonic()

    def now(self) -> float:
        """Look at it."""
        with self._lock:
            at = time.monotonic()
            self._now += min(at - self._looked_at, MOST_S)
            self._looked_at = at
            return self._now
