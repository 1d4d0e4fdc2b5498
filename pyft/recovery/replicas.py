"""Do ranks whose device memory was equal still agree? Compares the digests of their cuts.

    snapshotted (all partners) --equal--> agreed: the cut may become the committed snapshot
                            --differ-> suspects are replaced; their replays say which was right

Blocks are known by their place in the device's window and their size. Two ranks are partners when
they have a block whose contents were the same at the last two cuts or more (eight, if it is small) that
both have snapshotted, and at each one since both have it. That begins anew where the program's
allocator has given the place to another tensor since. Only cuts of the same number are compared: those
for want of space are not counted.
Without input or output; pyft/agent/replicas/comparison.py acts on the findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyft.recovery.case import UNSETTLED, Case, Contents, Key, Table, keys_of

STREAK = 2  # cuts with the same contents make a replica
SMALL_BYTES, SMALL_STREAK = 64, 8  # a flag or a sum is the same by chance for a while
RECENT = 4  # tables that are remembered of a rank whose messages are read before another one's
UNEQUAL = -1
UNDECIDED = 3  # cases in which no replay says anything; then their blocks are not compared


@dataclass(frozen=True)
class Agreed:
    """The cut of a rank may become its committed snapshot."""

    id: int
    cut: int


@dataclass(frozen=True)
class Disagree:
    """Ranks that agreed so far have different contents; the suspects have to replay."""

    cut: int
    key: Key
    suspects: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """The suspects have replayed: which had what its replay does not give. None: it is the program.

    Or it cannot be told, since a suspect has not come to that cut again.
    """

    cut: int
    key: Key
    culprits: tuple[int, ...]
    suspects: tuple[int, ...]
    told: bool = True


Finding = Agreed | Disagree | Judged


@dataclass
class ComparedRank:
    """What is known of a rank's cuts."""

    cut: int = 0  # the last that was agreed
    recent: dict[int, Contents] = field(default_factory=dict)  # of it and of some before it
    passed: int = 0  # it has come to this cut, with a table or not
    prepared: int = 0  # waits to be agreed
    prepared_contents: Contents = field(default_factory=Contents)
    # By other rank: the own entry of the last cut at which they were compared.
    compared: dict[int, int] = field(default_factory=dict)
    # By other rank: at how many cuts in a row a block was the same. UNEQUAL: not at each one.
    equal: dict[int, dict[Key, int]] = field(default_factory=dict)
    replicas: dict[int, set[Key]] = field(default_factory=dict)  # of these, what is compared

    def at(self, cut: int) -> Contents | None:
        """Return what it had at a cut, if that is known."""
        if cut == self.prepared:
            return self.prepared_contents
        return self.recent.get(cut)

    def changed_hands(self, other: int, now: Contents) -> set[Key]:
        """Return the blocks that hold another tensor than at the last cut compared with a rank."""
        last = self.compared.get(other, 0)
        return {key for key, entry in now.since.items() if last < entry < UNSETTLED}


