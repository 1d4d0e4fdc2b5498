"""A connection to the head that is made again whenever it breaks: a thread beside the caller's loop.

What is said while there is none is lost; what says something that must arrive says it again at the
next welcome. Where there are several heads, one that is silent, or of an earlier term, is left for the
next one: only one of them decides, and the others take no connections.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pyft.hosts.wire.link import Link, LinkError

AGAIN_S = 0.2
WAIT_S = 3600.0  # for the head's next word; its end is noticed before
SILENT_AT = 0.4  # of the lease: a head that is one of several says something more often


class HeadLink:
    """Calls the head, says `hello()`, and queues what it answers."""

    def __init__(
        self, heads: Sequence[tuple[str, int]], secret: bytes, hello: Callable[[], dict[str, Any]]
    ) -> None:
        self._heads, self._secret, self._hello = list(heads), secret, hello
        self._term = 0  # of the head that has answered
        self._wait_s = WAIT_S
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
                self._serve(Link.to(self._heads[0], self._secret))
            self._heads.append(self._heads.pop(0))
            time.sleep(AGAIN_S)

    def _serve(self, link: Link) -> None:
        try:
            link.send("hello", **self._hello())
            with self._lock:
                self._link = link
            while not self._ended:
                said = link.receive(self._wait_s)
                if said is None and len(self._heads) > 1:
                    raise LinkError("it is silent")
                if said and self._concerns(said):
                    self._heard.append(said)
                    with contextlib.suppress(OSError):
                        os.write(self._waker, b"!")
        finally:
            with self._lock:
                self._link = None
            link.close()

    def _concerns(self, said: dict[str, Any]) -> bool:
        """Look at what heads say of themselves; say whether it is for the caller."""
        if said["kind"] == "welcome":
            term, lease = said.get("term", 0), said.get("lease_s", 0)
            if type(term) is not int or not isinstance(lease, (int, float)) or term < self._term:
                raise LinkError("it is a head of an earlier term, or none")
            self._term = term
            if len(self._heads) > 1:
                self._wait_s = max(AGAIN_S, SILENT_AT * lease)
        return bool(said["kind"] != "here")
