"""The account of faults that were asked for: which have happened, and why the others have not.

What has happened is noted by the process that lets it happen, in a byte of the control page that
the request has for itself. So it is known whatever dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyft.errors import UsageError
from pyft.recovery.inject import Injection, parse
from pyft.wire.layout import CONTROL_PAGE

NUMBERS = CONTROL_PAGE["fault_notes"].size  # bytes of a control page that note what has happened
# However long a job is, and however many orders and clients come, no more than this is kept of them.
MOST_REQUESTS = 4 * NUMBERS
MOST_SEEN = 1024
MOST_TOLD = 64  # servers that a request was told to
BY_AGENT = ("server-kill", "comm-drop")  # unless a server finds the place
FATAL = ("sticky", "gpu-lost", "ecc", "hang")  # the GPU notes it; it has happened if a server ended
# Of all others (slow, silent faults) the server goes on, and more may follow.
ENDS_SERVER = (*BY_AGENT, *FATAL)


@dataclass
class Request:
    """One fault that was asked for."""

    injection: Injection
    number: int  # of its byte
    by_agent: bool  # it looks for the place
    told: list[tuple[int, int]] = field(default_factory=list)  # member and epoch of servers
    done: bool = False
    noted: bool = False  # by the process that let it happen
    warned: bool = False  # that its rank is none of the job's

    def tell(self, member: int, epoch: int) -> None:
        """Note a server that is told of it."""
        self.told = [*self.told, (member, epoch)][-MOST_TOLD:]

    def note(self) -> dict[str, Any]:
        """Return what the next agent needs."""
        return asdict(self) | {"injection": str(self.injection)}

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Request:
        """Return what an agent before has written down."""
        told = [(member, epoch) for member, epoch in note["told"]]
        known = (note["number"], note["by_agent"], told, note["done"], note["noted"])
        return cls(parse(note["injection"]), *known, note["warned"])


@dataclass
class Seen:
    """What is known of a member, also when it has ended."""

    rank: int = 0  # as far as that is known
    servers: int = 0
    cuts: int = 0  # that its servers have decided about
    # Of the server that looked for a place: cuts, entries after the last, entries of the step asked for.
    place: tuple[int, int, int] = (0, 0, 0)


@dataclass
class Requests:
    """All faults that were asked for, and what their ranks came to."""

    all: list[Request] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)  # by the member's id

    def add(self, injection: Injection, by_agent: bool) -> Request:
        """Note one more; raise UsageError when too many have not happened yet."""
        used = {request.number for request in self.all if not request.done}
        free = [number for number in range(NUMBERS) if number not in used]
        if not free:
            raise UsageError(f"[{NUMBERS}] faults that were asked for have not happened yet")
        request = Request(injection, free[0], by_agent)
        if len(self.all) < MOST_REQUESTS:
            self.all.append(request)
        else:  # in the place of one that has happened: the numbers of all others stay
            self.all[next(n for n, one in enumerate(self.all) if one.done)] = request
        return request

    def drop(self, request: Request) -> None:
        """Forget one that was refused; the numbers of all others stay."""
        if self.all[-1] is request:
            self.all.pop()
        request.done = True

    def waiting(self) -> list[Request]:
        """Return those for whose place the agent has to look."""
        return [one for one in self.all if one.by_agent and not one.told and not one.done]

    def of_server(self, rank: int | None, server: int) -> list[Request]:
        """Return the faults for whose places a rank's n-th server looks itself.

        `rank` None: it is not known yet which it is. Then it looks when it comes to a place.
        """
        mine = [one for one in self.all if not one.by_agent and not one.done]
        mine = [one for one in mine if one.injection.server == server]
        return mine if rank is None else [one for one in mine if one.injection.rank == rank][:1]

    def look(self, member: int, notes: bytes, ended: Iterable[int]) -> None:
        """Take what a member's page notes, and the epochs of its servers that had a fault."""
        ended = set(ended)
        for one in self.all:
            if epochs := {epoch for id, epoch in one.told if id == member}:
                one.noted = bool(notes[one.number])
                one.done |= _has_happened(one, bool(epochs & ended))

    def saw(self, member: int, now: Seen) -> None:
        """Take what a member has come to."""
        self.seen[member] = now
        if len(self.seen) > MOST_SEEN:
            self._forget(member)

    def _forget(self, but: int) -> None:
        """Forget the member that is known longest and that no sentence about a fault is about."""
        wanted = {one.injection.rank for one in self.all if not one.done}
        needed = {id for one in self.all if not one.done for id, _ in one.told}
        needed |= {found[0] for rank in wanted if (found := self._furthest(rank))} | {but}
        oldest = next((id for id in self.seen if id not in needed), next(iter(self.seen)))
        del self.seen[oldest]

    def _furthest(self, rank: int) -> tuple[int, Seen] | None:
        """Return the member that came furthest of those that were a rank, one after the other."""
        mine = [(id, seen) for id, seen in self.seen.items() if seen.rank == rank]
        return max(mine, key=lambda item: (item[1].servers, item[1].cuts), default=None)

    def without_rank(self, ranks: int) -> list[str]:
        """Return what is to be said, once, of faults whose rank is not among so many."""
        mine = [one for one in self.all if not one.done and one.injection.rank >= ranks]
        found = [
            f"the fault [{one.injection}] waits for a rank [{one.injection.rank}]: "
            f"there are [{ranks}] ranks, from 0 to {ranks - 1}"
            for one in mine
            if not one.warned
        ]
        for one in mine:
            one.warned = True
        return found

    def happened(self) -> list[int]:
        """Return the numbers, in their order, of those that have happened."""
        return [number for number, one in enumerate(self.all) if one.done]

    def missed(self) -> list[dict[str, str]]:
        """Return what has not happened, and why."""
        return [
            {"fault": str(one.injection), "why": self._why(one)} for one in self.all if not one.done
        ]

    def note(self) -> dict[str, Any]:
        """Return what the next agent needs."""
        seen = [(member, dict(vars(what))) for member, what in self.seen.items()]
        return {"all": [one.note() for one in self.all], "seen": seen}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from what the agent before has written down."""
        self.all = [Request.of(one) for one in note["all"]]
        for member, what in note["seen"]:
            self.seen[member] = Seen(**what)
            self.seen[member].place = tuple(what["place"])

    def _why(self, one: Request) -> str:
        wanted = one.injection
        found = self._furthest(wanted.rank)
        if found is None:
            ranks = sorted({seen.rank for seen in self.seen.values()})
            there = f"there were ranks {ranks}" if ranks else "no rank had one"
            return f"rank [{wanted.rank}] never had a server: {there}"
        id, seen = found
        if seen.servers < wanted.server:
            return (
                f"rank [{wanted.rank}] never had a server [{wanted.server}]: it had "
                f"[{seen.servers}], one more for each fault that is repaired"
            )
        if id in {member for member, _ in one.told}:
            return self._why_of_told(one, seen)
        if not one.by_agent:
            return (
                f"server [{wanted.server}] of rank [{wanted.rank}] looks for another fault's place"
            )
        if seen.cuts < wanted.step:
            return f"rank [{wanted.rank}] {_made(seen.cuts)}{_HINT}"
        return (
            f"server [{wanted.server}] of rank [{wanted.rank}] ended, or was replaced, before it came "
            f"to that place: its rank had [{seen.servers}] servers and {_made(seen.cuts)}"
        )

    def _why_of_told(self, one: Request, seen: Seen) -> str:
        wanted = one.injection
        who = f"server [{wanted.server}] of rank [{wanted.rank}]"
        if one.by_agent and wanted.kind in BY_AGENT:
            return f"the agent died as it was to do that to {who}"
        if one.noted:
            return f"it came to the GPU of {who} after the last work there: no call met it"
        if one.by_agent:
            count = f"its [{wanted.call}]th launch after that" if wanted.call else "a launch"
            which = ", or one that changes anything," if wanted.kind == "bitflip" else ""
            return f"the GPU of {who} was told, and {count}{which} did not come before the server ended"
        if not any(seen.place):
            return f"{who} was told, and never had an entry"
        cuts, last, step = seen.place
        if cuts < max(wanted.step, 0):
            return f"{who} {_made(cuts)}, and came to [{last}] entries after that{_HINT}"
        return f"{who} {_made(cuts)}: only [{step}] entries follow cut [{max(wanted.step, 0)}]"


def _has_happened(one: Request, server_ended: bool) -> bool:
    if one.by_agent and one.injection.kind in BY_AGENT:
        return server_ended
    return one.noted and (server_ended or one.injection.kind not in FATAL)


_HINT = " (a cut follows each step of an optimizer of torch.optim)"


def _made(cuts: int) -> str:
    return f"made [{cuts}] {'cut' if cuts == 1 else 'cuts'}"


def beyond(injections: Iterable[Injection], gpus: int) -> list[str]:
    """Return what is to be said at the start: a rank mostly has a GPU for itself."""
    return [
        f"the fault [{one}] is for rank [{one.rank}], and --gpus has [{gpus}]: ranks count from 0, "
        "so there is one only if ranks share a GPU"
        for one in injections
        if one.rank >= gpus
    ]


def check(injections: Iterable[Injection], protect: str) -> None:
    """Raise UsageError for faults of which it is known beforehand that they cannot happen."""
    servers: dict[tuple[int, int], Injection] = {}
    injections = list(injections)
    if len(injections) > NUMBERS:
        raise UsageError(f"[{len(injections)}] faults are too many: at most [{NUMBERS}]")
    for one in injections:
        if protect == "none" and one.server > 1:
            raise UsageError(
                f"fault [{one}] never happens: with --protect none a rank has one server"
            )
        if protect == "none" and one.step > 0 and not one.by_server:
            raise UsageError(
                f"fault [{one}] never happens: with --protect none only server-kill has a step"
            )
        if one.kind not in ENDS_SERVER:
            continue
        before = servers.setdefault((one.rank, one.server), one)
        if before is not one:
            raise UsageError(
                f"fault [{one}] never happens: fault [{before}] is the end of the same server; "
                f"say server={one.server + 1} for the one that replaces it"
            )
