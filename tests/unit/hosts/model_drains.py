"""A job on several hosts, as messages between its head and hosts: any of them may be lost.

Each host does what pyft/hosts and pyft/agent do of this protocol, and no more. What must never be is
looked at after each step: a place that runs on two hosts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pyft.hosts.head.decisions import Phase, Say, Write
from pyft.hosts.head.moves import Moves
from pyft.hosts.head.places import Facts

LEASE, STOP_AT = 10.0, 7.0
TICK_S = 1.0
CUT = 10  # steps at the first hold
RANKS = ([0, 1], [2, 3])  # of each place
Told = tuple[str, dict[str, Any]]


@dataclass
class Host:
    """One host: with a place, or a spare one (`place` < 0)."""

    name: str
    place: int = -1
    life: int = 0
    alive: bool = True
    runs: bool = False  # the place's agent, servers or programs exist
    stands: bool = False  # it has left its place, and keeps the image
    over: int | None = None  # its exit code
    restored: int = 0
    confirmed: float = 0.0  # when the head has renewed its lease, or it has claimed
    images: set[tuple[int, int]] = field(default_factory=set)
    cannot_restore: bool = False
    lacks_gpu: bool = False  # its GPU is lost, for whatever runs there
    told_lacks: bool = False  # at this connection
    cut_until = 0.0  # nothing is heard of it, and it hears nothing
    hears: deque[Told] = field(default_factory=deque)
    says: deque[Told] = field(default_factory=deque)

    def acts(self, now: float) -> bool:
        """Say whether processes of its place run: without a lease its launcher has stopped them."""
        return self.runs and now <= self.confirmed + STOP_AT

    @property
    def is_there(self) -> bool:
        """Say whether it takes part in the job."""
        return self.alive and self.over is None


class Job:
    """Two places and their hosts, spares, and a head whose ledger outlives it."""

    def __init__(self, spares: int = 1, copies: int = 1) -> None:
        self.now, self.copies = 0.0, copies
        self.ledger: list[dict[str, Any]] = []
        names = ["h0", "h1", *(f"s{n}" for n in range(spares))]
        self.hosts = {name: Host(name) for name in names}
        self.head = Moves(Facts(2), LEASE, every=1.0, copies=copies)
        self.writes_left = -1  # so many entries until the head dies: -1, it does not
        for place in range(2):
            host = self.hosts[f"h{place}"]
            host.place = place
            self.claim(host)
            self.head.agent(self.now, place, 0)
        for host in self.hosts.values():
            if host.place < 0:
                self.call_as_spare(host)
        self.perform()

    # ---- the head -----------------------------------------------------------------------------

    def perform(self) -> None:
        """Do what is decided: entries first; a head that dies says nothing of what follows."""
        for action in self.head.taken():
            if isinstance(action, Write):
                if self.writes_left == 0:
                    self.writes_left = -1
                    self.another_head()
                    return
                self.writes_left -= self.writes_left > 0
                self.ledger.append(action.entry)
            elif isinstance(action, Say):
                self.give(action)
        self.look()

    def another_head(self) -> None:
        """The head dies; another one reads the ledger, and all call again."""
        facts = Facts(2)
        for entry in self.ledger:
            facts.apply(entry)
        self.head = Moves(facts, LEASE, every=1.0, now=self.now, copies=self.copies)
        for host in self.hosts.values():
            self.lose_link(host)

    def give(self, said: Say) -> None:
        """Bring a message under way, if its host has a connection."""
        for host in self.hosts.values():
            is_spare = host.place < 0 or host.stands
            if said.to == ("spare", host.name) and is_spare:
                host.hears.append((said.kind, said.values))
            owns = host.place == said.to[1] and host.runs and not host.stands
            if said.to[0] == "agent" and owns:
                place = self.head.facts.places[host.place]
                if place.claimed and (place.host, place.life) == (host.name, host.life):
                    host.hears.append((said.kind, said.values))

    # ---- hosts call ---------------------------------------------------------------------------

    def claim(self, host: Host) -> None:
        """The launcher takes the place before anything starts."""
        head = self.head
        why = head.claim(self.now, host.place, host.name, host.life)
        life = head.facts.places[host.place].life
        self.perform()
        if why or head is not self.head:  # it has died, and says nothing of it
            host.place = -1
            return
        host.life, host.runs, host.confirmed = life, True, self.now

    def call_as_spare(self, host: Host) -> None:
        """Say hello without a place; images are told after that."""
        self.head.spare(self.now, host.name, "10.0.0.9", 0 if host.stands else 1000)
        if host.name in self.head.facts.spares:
            self.head.facts.spares[host.name].images = set(host.images)

    def lose_link(self, host: Host) -> None:
        """What is under way in both directions is lost, and the host calls again."""
        host.hears.clear()
        host.says.clear()
        host.told_lacks = False
        if not host.is_there:
            return
        if host.stands or host.place < 0:
            self.call_as_spare(host)
        elif host.runs:
            self.head.gone(self.now, host.place)
            if self.head.owns(host.place, host.life):
                self.head.agent(self.now, host.place, host.restored)
        self.perform()

    # ---- hosts do -----------------------------------------------------------------------------

    def heard(self, host: Host) -> None:
        """Do what the next message says."""
        kind, values = host.hears.popleft()
        place, number = host.place, values.get("number", 0)
        if kind == "hold" and not host.lacks_gpu:
            host.says.append(("held", {"step": values["step"]}))
        elif kind == "dump":
            host.images.add((place, number))
            host.says.append(("copied", {"number": number}))
            self.mirror(place, number, values["mirrors"])
        elif kind == "mirror":
            assert (place, number) in host.images
            self.mirror(place, number, values["mirrors"])
        elif kind == "back":
            assert (place, number) in host.images  # it can go back
            host.restored = values["round"]
            self.lose_link(host)  # the next agent calls
        elif kind == "leave":
            assert (place, number) in host.images
            host.runs, host.stands = False, True
            host.hears.clear()
            host.says.append(("left", {"place": place, "life": host.life}))
            host.says.append(("hello", {}))
        elif kind == "take":
            self.take(host, values)
        elif kind == "over":
            host.over = values.get("code", 0)

    def mirror(self, place: int, number: int, where: list[list[Any]]) -> None:
        """Spare hosts get an image, and say so."""
        for name, _, _ in where:
            there = self.hosts[name]
            if there.is_there and there.place < 0 and there.cut_until <= self.now:
                there.images.add((place, number))
                there.says.append(("have", {"place": place, "number": number}))

    def take(self, host: Host, values: dict[str, Any]) -> None:
        """Go on with a place, from its image."""
        if (values["place"], values["number"]) not in host.images:
            return
        host.place, host.life, host.stands = values["place"], values["life"], False
        host.hears.clear()
        self.claim(host)
        if host.place < 0:
            host.over = 1
        elif host.cannot_restore:
            host.runs, host.over = False, 1
            self.head.done(host.place, 1)
        else:
            host.restored = values["round"]
            self.head.agent(self.now, host.place, host.restored)
        self.perform()

    def said(self, host: Host) -> None:
        """Let the head hear the next message."""
        kind, values = host.says.popleft()
        if kind == "held":
            self.head.held(self.now, host.place, values["step"], [])
        elif kind == "copied":
            self.head.copied(self.now, host.place, values["number"])
        elif kind == "have" and host.name in self.head.facts.spares:
            self.head.have(host.name, values["place"], values["number"])
        elif kind == "left":
            self.head.left(values["place"], values["life"])
        elif kind == "hello":
            self.call_as_spare(host)
        self.perform()

    # ---- time ---------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """Let a second pass: leases are renewed, and end."""
        self.now += TICK_S
        for host in self.hosts.values():
            if not host.is_there or host.cut_until > self.now:
                continue
            if host.runs:
                if self.head.renew(self.now, host.place, host.name, host.life):
                    host.confirmed = self.now
                else:
                    host.runs, host.over = False, 1
            elif host.name in self.head.facts.spares or host.place < 0 or host.stands:
                self.call_as_spare(host)
        for host in self.hosts.values():
            if host.is_there and host.cut_until <= self.now:
                self.tell_lacks_gpu(host)
        for place in range(2):
            self.head.status(place, CUT, 0.5)
            self.head.ranks(place, RANKS[place])
        self.head.tick(self.now)
        self.perform()

    def tell_lacks_gpu(self, host: Host) -> None:
        """Say whether the place of a host waits for a GPU, where that has changed."""
        owns = host.runs and host.place >= 0 and self.head.owns(host.place, host.life)
        if owns and host.told_lacks != host.lacks_gpu:
            host.told_lacks = host.lacks_gpu
            self.head.lacks_gpu(host.place, "no GPU" if host.lacks_gpu else "", [0])

    def lose(self, host: Host) -> None:
        """A host loses its power: its programs run no more."""
        host.alive = host.runs = False
        host.hears.clear()
        host.says.clear()
        if host.place >= 0:
            self.head.gone(self.now, host.place)
        self.perform()

    def look(self) -> None:
        """Never both: a place is on one host."""
        for place in range(2):
            hosts = [host for host in self.hosts.values() if host.place == place]
            on = [host.name for host in hosts if host.acts(self.now)]
            assert len(on) <= 1, f"place {place} runs on {on}"

    def step(self) -> bool:
        """Let the next message arrive; say whether there was one."""
        for host in self.hosts.values():
            if not host.is_there or host.cut_until > self.now:
                continue
            if host.hears:
                self.heard(host)
                return True
            if host.says:
                self.said(host)
                return True
        return False

    def settle(self, seconds: int = 400) -> None:
        """Let all messages arrive, and time pass, until nothing is to be done."""
        for _ in range(seconds):
            while self.step():
                pass
            self.pass_time()
            if self.is_settled():
                return

    def is_settled(self) -> bool:
        """Say whether all run, and no drain is under way."""
        facts = self.head.facts
        return bool(facts.failed) or (
            self.all_run() and not facts.drain and not self.goes_somewhere()
        )

    def goes_somewhere(self) -> bool:
        """Say whether a place waits for a GPU, and a spare host is there that can take it."""
        waits = any(host.lacks_gpu and host.runs and host.is_there for host in self.hosts.values())
        free = any(s.port and s.lease > self.now for s in self.head.facts.spares.values())
        return waits and free and bool(self.head.facts.line)

    def all_run(self) -> bool:
        """Neither is never: each place runs where the ledger has it, and all have come back."""
        head = self.head
        for place in head.facts.places.values():
            host = self.hosts.get(place.host)
            runs = host and host.runs and host.life == place.life and place.claimed
            if not runs or place.leaving:
                return False
        return head.phase is not Phase.BACK
