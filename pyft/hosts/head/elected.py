"""A ledger that several heads share: one of them is elected and decides, the others wait.

A head that the ledger's store has not confirmed for as long as its lease says nothing any more. The next
one decides only after that. Stores are pyft.hosts.etcd and pyft.hosts.kubernetes: what differs is how
a head is elected, and how a decision of an earlier one is kept out.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from pyft.errors import UsageError
from pyft.hosts.head.ledger import LedgerLost
from pyft.hosts.wire.link import key_for

ASK_S = 2.0  # for one answer
AGAIN_S = 0.1
LOOK_S = 0.5  # between two looks of a head that waits
SILENT_S = 600.0  # of the store, for a head that waits: hosts give up then, too
FIRST_S = 10.0  # of the store, at the start
COUNTS = 0.9  # of the lease: clocks need not run alike
ANOTHER = "another head decides"
_MAC = 16


class Unanswered(OSError):
    """The store has not answered in time: it may have been done, or may be done later."""


class Refused(Exception):
    """The store has answered, and does not do it."""


def now() -> float:
    """Return the time, which goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ElectedLedger(abc.ABC):
    """Decisions of one job, for the head that has been elected."""

    is_shared = True
    store_name = ""  # in sentences

    def __init__(self, job: str, secret: bytes, name: str) -> None:
        """`name`: of this head, for people."""
        self._name = name
        self._key = key_for(secret, "ledger", job.encode())
        self._election = 0  # its number, which no other head ever has; 0: not elected
        self._seconds = 0  # of the lease
        self._until = 0.0  # of the time that the store has confirmed
        self._lost = ""
        self._closed = threading.Event()
        self.entries: list[dict[str, Any]] = []
        self._count = 0

    # ---- election -----------------------------------------------------------------------------

    def stand(self, seconds: float, say: Callable[[str], None], is_first: bool = True) -> None:
        """Wait until this head decides, and read what has been; raise UsageError if it cannot.

        `seconds`: the lease of the head that decides; `is_first`: the store has not answered ever.
        """
        answered, most, told = now(), FIRST_S if is_first else SILENT_S, ""
        while not self._election:
            try:
                other = self._try(max(2, round(seconds)))
                answered, most = now(), SILENT_S
                if other and other != told:
                    say(f"head: [{other}] decides for this job; this one waits")
                    told = other
            except Unanswered as error:
                if now() > answered + most:
                    raise UsageError(
                        f"the ledger cannot be reached for [{most:g}] s: {error}"
                    ) from None
            except Refused as error:
                raise UsageError(f"the ledger cannot be used: {error}") from None
            if not self._election:
                time.sleep(LOOK_S)
        threading.Thread(target=self._keep, daemon=True).start()
        self._read_all()

    @abc.abstractmethod
    def _try(self, seconds: int) -> str:
        """Try to be elected; return the head that is, if it is another one. Raise Unanswered, Refused."""

    def _keep(self) -> None:
        """Keep the lease: a thread that does nothing else."""
        pause = 0.0
        keeps = self._keeping()
        while not self._closed.wait(pause) and not self._lost:
            pause = keeps()

    @abc.abstractmethod
    def _keeping(self) -> Callable[[], float]:
        """Return what keeps the lease once, in a thread of its own, and says when to do so again."""

    def lost(self) -> str:
        """Return why this head decides no more, nothing as long as it does."""
        if not self._lost and now() > self._until:
            silent_s = COUNTS * self._seconds
            self._lost = f"{self.store_name} has confirmed nothing for [{silent_s:.1f}] s"
        return self._lost

    def close(self) -> None:
        """Decide no more; another head need not wait."""
        self._closed.set()
        self._lost = self._lost or "it has ended"
        with contextlib.suppress(OSError, Refused):
            self._let_go()

    @abc.abstractmethod
    def _let_go(self) -> None:
        """Have the next head elected at once. Raise OSError, Refused."""

    # ---- decisions ----------------------------------------------------------------------------

    def _read_all(self) -> None:
        """Read all decisions: no other head writes any more."""
        while True:
            try:
                return self._read()
            except Unanswered as error:
                if self.lost():
                    raise LedgerLost(f"the ledger cannot be read: {error}") from None
                time.sleep(AGAIN_S)
            except Refused as error:
                raise UsageError(f"the ledger cannot be used: {error}") from None

    @abc.abstractmethod
    def _read(self) -> None:
        """Read all decisions into `entries`. Raise Unanswered, Refused, UsageError, LedgerLost."""

    @abc.abstractmethod
    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is in the store when this returns. Raise OSError."""

    def _mac(self, number: int, text: bytes) -> bytes:
        keyed = hashlib.blake2b(number.to_bytes(8, "big"), key=self._key, digest_size=_MAC)
        keyed.update(text)
        return keyed.hexdigest().encode()

    def _sealed(self, number: int, entry: dict[str, Any]) -> bytes:
        """Return an entry as only a head of this job can make it, for this number."""
        text = json.dumps({"by": self._election, "entry": entry}).encode()
        return self._mac(number, text) + text

    def _opened(self, number: int, value: bytes, key: str, is_its: bool = True) -> dict[str, Any]:
        """Return the entry of a key; raise UsageError if no head of this job has made it."""
        mac, text = value[: 2 * _MAC], value[2 * _MAC :]
        if is_its and hmac.compare_digest(mac, self._mac(number, text)):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(text)["entry"]
                if isinstance(entry["kind"], str):
                    return dict(entry)
        raise UsageError(
            f"the ledger's key [{key:.200}] is none of this job: it was changed, one before it is "
            "missing, or PYFT_TOKEN is another job's"
        )


def printable(value: bytes) -> str:
    """Return what a head has called itself."""
    text = value[:100].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text) or "another head"