class Replicas:
    """All ranks of a job, by id."""

    def __init__(self) -> None:
        self.ranks: dict[int, ComparedRank] = {}
        self.case: Case | None = None
        self.own: set[Key] = set()  # the program makes them differ
        self.judged: set[int] = set()  # cuts
        self.undecided = 0
        self.version = 0  # of what ranks have in common

    def common(self) -> list[tuple[Key, set[int]]]:
        """Return blocks that are replicas, each with the ranks whose contents are the same."""
        found: dict[Key, list[set[int]]] = {}
        for id, rank in self.ranks.items():
            for other, keys in rank.replicas.items():
                for key in keys - self.own if other > id else ():
                    sets = found.setdefault(key, [])
                    mine = [one for one in sets if id in one or other in one]
                    sets[:] = [one for one in sets if one not in mine]
                    sets.append({id, other}.union(*mine))
        return [(key, ids) for key, sets in found.items() for ids in sets]

    def partners(self, id: int) -> list[int]:
        """Return the ranks that have replicas of a rank's blocks, those with most bytes first."""
        rank = self.ranks.get(id, ComparedRank())
        sizes = {
            other: sum(size for _, size in keys - self.own) for other, keys in rank.replicas.items()
        }
        return sorted((one for one in sizes if sizes[one]), key=lambda one: (-sizes[one], one))

    def staged(
        self,
        id: int,
        cut: int,
        table: Table | None,
        entry: int = 0,
        since: Mapping[Key, int] | None = None,
    ) -> list[Finding]:
        """Take note of a cut; no table: the rank has passed it over. `since`: as in `Contents`.

        One that waits although nothing is held here, since an agent has died, may wait no longer.
        """
        rank = self.ranks.setdefault(id, ComparedRank())
        rank.passed = max(rank.passed, cut)
        known = rank.prepared or table is not None or self._is_suspect(id)
        forgotten = [] if known else [Agreed(id, cut)]
        if table is not None:
            rank.prepared, rank.prepared_contents = cut, Contents(table, entry, since or {})
        answered: list[Finding] = []
        if self.case and id in self.case.replaying and cut >= self.case.cut:
            answered = self._answer(id, (table if cut == self.case.cut else None) or {})
        return [*forgotten, *answered, *self._go_on()]

    def restarted(self, id: int) -> list[Finding]:
        """Note that a rank's server has ended: what it held comes again."""
        rank = self.ranks.setdefault(id, ComparedRank())
        rank.passed, rank.prepared, rank.prepared_contents = rank.cut, 0, Contents()
        if self.case and id in self.case.suspects:
            self.case.replaying.add(id)
        return self._go_on()

    def gone(self, id: int) -> list[Finding]:
        """Note that there will be no further cut of a rank."""
        self.ranks.pop(id, None)
        self.version += 1
        for rank in self.ranks.values():
            rank.compared.pop(id, None)
            rank.equal.pop(id, None)
            rank.replicas.pop(id, None)
        return [*self._answer(id, {}), *self._go_on()]

    def arbitrates(self, id: int) -> int:
        """Return the cut about which the replay of a rank decides; 0: none."""
        return self.case.cut if self.case and self.case.waits_for(id) else 0

    def _answer(self, id: int, table: Table) -> list[Finding]:
        """Take what a suspect's replay gives; when all have answered it is decided."""
        case = self.case
        if case is None or not case.waits_for(id) or not case.take(id, table):
            return []
        return [self._decide(case), *self._go_on()]

    def _decide(self, case: Case) -> Judged:
        culprits, told = case.verdict()
        self.case = None
        self.judged.add(case.cut)
        self.undecided += not told
        if not culprits and (told or self.undecided >= UNDECIDED):
            self.own |= case.keys
            self.version += 1
        return Judged(case.cut, case.key, culprits, case.suspects, told)

    # ---- for the next agent -------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return what is decided or about to be. What ranks have in common is learned again."""
        return {
            "own": sorted(self.own),
            "judged": sorted(self.judged),
            "undecided": self.undecided,
            "case": self.case and self.case.note(),
        }

    def restore(self, note: dict[str, Any]) -> None:
        """Go on from the note of an agent before this one."""
        self.own = keys_of(note["own"])
        self.judged = set(note["judged"])
        self.undecided = note["undecided"]
        if case := note["case"]:
            self.case = Case.restored(case)

    def _is_suspect(self, id: int) -> bool:
        return self.case is not None and id in self.case.suspects

    def unheeded(self) -> tuple[int, ...]:
        """Return the suspects whose servers have not been ended yet."""
        return self.case.unheeded() if self.case else ()

    # ---- comparing ----------------------------------------------------------------------------

    def _go_on(self) -> list[Finding]:
        findings: list[Finding] = []
        for id in list(self.ranks):
            findings += self._look(id)
        return findings

    def _look(self, id: int) -> Iterator[Finding]:
        rank = self.ranks[id]
        if not rank.prepared:
            return
        # A suspect's cut is not agreed before replays have decided, also where an agent that goes on
        # for another one does not know yet what the rank has in common with which.
        if self.case and rank.prepared == self.case.cut and self._is_suspect(id):
            return
        if rank.prepared > rank.cut:  # otherwise its server has died before it heard of that
            partners = [other for other, keys in rank.replicas.items() if keys - self.own]
            if any(self.ranks[other].passed < rank.prepared for other in partners):
                return
            if differing := self._differing(id, partners):
                if rank.prepared in self.judged:
                    self.own |= set(differing)  # decided, and it differs again: not by accident
                    self.version += 1
                elif self.case is None:
                    yield self._open(rank.prepared, differing)
                if rank.prepared not in self.judged:
                    return
        cut = rank.prepared
        self._settle(id, rank)
        yield Agreed(id, cut)

    def _differing(self, id: int, partners: list[int]) -> dict[Key, dict[int, bytes]]:
        """Return which rank has what in the blocks about which a rank and its partners disagree."""
        rank, found = self.ranks[id], {}
        mine = rank.prepared_contents.table
        theirs = {
            other: {
                key: now.table[key] for key in self._lasting(id, other, now) if key in now.table
            }
            for other in partners
            if (now := self.ranks[other].at(rank.prepared)) is not None
        }
        for table in theirs.values():
            for key, digest in table.items():
                if key in mine and mine[key] != digest:
                    found.setdefault(key, {id: mine[key]})
        for key, contents in found.items():
            contents |= {other: table[key] for other, table in theirs.items() if key in table}
        return found

    def _lasting(self, id: int, other: int, theirs: Contents) -> set[Key]:
        """Return the replicas of two ranks that are what they were at the last cut of both."""
        rank, partner = self.ranks[id], self.ranks[other]
        mine = rank.prepared_contents
        others = rank.changed_hands(other, mine) | partner.changed_hands(id, theirs)
        return rank.replicas[other] - self.own - others - _unsettled(mine) - _unsettled(theirs)

    def _open(self, cut: int, differing: dict[Key, dict[int, bytes]]) -> Disagree | Judged:
        """Have replays decide.

        A replay of one that had this cut agreed before it had replicas would begin behind it.
        """
        self.case = case = Case.of(cut, differing)
        late = [one for one in case.suspects if self.ranks[one].prepared != cut]
        case.answers = dict.fromkeys(late)
        able = tuple(one for one in case.suspects if one not in late)
        return Disagree(cut, case.key, able) if able else self._decide(case)

    def _settle(self, id: int, rank: ComparedRank) -> None:
        cut, now = rank.prepared, rank.prepared_contents
        rank.prepared, rank.prepared_contents = 0, Contents()
        if cut <= rank.cut:
            return
        rank.cut = cut
        rank.recent[cut] = now
        for old in sorted(rank.recent)[:-RECENT]:
            del rank.recent[old]
        for other, standing in self.ranks.items():
            theirs = standing.recent.get(cut)
            if other == id or theirs is None:
                continue  # it has passed this cut over, or will come to it, and then this is done
            renewed = rank.changed_hands(other, now) | standing.changed_hands(id, theirs)
            before = rank.equal.get(other, {})
            if renewed:
                before = {key: times for key, times in before.items() if key not in renewed}
            equal = _count(before, now.table, theirs.table)
            rank.compared[other], standing.compared[id] = now.entry, theirs.entry
            rank.equal[other] = standing.equal[id] = equal
            replicas = {key for key, times in equal.items() if times >= _streak(key)}
            self.version += replicas != rank.replicas.get(other, set())
            rank.replicas[other] = standing.replicas[id] = replicas


def _unsettled(now: Contents) -> set[Key]:
    return {key for key, entry in now.since.items() if entry >= UNSETTLED}


def _streak(key: Key) -> int:
    return SMALL_STREAK if key[1] < SMALL_BYTES else STREAK


def _count(before: dict[Key, int], one: Table, other: Table) -> dict[Key, int]:
    """Go on counting cuts at which the blocks that both have are the same."""
    counts = {}
    for key, digest in one.items():
        if (theirs := other.get(key)) is not None:
            times = before.get(key, 0)
            counts[key] = times + 1 if times >= 0 and theirs == digest else UNEQUAL
    return counts
