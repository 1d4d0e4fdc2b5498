"""Messages between the relays of two places: each arrives once, in order, over a way that may lose them.

A message has a number and stays here until the other side has confirmed it. Both ends are in
images: when all places go back to a line, each end is as it was there, and sends again what was
under way. So nothing may arrive from a place that has been dumped already, before this one has:
what stands between (pyft/hosts/place/relayed.py) drops it. Without input or output.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import deque
from dataclasses import dataclass

MAC = 16
CHUNK = 32 << 10  # bytes of a connection in one message
WINDOW = 8  # messages that may be under way: as many as the kernel takes for a socket of this kind
AGENT = 0xFFFF  # stands for the agent of the same place
FIRST_S, LONGEST_S = 0.2, 2.0  # until what is not confirmed is sent again
_HEADER = struct.Struct("!HHQQQB")  # from, to, number, confirmed, stream, kind
MOST_DATA = 96 << 10  # of one datagram: the addresses of all places
LARGEST = MAC + _HEADER.size + MOST_DATA

# Kinds. BARE has no number: it only confirms, or is of the agent.
BARE, OPEN, OPENED, REFUSED, DATA, END, RESET, OVER, CREDIT = range(9)
MESSAGES = (OPEN, OPENED, REFUSED, DATA, END, RESET, OVER, CREDIT)


@dataclass(frozen=True)
class Datagram:
    """What is sent at once."""

    source: int
    target: int
    number: int
    confirmed: int
    stream: int
    kind: int
    data: bytes = b""


def packed(key: bytes, one: Datagram) -> bytes:
    """Return the bytes of a datagram, with what only a holder of the key can make."""
    fields = (one.source, one.target, one.number, one.confirmed, one.stream, one.kind)
    body = _HEADER.pack(*fields) + one.data
    return hashlib.blake2b(body, key=key, digest_size=MAC).digest() + body


def unpacked(key: bytes, data: bytes) -> Datagram | None:
    """Return a datagram; None if it is none of the job's."""
    body = data[MAC:]
    if not _HEADER.size <= len(body) <= _HEADER.size + MOST_DATA:
        return None
    wanted = hashlib.blake2b(body, key=key, digest_size=MAC).digest()
    if not hmac.compare_digest(wanted, data[:MAC]):
        return None
    return Datagram(*_HEADER.unpack_from(body), body[_HEADER.size :])


def target_of(data: bytes) -> int:
    """Return to which place a datagram goes, for what has no need of the rest."""
    return int.from_bytes(data[MAC + 2 : MAC + 4], "big") if len(data) >= MAC + 4 else AGENT


class Pair:
    """This place's end of the way to another one."""

    def __init__(self, here: int, there: int) -> None:
        self._here, self._there = here, there
        self._waiting: deque[tuple[int, int, int, bytes]] = deque()  # number, stream, kind, data
        self._last = 0  # number of the last message
        self._sent = 0  # the last one that was sent since the last try
        self.confirmed = 0  # the last one that the other side has
        self._got = 0  # the last one that arrived in order
        self._owes = False  # to confirm it
        self._again_at, self._again_s = 0.0, FIRST_S
        self.is_over = False  # the other place has ended: nothing goes there any more

    @property
    def is_full(self) -> bool:
        """Say whether more should wait."""
        return len(self._waiting) >= 2 * WINDOW

    @property
    def is_idle(self) -> bool:
        """Say whether all has been confirmed."""
        return not self._waiting

    def put(self, kind: int, stream: int, data: bytes = b"") -> None:
        """Send a message, now or when there is room."""
        if self.is_over:
            return
        self._last += 1
        self._waiting.append((self._last, stream, kind, data))

    def due(self, now: float) -> list[Datagram]:
        """Return what is to be sent now."""
        # Far ahead: the image was restored where the clock is another.
        late = now >= self._again_at or self._again_at > now + 2 * LONGEST_S
        if self._waiting and late and self._sent >= self._waiting[0][0]:
            self._sent = 0
            self._again_s = min(LONGEST_S, 2 * self._again_s)
        first = self._waiting[0][0] if self._waiting else 0
        found = []
        for number, stream, kind, data in self._waiting:
            if number >= first + WINDOW:
                break
            if number > self._sent:
                found.append(self._datagram(number, stream, kind, data))
                self._sent = number
        if found:
            self._again_at = now + self._again_s
        elif self._owes:
            found.append(self._datagram(0, 0, BARE, b""))
        self._owes = False
        return found

    def when(self) -> float | None:
        """Return when something is to be sent again."""
        return self._again_at if self._waiting else None

    def take(self, one: Datagram) -> Datagram | None:
        """Take what has arrived; return it if it is the next message."""
        self._confirm(one.confirmed)
        if one.kind not in MESSAGES:
            return None
        if one.number <= self._got:
            self._owes = True  # what confirmed it was lost
        if one.number != self._got + 1:
            return None
        self._got, self._owes = one.number, True
        if one.kind == OVER:  # the last one: what is sent there now is taken by nothing
            self._waiting.clear()
            self.is_over = True
        return one

    def _confirm(self, number: int) -> None:
        if number > self._last:
            return  # of a message that was never sent
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()
            self.confirmed = number
            self._again_s = FIRST_S

    def _datagram(self, number: int, stream: int, kind: int, data: bytes) -> Datagram:
        return Datagram(self._here, self._there, number, self._got, stream, kind, data)
