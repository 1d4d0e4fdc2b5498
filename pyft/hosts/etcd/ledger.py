"""The ledger in etcd: one of several heads decides, and each decision is a transaction.

    DECIDER   the key of the head that decides, which vanishes with its lease. The revision in which it
              was made is the head's number here: no other head ever has it
    decisions one key for each, numbered. It is written if DECIDER still has that revision, and the
              number is free: what a head asks for after its time has no effect, however late it comes

A head that etcd has not confirmed for as long as its lease says nothing any more. The next one decides
only after that: etcd counts from later than the head does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyft.hosts.etcd.gateway import Put, Store
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


class EtcdLedger(ElectedLedger):
    """Decisions of one job, for the head that has been elected. `make` opens a store for a thread."""

    store_name = "etcd"

    def __init__(self, make: Callable[[], Store], job: str, secret: bytes, name: str) -> None:
        super().__init__(job, secret, name)
        self._make, self._store = make, make()
        self._prefix = f"/pyft/{job}"
        self._lease = 0

    @property
    def _decider(self) -> str:
        return f"{self._prefix}/decider"

    def _decision(self, number: int) -> str:
        return f"{self._prefix}/decisions/{number:012d}"

    # ---- election -----------------------------------------------------------------------------

    def _try(self, seconds: int) -> str:
        """Try to be the head that decides; return which one is, if it is not this one."""
        try:
            return self._ask_for_it(seconds)
        except Refused:
            if not self._lease or elected.now() <= self._until:
                raise
            self._lease = 0  # it has ended since it was kept: there is no such lease, says etcd
            return ""

    def _ask_for_it(self, seconds: int) -> str:
        if not self._lease or elected.now() > self._until:
            sent = elected.now()
            self._lease, granted = self._store.grant(seconds, ASK_S)
            self._seconds, self._until = granted, sent + COUNTS * granted
        sent = elected.now()
        left = self._store.keep(self._lease, ASK_S)
        if not left:
            self._lease = 0
            return ""
        self._until = sent + COUNTS * left
        put = Put(self._decider, self._name.encode(), self._lease)
        _, found = self._store.transact({self._decider: 0}, [put], self._decider, ASK_S)
        if found and found.lease == self._lease:
            self._election = found.created
            return ""
        return printable(found.value) if found else ""

    def _keeping(self) -> Callable[[], float]:
        store = self._make()
        return lambda: self._keep_once(store)

    def _keep_once(self, store: Store) -> float:
        """Keep the lease; return in how many seconds it has to be kept again."""
        sent, pause = elected.now(), self._seconds / 3
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

    def _let_go(self) -> None:
        self._store.revoke(self._lease, ASK_S)

    # ---- decisions ----------------------------------------------------------------------------

    def _read(self) -> None:
        found = self._store.read(f"{self._prefix}/decisions/", ASK_S)
        for number, one in enumerate(found):
            is_its = one.key == self._decision(number)
            self.entries.append(self._opened(number, one.value, one.key, is_its))
        self._count = len(found)

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is in etcd when this returns. Raise OSError."""
        key, value = self._decision(self._count), self._sealed(self._count, entry)
        created = {self._decider: self._election, key: 0}
        while not self.lost():
            left = max(AGAIN_S, min(ASK_S, self._until - elected.now()))
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
            self._lost = ANOTHER
        raise OSError(0, self._lost)
