"""A connection to the head that is made again whenever it breaks: a thread beside the caller's loop.

What is said while there is none is lost; what says something that must arrive says it again at the
next welcome.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pyft.hosts.wire.link import Link

AGAIN_S = 0.2
WAIT_S = 3600.0  # for the head's next word; its end is noticed before


class HeadLink:
    """Calls the head, says `hello()`, and queues what it answers."""

    def __init__(
        self, where: tuple[str, int], secret: bytes, hello: Callable[[], dict[str, Any]]
    ) -> None:
        self._where, self._secret, self._hello = where, secret, hello
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._heard: deque[dict[str, Any]] = deque()
        self._ended = False
        self.wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, kind: str, **values: Any) -> bool:
        """Send a message; say whether there was a connection."""
        with self._lock:
            if self._link is None:
                return False
            try:
                self._link.send(kind, **values)
            except OSError:
                self._link.close()
                self._link = None
                return False
        return True

    def heard(self) -> dict[str, Any] | None:
        """Return the next message of the head, None if there is none."""
        with contextlib.suppress(OSError):
            os.read(self.wake, 4096)
        return self._heard.popleft() if self._heard else None

    def end(self) -> None:
        """Call no more."""
        self._ended = True
        with self._lock:
            if self._link:
                self._link.close()

    def _run(self) -> None:
        while not self._ended:
            with contextlib.suppress(OSError):
                self._serve(Link.to(self._where, self._secret))
            time.sleep(AGAIN_S)

    def _serve(self, link: Link) -> None:
        try:
            link.send("hello", **self._hello())
            with self._lock:
                self._link = link
            while not self._ended:
                if said := link.receive(WAIT_S):
                    self._heard.append(said)
                    with contextlib.suppress(OSError):
                        os.write(self._waker, b"!")
        finally:
            with self._lock:
                self._link = None
            link.close()
