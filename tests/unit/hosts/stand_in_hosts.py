"""Hosts without programs: they claim places, renew leases, make images of nothing, and go back.

All that heads see of a job, by the real protocol, in threads. Each notes until when it may act.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from pyft.hosts.wire.head_link import HeadLink
from pyft.hosts.wire.link import Link, addresses_of

LOOK_S = 0.02


class Owner:
    """One host's time with a place. It acts from its claim until the end of its lease."""

    def __init__(self, job: Job, place: int, host: str, life: int = 0) -> None:
        self._job, self.place, self.host, self.life = job, place, host, life
        self.sent: dict[int, float] = {}
        self.lost = ""
        self.terms: list[int] = []  # of heads that have answered
        self._ended = threading.Event()
        self.begin, self.until = self._claim()
        self._link = HeadLink(addresses_of(job.heads), job.secret, self._hello)
        self.agent = Agent(job, self, job.round if life else 0)
        threading.Thread(target=self._keep, daemon=True).start()

    def _hello(self) -> dict[str, Any]:
        return {"role": "host", "place": self.place, "host": self.host, "life": self.life}

    def _claim(self) -> tuple[float, float]:
        """Claim the place at the head that decides; return since when, and until when, it is ours."""
        while not self._ended.wait(0.1):
            for where in addresses_of(self._job.heads):
                with contextlib.suppress(OSError):
                    sent = time.monotonic()
                    link = Link.to(where, self._job.secret)
                    link.send("hello", **self._hello())
                    said = link.receive(10) or {}
                    link.close()
                    assert said["kind"] == "welcome", said
                    self.life = said["life"]
                    return time.monotonic(), sent + self._job.lease
        raise AssertionError("no head has answered")

    def _keep(self) -> None:
        number, next_at = 0, 0.0
        while not self._ended.wait(LOOK_S):
            while said := self._link.heard():
                if said["kind"] == "renewed":
                    self.until = max(self.until, self.sent[said["number"]] + self._job.lease)
                elif said["kind"] == "refused":
                    self.lost = said["why"]
                elif said["kind"] == "welcome":
                    self.terms.append(said["term"])
            if time.monotonic() >= next_at and not self.lost:
                number, next_at = number + 1, time.monotonic() + self._job.lease / 3
                self.sent[number] = time.monotonic()
                self._link.say("renew", number=number, host=self.host, life=self.life)

    def done(self) -> None:
        """Say that its command has ended."""
        self._link.say("done", code=0, life=self.life)

    def die(self) -> None:
        """Be heard of no more."""
        self._ended.set()
        self._link.end()
        self.agent.end()


class Agent:
    """The agent of a place, all of whose ranks are as far as its clock."""

    def __init__(self, job: Job, owner: Owner, restored: int) -> None:
        self._job, self._owner, self.restored = job, owner, restored
        self.kept = 0  # the image that counts
        self._ended = threading.Event()
        self._link = HeadLink(addresses_of(job.heads), job.secret, self._hello)
        threading.Thread(target=self._run, daemon=True).start()

    def _hello(self) -> dict[str, Any]:
        owner = self._owner
        where = {"place": owner.place, "life": owner.life, "address": owner.host}
        return {"role": "agent", "restored": self.restored, **where}

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            while said := self._link.heard():
                self._take(said)
            steps = int(100 * (time.monotonic() - self._job.began)) + 1
            self._link.say("status", steps=steps, step_us=10_000)

    def _take(self, said: dict[str, Any]) -> None:
        kind = said["kind"]
        if kind == "hold":
            self._link.say("held", step=said["step"], lines=[])
        elif kind == "dump":
            self._link.say("copied", number=said["number"], logs=[])
            for name, _, _ in said["mirrors"]:
                self._job.spares[name].have(self._owner.place, said["number"])
        elif kind == "keep":
            self.kept = said["number"]
        elif kind == "back":
            self._job.round = max(self._job.round, said["round"])
            self._ended.set()  # the next agent has come back
            self._link.end()
            self._owner.agent = Agent(self._job, self._owner, said["round"])

    def end(self) -> None:
        """Be heard of no more."""
        self._ended.set()
        self._link.end()


class Spare:
    """A host without a place, which takes the one that it is told to."""

    def __init__(self, job: Job, name: str) -> None:
        self._job, self.name = job, name
        self.images: list[list[int]] = []
        self.over = False
        self._ended = threading.Event()
        self._link = HeadLink(addresses_of(job.heads), job.secret, self._hello)
        threading.Thread(target=self._run, daemon=True).start()

    def _hello(self) -> dict[str, Any]:
        me = {"role": "spare", "host": self.name, "address": self.name, "port": 1}
        return me | {"images": self.images}

    def have(self, place: int, number: int) -> None:
        """Take a copy of nothing."""
        self.images.append([place, number])
        self._link.say("have", place=place, number=number)

    def _run(self) -> None:
        number, next_at = 0, 0.0
        while not self._ended.wait(LOOK_S):
            while said := self._link.heard():
                if said["kind"] == "take":
                    self.take(said["place"], said["life"], said["round"])
                self.over |= said["kind"] == "over"
            if time.monotonic() >= next_at:
                number, next_at = number + 1, time.monotonic() + self._job.lease / 3
                self._link.say("renew", number=number)

    def take(self, place: int, life: int, round: int) -> None:
        """Take a place."""
        self._job.round = max(self._job.round, round)
        self._ended.set()
        self._link.end()
        self._job.owners.append(Owner(self._job, place, self.name, life))


class Job:
    """Places and spares, with addresses of the heads."""

    def __init__(self, heads: str, secret: bytes, lease: float) -> None:
        self.heads, self.secret, self.lease = heads, secret, lease
        self.round = 0
        self.began = time.monotonic()
        self.owners: list[Owner] = []
        self.spares: dict[str, Spare] = {}

    def start(self, places: int, spares: int) -> None:
        """Start all of them."""
        self.spares = {f"s{n}": Spare(self, f"s{n}") for n in range(spares)}
        self.owners += [Owner(self, place, f"h{place}") for place in range(places)]

    def living(self) -> list[Owner]:
        """Return the owners that have not been lost."""
        return [one for one in self.owners if not one.lost and not one._ended.is_set()]

    def has_line(self) -> bool:
        """Say whether an image counts at all places."""
        return all(one.agent.kept for one in self.living())

    def answered_by(self, term: int) -> bool:
        """Say whether all places have been answered by a head of this term."""
        return all(term in one.terms for one in self.living())

    def end(self) -> None:
        """End all of it."""
        for one in [*self.owners, *self.spares.values()]:
            one._ended.set()
            one._link.end()
        for one in self.owners:
            one.agent.end()

    def check_owners(self) -> None:
        """No place has two owners at a time: the next one begins when the time of the last is over."""
        for place in {one.place for one in self.owners}:
            of_place = [one for one in self.owners if one.place == place]
            for before, after in zip(of_place, of_place[1:], strict=False):
                assert before.until <= after.begin, (place, before.until, after.begin)
                assert before.life < after.life
