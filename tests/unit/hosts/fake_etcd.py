"""An etcd in memory, with a clock of its own, and a network that loses and delays what is asked."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyft.hosts.etcd.gateway import Put, Value
from pyft.hosts.head.elected import Refused, Unanswered


@dataclass
class FakeEtcd:
    """Keys and leases. `time` is etcd's, and that of all heads."""

    time: float = 1000.0
    revision: int = 1
    keys: dict[str, Value] = field(default_factory=dict)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)  # seconds and end
    late: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)

    def pass_time(self, seconds: float) -> None:
        """Go on: what is late is done in its time, and leases end."""
        until = self.time + seconds
        for when, do in sorted(self.late, key=lambda one: one[0]):
            if when <= until:
                self.time = max(self.time, when)
                self._end_leases()
                with contextlib.suppress(Refused):
                    do()
        self.late = [one for one in self.late if one[0] > until]
        self.time = until
        self._end_leases()

    def _end_leases(self) -> None:
        for lease in [one for one, (_, end) in self.leases.items() if end <= self.time]:
            self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        """End a lease and its keys."""
        self.leases.pop(lease, None)
        for key in [key for key, one in self.keys.items() if lease and one.lease == lease]:
            del self.keys[key]

    def log(self, prefix: str) -> list[Value]:
        """Return the keys that begin so."""
        return [self.keys[key] for key in sorted(self.keys) if key.startswith(prefix)]

    def put(self, one: Put) -> None:
        """Write a key."""
        if one.lease and one.lease not in self.leases:
            raise Refused("requested lease not found")
        self.revision += 1
        before = self.keys.get(one.key)
        created = before.created if before else self.revision
        self.keys[one.key] = Value(one.key, one.value, created, one.lease)

    def created(self, key: str) -> int:
        """Return the revision in which a key was made; 0: it is not there."""
        return self.keys[key].created if key in self.keys else 0


class FakeStore:
    """One head's way to it. `trouble`: which share of what is asked is lost, or late."""

    def __init__(self, etcd: FakeEtcd, dice: random.Random, trouble: float = 0.0) -> None:
        self.etcd, self._dice, self.trouble = etcd, dice, trouble

    def _ask(self, do: Callable[[], Any], seconds: float) -> Any:
        """Do it, or not, or later; and lose the answer or not."""
        if self._dice.random() >= self.trouble:
            done = do()
            if self._dice.random() < self.trouble:  # a slow answer
                self.etcd.pass_time(self._dice.uniform(0, seconds))
            return done
        how = self._dice.choice(("asked in vain", "done unheard", "done late"))
        if how == "done late":
            self.etcd.late.append((self.etcd.time + self._dice.uniform(0, 9), do))
        elif how == "done unheard":
            do()
        self.etcd.pass_time(seconds)
        raise Unanswered(how)

    def grant(self, seconds_to_live: int, seconds: float) -> tuple[int, int]:
        """Make a lease."""

        def do() -> tuple[int, int]:
            self.etcd.revision += 1
            lease = self.etcd.revision
            self.etcd.leases[lease] = (seconds_to_live, self.etcd.time + seconds_to_live)
            return lease, seconds_to_live

        return self._ask(do, seconds)

    def keep(self, lease: int, seconds: float) -> int:
        """Keep a lease."""

        def do() -> int:
            if lease not in self.etcd.leases:
                return 0
            lives = self.etcd.leases[lease][0]
            self.etcd.leases[lease] = (lives, self.etcd.time + lives)
            return lives

        return self._ask(do, seconds)

    def revoke(self, lease: int, seconds: float) -> None:
        """End a lease."""
        self._ask(lambda: self.etcd.end_lease(lease), seconds)

    def transact(
        self, created: dict[str, int], then: Sequence[Put], read: str, seconds: float
    ) -> tuple[bool, Value | None]:
        """Write if that holds, and read."""

        def do() -> tuple[bool, Value | None]:
            holds = all(self.etcd.created(key) == one for key, one in created.items())
            for one in then if holds else ():
                self.etcd.put(one)
            return holds, self.etcd.keys.get(read)

        return self._ask(do, seconds)

    def read(self, prefix: str, seconds: float) -> list[Value]:
        """Return all keys with a prefix."""
        return self._ask(lambda: self.etcd.log(prefix), seconds)
