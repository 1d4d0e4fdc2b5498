"""The ledger in Kubernetes: a Lease says which of several heads decides, ConfigMaps have the decisions.

    LEASE     its holder is the head that decides. Each head that is elected counts `leaseTransitions` on
              by one: that is the head's number here, and no other head ever has it
    pages     the decisions (pages.py). What an earlier head asks for has no effect, however late it comes

No clock is compared with another one. A head that waits sees the Lease change as long as its holder
lives; when it has not changed for the holder's time, by the own clock, the next version is written in
its place. That time begins later than the holder's own, which counts from when it asked.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyft.hosts.head import elected
from pyft.hosts.head.elected import (
    AGAIN_S,
    ANOTHER,
    ASK_S,
    COUNTS,
    ElectedLedger,
    Refused,
    Unanswered,
    printable,
)
from pyft.hosts.head.ledger import LedgerLost
from pyft.hosts.kubernetes.api import LEASES, Conflict, Found, Store
from pyft.hosts.kubernetes.pages import Pages, Superseded
from pyft.hosts.kubernetes.record import Record, stamp

MOST_ASKED = 16  # renewals without an answer that are known
_NONE = Record()


class KubernetesLedger(ElectedLedger):
    """Decisions of one job, for the head that has been elected. `make` opens a store for a thread."""

    store_name = "the API server"

    def __init__(self, make: Callable[[], Store], job: str, secret: bytes, name: str) -> None:
        """`job`: the name of the Lease."""
        super().__init__(job, secret, name)
        self._make, self._store = make, make()
        self._job = job
        self._me = f"{name}, {secrets.token_hex(8)}"  # of this election only
        self._pages = Pages(self._store, job, ASK_S)
        self._seen: tuple[Record | None, float] | None = None  # the Lease, and since when it is so
        self._asked: dict[str, float] = {}  # when which time was asked to be written

    # ---- election -----------------------------------------------------------------------------

    def _try(self, seconds: int) -> str:
        """Try to be the head that decides; return which one is, if it is not this one."""
        self._seconds = seconds
        found = self._store.read(LEASES, self._job, ASK_S)
        record = Record.of(found.content) if found else None
        at = elected.now()
        if record and record.holder == self._me:  # an earlier request has had no answer
            return self._again(self._store, found, record)
        if self._seen is None or self._seen[0] != record:
            self._seen = (record, at)
        if not self._is_free(record, seconds, at):
            return printable((record or _NONE).holder.encode())
        number = max(record.transitions if record else 0, self._pages.newest()) + 1
        stands = Record(self._me, seconds, acquired=stamp(time.time()), transitions=number)
        with contextlib.suppress(Conflict):  # another one was elected, or still lives
            self._renew(self._store, found, stands)
            self._election = number
        return ""

    def _is_free(self, record: Record | None, seconds: int, at: float) -> bool:
        """Say whether no head decides any more; one whose Lease was deleted may not know it yet."""
        assert self._seen
        if record and not record.holder:
            return True
        if record is None and not self._pages.newest():
            return True
        return at >= self._seen[1] + max(seconds, (record or _NONE).seconds)

    def _again(self, store: Store, found: Found | None, record: Record) -> str:
        """Have a Lease that was written unheard, perhaps long ago."""
        with contextlib.suppress(Conflict):
            self._renew(store, found, record)
            self._election = record.transitions
        return ""

    def _renew(self, store: Store, found: Found | None, record: Record) -> Found:
        """Write the Lease as the next version of what was found; raise Conflict, Unanswered, Refused."""
        sent = elected.now()
        record = replace(record, renewed=self._stamp())
        self._asked[record.renewed] = sent
        if found is None:
            written = store.create(LEASES, self._job, record.spec(), ASK_S)
        else:
            written = store.update(LEASES, self._job, found, record.spec(), ASK_S)
        self._confirm(record.renewed)
        return written

    def _stamp(self) -> str:
        """Return the time, which no other request of this head has."""
        at = time.time()
        while (text := stamp(at)) in self._asked:
            at += 1e-6
        return text

    def _confirm(self, renewed: str) -> None:
        """Count from when that was asked for; what was asked before needs no answer any more."""
        sent = self._asked.get(renewed)
        if sent is not None:
            self._until = max(self._until, sent + COUNTS * self._seconds)
            later = {text: at for text, at in self._asked.items() if at >= sent}
            self._asked = dict(list(later.items())[-MOST_ASKED:])

    def _keeping(self) -> Callable[[], float]:
        store = self._make()
        found: list[Found | None] = [None]
        return lambda: self._keep_once(store, found)

    def _keep_once(self, store: Store, known: list[Found | None]) -> float:
        """Renew the Lease; return in how many seconds that has to be done again.

        `known`: its version, which is read if this thread does not know it.
        """
        try:
            found = known[0] or store.read(LEASES, self._job, ASK_S)
            record = Record.of(found.content) if found else _NONE
            if record.holder != self._me or record.transitions != self._election:
                self._lost = ANOTHER if found else "its Lease was deleted"
                return AGAIN_S
            self._confirm(record.renewed)
            known[0] = None
            known[0] = self._renew(store, found, record)
        except (Unanswered, Conflict):  # the next time it is read
            return AGAIN_S
        except Refused as error:
            self._lost = str(error)
        return self._seconds / 3

    def _let_go(self) -> None:
        """Leave the Lease without a holder."""
        for _ in range(3):  # a renewal may be under way
            found = self._store.read(LEASES, self._job, ASK_S)
            record = Record.of(found.content) if found else _NONE
            if not found or record.holder != self._me:
                return
            with contextlib.suppress(Conflict):
                free = replace(record, holder="", seconds=1).spec()
                self._store.update(LEASES, self._job, found, free, ASK_S)
                return

    # ---- decisions ----------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            pages = self._pages.take(self._election)
        except Superseded as error:
            self._lost = str(error)
            raise LedgerLost(f"the ledger cannot be read: {error}") from None
        self.entries = []
        for page in pages:
            for key, value in page.decisions():
                number = len(self.entries)
                is_its = key == self._pages.key_of(number)
                self.entries.append(self._opened(number, value.encode(), key, is_its))
        self._count = len(self.entries)

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is in Kubernetes when this returns. Raise OSError."""
        value = self._sealed(self._count, entry).decode()
        while not self.lost():
            try:
                self._pages.add(self._count, value, self._election)
                self._count += 1
                return
            except Unanswered:  # it may have been written, or will be: the next answer says so
                time.sleep(AGAIN_S)
            except (Superseded, Refused) as error:
                self._lost = str(error)
        raise OSError(0, self._lost)
