"""The ledger in etcd: one of several heads decides, and each decision is a transaction.

    DECIDER   the key of the head that decides, which vanishes with its lease. The revision in which it
              was made is the head's number here: no other head ever has it
    decisions one key for each, numbered. It is written if DECIDER still has that revision, and the
              number is free: what a head asks for after its time has no effect, however late it comes

A head that etcd has not confirmed for as long as its lease says nothing any more. The next one decides
only after that: etcd counts from later than the head does.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from pyft.errors import UsageError
from pyft.hosts.etcd.gateway import Put, Refused, Store, Unanswered, Value
from pyft.hosts.head.ledger import LedgerLost
from pyft.hosts.wire.link import key_for

ASK_S = 2.0  # for one answer
AGAIN_S = 0.1
LOOK_S = 0.5  # between two looks of a head that waits
SILENT_S = 600.0  # of etcd, for a head that waits: hosts give up then, too
FIRST_S = 10.0  # of etcd, at the start
COUNTS = 0.9  # of the lease: clocks need not run alike
_MAC = 16


def now() -> float:
    """Return the time, which goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class EtcdLedger:
    """Decisions of one job, for the head that has been elected. `make` opens a store for a thread."""

    is_shared = True

    def __init__(self, make: Callable[[], Store], job: str, secret: bytes, name: str) -> None:
        """`name`: of this head, for people."""
        self._make, self._store, self._name = make, make(), name
        self._prefix = f"/pyft/{job}"
        self._key = key_for(secret, "ledger", job.encode())
        self._lease = self._revision = 0
        self._seconds = 0  # of the lease
        self._until = 0.0  # of the time that etcd has confirmed
        self._lost = ""
        self._closed = threading.Event()
        self.entries: list[dict[str, Any]] = []
        self._count = 0

    @property
    def _decider(self) -> str:
        return f"{self._prefix}/decider"

    def _decision(self, number: int) -> str:
        return f"{self._prefix}/decisions/{number:012d}"

    # ---- election -----------------------------------------------------------------------------

    def stand(self, seconds: float, say: Callable[[str], None], is_first: bool = True) -> None:
        """Wait until this head decides, and read what has been; raise UsageError if it cannot.

        `seconds`: the lease of the head that decides; `is_first`: etcd has not answered ever.
        """
        answered, most, told = now(), FIRST_S if is_first else SILENT_S, ""
        while not self._revision:
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
                if not self._lease or now() <= self._until:
                    raise UsageError(f"the ledger cannot be used: {error}") from None
                self._lease = 0  # it has ended since it was kept: there is no such lease, says etcd
            if not self._revision:
                time.sleep(LOOK_S)
        threading.Thread(target=self._keep, daemon=True).start()
        try:
            self._read()
        except Refused as error:
            raise UsageError(f"the ledger cannot be used: {error}") from None

    def _try(self, seconds: int) -> str:
        """Try to be the head that decides; return which one is, if it is not this one."""
        if not self._lease or now() > self._until:
            sent = now()
            self._lease, granted = self._store.grant(seconds, ASK_S)
            self._seconds, self._until = granted, sent + COUNTS * granted
        sent = now()
        left = self._store.keep(self._lease, ASK_S)
        if not left:
            self._lease = 0
            return ""
        self._until = sent + COUNTS * left
        put = Put(self._decider, self._name.encode(), self._lease)
        _, found = self._store.transact({self._decider: 0}, [put], self._decider, ASK_S)
        if found and found.lease == self._lease:
            self._revision = found.created
            return ""
        return _printable(found.value) if found else ""

    def _keep(self) -> None:
        """Keep the lease: a thread that does nothing else."""
        store, pause = self._make(), 0.0
        while not self._closed.wait(pause) and not self._lost:
            pause = self._keep_once(store)

    def _keep_once(self, store: Store) -> float:
        """Keep the lease; return in how many seconds it has to be kept again."""
        sent, pause = now(), self._seconds / 3
        try:
            left = store.keep(self._lease, max(0.5, pause))
        except Unanswered:
            return AGAIN_S
        except Refused as error:
            self._lost = str(error)
            return pause
        if not left:
            self._lost = "its lease in etcd has ended"
        self._until = max(self._until, sent + COUNTS * left)
        return pause

    def lost(self) -> str:
        """Return why this head decides no more, nothing as long as it does."""
        if not self._lost and now() > self._until:
            self._lost = f"etcd has confirmed nothing for [{COUNTS * self._seconds:.1f}] s"
        return self._lost

    # ---- decisions ----------------------------------------------------------------------------

    def _read(self) -> None:
        """Read all decisions: no other head writes any more."""
        while True:
            try:
                found = self._store.read(f"{self._prefix}/decisions/", ASK_S)
                break
            except Unanswered as error:
                if self.lost():
                    raise LedgerLost(f"the ledger cannot be read: {error}") from None
                time.sleep(AGAIN_S)
        for number, one in enumerate(found):
            self.entries.append(self._opened(number, one))
        self._count = len(found)

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is in etcd when this returns. Raise OSError."""
        key, value = self._decision(self._count), self._sealed(self._count, entry)
        created = {self._decider: self._revision, key: 0}
        while not self.lost():
            left = max(AGAIN_S, min(ASK_S, self._until - now()))
            try:
                done, found = self._store.transact(created, [Put(key, value)], key, left)
            except Unanswered:  # it may have been written, or will be: the next answer says so
                time.sleep(AGAIN_S)
                continue
            except Refused as error:
                self._lost = str(error)
                break
            if done or (found and found.value == value):
                self._count += 1
                return
            self._lost = "another head decides"
        raise OSError(0, self._lost)

    def close(self) -> None:
        """Decide no more; another head need not wait."""
        self._closed.set()
        self._lost = self._lost or "it has ended"
        with contextlib.suppress(OSError, Refused):
            self._store.revoke(self._lease, ASK_S)

    def _mac(self, number: int, text: bytes) -> bytes:
        keyed = hashlib.blake2b(number.to_bytes(8, "big"), key=self._key, digest_size=_MAC)
        keyed.update(text)
        return keyed.hexdigest().encode()

    def _sealed(self, number: int, entry: dict[str, Any]) -> bytes:
        """Return an entry as only a head of this job can make it, for this number."""
        text = json.dumps({"by": self._revision, "entry": entry}).encode()
        return self._mac(number, text) + text

    def _opened(self, number: int, one: Value) -> dict[str, Any]:
        """Return the entry of a key; raise UsageError if no head of this job has made it."""
        mac, text = one.value[: 2 * _MAC], one.value[2 * _MAC :]
        if one.key == self._decision(number) and hmac.compare_digest(mac, self._mac(number, text)):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(text)["entry"]
                if isinstance(entry["kind"], str):
                    return dict(entry)
        raise UsageError(
            f"the ledger's key [{one.key:.200}] is none of this job: it was changed, one before it is "
            "missing, or PYFT_TOKEN is another job's"
        )


def _printable(value: bytes) -> str:
    text = value[:100].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text) or "another head"
