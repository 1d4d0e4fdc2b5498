"""The agent's event loop, and what its parts need of it."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable
from typing import Any, Protocol

LONGEST_S = 60.0  # one turn, without a timer


class Loop(Protocol):
    """What parts of the agent need of its event loop."""

    def watch(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` can be read."""

    def watch_room(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` takes more."""

    def forget(self, source: Any) -> None:
        """Stop either; unknown sources are no error."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, later."""


class EventLoop:
    """Sources and timers. Single-threaded: callbacks run from `turn`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def watch(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` can be read."""
        self._selector.register(source, selectors.EVENT_READ, action)

    def watch_room(self, source: Any, action: Callable[[], Any]) -> None:
        """Call `action` whenever `source` takes more."""
        self._selector.register(source, selectors.EVENT_WRITE, action)

    def forget(self, source: Any) -> None:
        """Stop either."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, later."""
        self._timers.append((time.monotonic() + seconds, action))

    def turn(self, longest: float = LONGEST_S) -> int:
        """Call what is due, and wait for the next source or timer; return how many were ready."""
        now = time.monotonic()
        due = [timer for timer in self._timers if timer[0] <= now]
        self._timers = [timer for timer in self._timers if timer[0] > now]
        for _, action in due:
            action()
        next_due = now if due else min((at for at, _ in self._timers), default=now + longest)
        ready = self._selector.select(max(0.0, next_due - now))
        for key, _ in ready:
            # An earlier callback may have closed it, and then its number may be another one's.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        return len(ready)
