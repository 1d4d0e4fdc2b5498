"""Which servers are replaced while all others go on, and what they say to others for that.

    a server dies --fault--> is it making a communicator?  --yes--> all go back
                               | no
                               v
                             ledger: alone --alone--> its agent repairs it, as on one host

What repairs.py decides is relayed, and not in the ledger: agents tell it again. Without input or output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyft.hosts.head.coordinator import Coordinator
from pyft.hosts.head.decisions import Phase
from pyft.hosts.head.declared import Declared, Doubt, Look, Tell
from pyft.hosts.head.places import Facts
from pyft.hosts.head.repairs import Repairs
from pyft.hosts.wire.servers import as_text
from pyft.wire.message import Message


class Alone(Coordinator):
    """Decides about servers: which is replaced alone."""

    def __init__(self, facts: Facts, *args: Any, **how: Any) -> None:
        super().__init__(facts, *args, **how)
        self.repairs = Repairs(len(facts.places), facts.term + 1)
        self._recovering = False  # as all agents were told
        for place in facts.places.values():
            if place.code is not None:
                self.repairs.ended(self.now, place.number)

    # ---- what agents say ----------------------------------------------------------------------

    def fault(self, now: float, number: int, client: int, epoch: int, why: str) -> None:
        """A server of a place has died: it is replaced alone, or all go back."""
        facts = self.facts
        if facts.failed or not self.repairs.is_complete:
            return None  # the agent asks again
        why = f"{why}; place [{number}]"
        if facts.alone.get((number, client)) != epoch:
            if not_alone := self.repairs.why_not_alone(number, client):
                return self.lost(now, number, f"{why}; it is not replaced alone: {not_alone}")
            if self.phase in (Phase.HOLD, Phase.DUMP):
                self._pass_over(now, f"a rank of place [{number}] is being recovered")
            self._write("alone", place=number, client=client, epoch=epoch, why=why)
        self._say(("agent", number), "alone", round=facts.round, client=client, epoch=epoch)
        return None

    def declare(self, now: float, number: int, said: Declared) -> None:
        """Take all about the servers of a place."""
        if self.facts.places[number].code is None:
            self.repairs.declare(now, number, said)
            self._say_orders()
            self._say_recovering(number)

    def stands(self, now: float, number: int, rows: Iterable[list[int]]) -> None:
        """Note what servers of a place are now."""
        self.repairs.stands(now, number, rows)
        self._say_orders()

    def heard(self, now: float, number: int, client: int, epoch: int, said: Message) -> None:
        """Take what a server of a place has said."""
        self.repairs.heard(now, number, client, epoch, said)
        self._say_orders()

    def looked(self, now: float, number: int, look: int) -> None:
        """Note that a place has passed on all that its servers had said."""
        self.repairs.looked(now, number, look)
        self._say_orders()

    # ---- what happens to places ---------------------------------------------------------------

    def agent(self, now: float, number: int, restored: int) -> None:
        """Take an agent that has connected: it declares its servers next."""
        self.repairs.gone(number)
        super().agent(now, number, restored)

    def gone(self, now: float, number: int) -> None:
        """Note that the connection to a place's agent has ended."""
        self.repairs.gone(number)
        super().gone(now, number)

    def done(self, number: int, code: int) -> None:
        """Take the end of a place's command."""
        super().done(number, code)
        self.repairs.ended(self.now, number)
        self._say_orders()

    def tick(self, now: float) -> None:
        """Look at leases and deadlines."""
        super().tick(now)
        if self.phase is not Phase.OVER and not self.facts.failed:
            self.repairs.tick(now)
            self._say_orders()

    # ---- how that is decided ------------------------------------------------------------------

    def _is_due(self, now: float) -> bool:
        return not self.repairs.is_under_way and super()._is_due(now)

    def _back(
        self, now: float, why: str, counts: int, then: Callable[[], None] | None = None
    ) -> None:
        super()._back(now, why, counts, then)
        self.repairs.clear()
        self._recovering = False

    def _say_recovering(self, number: int) -> None:
        """Tell an agent, so that the clocks of PyTorch's deadlines stand still with all clients."""
        now = int(self._recovering)
        self._say(("agent", number), "recovering", round=self.facts.round, now=now)

    def _say_orders(self) -> None:
        if self.repairs.is_under_way != self._recovering:
            self._recovering = not self._recovering
            for number in self.facts.places:
                self._say_recovering(number)
        for order in self.repairs.taken():
            to = ("agent", order.place)
            if isinstance(order, Look):
                self._say(to, "look", round=self.facts.round, number=order.number)
                continue
            who = {"round": self.facts.round, "client": order.id, "epoch": order.epoch}
            if isinstance(order, Tell):
                self._say(to, "tell", **who, data=as_text(order.message), repair=order.repair)
            elif isinstance(order, Doubt):
                self._say(to, "doubt", **who, sign=order.sign, why=order.why)
