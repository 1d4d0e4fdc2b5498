"""What the head knows: places, spares, which image is the line of all. Without input or output.

It is made of the ledger's entries only, so that another head begins where this one has stopped; what
is seen of a place beside that (steps, leases) is told again by what knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Place:
    """What `--place N` names: agent, servers and the command, on one host at a time."""

    number: int
    host: str = ""
    life: int = 0  # counts its owners; 0: none so far
    claimed: bool = False  # its owner has begun; else it was chosen, and has not answered yet
    code: int | None = None  # of its command, which has ended
    lease: float = 0.0  # it is its owner's until then
    present: bool = False  # an agent is connected
    address: str = ""  # at which programs of other places know it, wherever it is
    ranks: list[int] = field(default_factory=list)  # that its agent has named last
    steps: int = 0
    step_s: float = 0.0  # that a step takes; 0: not known
    prepares: bool = False  # its host can write pages of an image while all run
    prepared: bool = False  # the hold need not wait for that
    stood_s: float = 0.0  # for how long it stood still for that
    held: bool = False
    # In a hold: since when it is held, or only other places can move it, and then why it is not held.
    still_since: float | None = None
    still_why: str = ""
    lines: list[list[int]] = field(default_factory=list)  # of its communicators, where it is held
    copied: bool = False  # its image is whole there
    logs: list[str] = field(default_factory=list)  # names of the files that it has to cut back
    restored: int = 0  # the last round in which it came back
    leaving: bool = False  # it is to go to another host, and its owner to end all of it first
    lacks_gpu: str = ""  # why its host has no GPU for one of its ranks
    # Of the faults that were asked for: those that came after the line, on a host that it has left.
    happened: list[int] = field(default_factory=list)


@dataclass
class Spare:
    """A host without a place."""

    name: str
    address: str
    port: int  # where it takes images; 0: nowhere, it has only that of the place it has left
    lease: float = 0.0
    images: set[tuple[int, int]] = field(default_factory=set)  # place and number

    @property
    def where(self) -> list[Any]:
        """Return that for a message."""
        return [self.name, self.address, self.port]


@dataclass
class Drain:
    """A host is to lose its place."""

    host: str
    place: int
    to: str = ""  # the spare host that is to take it; nothing: whichever can
    left: bool = False  # that has begun, and cannot be called off


class Facts:
    """All that has been decided."""

    def __init__(self, places: int) -> None:
        self.places = {number: Place(number) for number in range(places)}
        self.spares: dict[str, Spare] = {}
        self.term = 0  # counts the heads
        self.lease = 0.0  # of all of them: hosts count by what they were told first
        self.number = 0  # of the image that was begun last
        self.line = 0  # of the image that counts; 0: none
        self.line_step = 0
        self.holders: dict[int, list[str]] = {}  # which hosts had copies of it, by place
        self.round = 0  # of going back
        self.is_back = True  # all have gone on after it
        self.alone: dict[tuple[int, int], int] = {}  # place, client: whose server is replaced alone
        self.restores = 0  # of the line because of programs and servers
        self.ids: dict[int, str] = {}  # under which id a communicator is made, by its key
        self.drain: Drain | None = None  # that is under way
        self.drains: dict[str, tuple[bool, str]] = {}  # how those of each host have ended
        self.failed = ""  # why the job has ended
        self.exit_code = 0  # the job's: of a command that ended before the head ended the others

    def apply(self, entry: dict[str, Any]) -> None:
        """Take an entry, just written or read from the ledger."""
        kind = entry["kind"]
        if kind == "term":
            self.term, self.lease = entry["term"], entry.get("lease", self.lease)
        elif kind in ("chosen", "claim"):
            place = self.places[entry["place"]]
            place.host, place.life = entry["host"], entry["life"]
            place.claimed, place.leaving = kind == "claim", False
            if kind == "chosen":
                self._chosen(place)
        elif kind == "image":
            self.number = entry["number"]
        elif kind == "line":
            self.line, self.line_step, self.restores = entry["number"], entry["step"], 0
            self.holders = {
                int(number): names for number, names in entry.get("holders", {}).items()
            }
            for place in self.places.values():
                place.happened = []
        elif kind == "back":
            self.round, self.is_back = entry["round"], False
            self.restores += entry["counts"]
            self.ids, self.alone = {}, {}
        elif kind == "alone":
            self.alone[entry["place"], entry["client"]] = entry["epoch"]
        elif kind == "onward":
            self.is_back = True
            if (drain := self.drain) and drain.left:
                done = drain.to in ("", entry["to"])
                self._drained(done, f"place [{drain.place}] is on host [{entry['to']}]")
        elif kind == "drain":
            self.drain = Drain(entry["host"], entry["place"], entry.get("to", ""))
            self.drains.pop(entry["host"], None)
        elif kind == "undrain":
            self._drained(False, entry["why"])
        elif kind == "leave":
            place = self.places[entry["place"]]
            place.leaving, place.happened = True, entry.get("happened", [])
            self.drain = self.drain or Drain(entry["host"], entry["place"])
            self.drain.left = True
        elif kind == "unrestored":
            self.places[entry["place"]].leaving = True
        elif kind == "id":
            self.ids[entry["key"]] = entry["made_as"]
        elif kind == "done":
            self.places[entry["place"]].code = entry["code"]
            if not self.failed:
                self.exit_code = max(self.exit_code, entry["code"])
        elif kind == "failed":
            self.failed, self.exit_code = entry["why"], self.exit_code or 1

    def _chosen(self, place: Place) -> None:
        """A drain ends where its host has the place again, or was lost before it could leave."""
        drain = self.drain
        if not drain or drain.place != place.number:
            return
        if place.host == drain.host:
            why = "the host that was to take its place is lost, or cannot restore it"
            self._drained(False, f"{why}: it goes on itself")
        elif not drain.left:
            self._drained(False, f"it was lost meanwhile: host [{place.host}] takes its place")

    def _drained(self, done: bool, how: str) -> None:
        if self.drain:
            self.drains[self.drain.host] = (done, how)
            self.drain = None


def do_not_fit(lines: dict[int, list[list[int]]]) -> str:
    """Return why lines of all places are none together; nothing if they are.

    A line: key of the communicator, rank in it, peer, messages to it, messages from it. With peer -1:
    collectives, twice.
    """
    collectives: dict[int, int] = {}
    sent: dict[tuple[int, int, int], int] = {}
    received: dict[tuple[int, int, int], int] = {}
    for key, rank, peer, there, back in (line for of_place in lines.values() for line in of_place):
        if peer < 0 and collectives.setdefault(key, there) != there:
            return f"communicator [{key}] is at [{collectives[key]}] and at [{there}]"
        if peer >= 0:
            sent[key, rank, peer] = there
            received[key, peer, rank] = back
    for way in sent.keys() | received.keys():
        if sent.get(way, 0) != received.get(way, 0):
            return (
                f"a message of communicator [{way[0]}] from [{way[1]}] to [{way[2]}] is under way"
            )
    return ""


def share_a_log(logs: dict[int, list[str]]) -> str:
    """Return which file two places append to: one would cut it back below the other's size."""
    owners: dict[str, int] = {}
    for number, names in logs.items():
        for name in names:
            if (owner := owners.setdefault(name, number)) != number:
                path = name.split(":", 2)[-1]
                return f"places [{owner}] and [{number}] both append to [{path}]"
    return ""
