"""Executions that have differed: what the servers that follow need to tell which was wrong.

server     MISMATCH: entries and digests of both executions, then its last words
agent      keeps that for each rank, and gives it to each server that follows
new server VOTE: a third execution gives what the first has given, or the second, or neither
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyft.wire import messages as wire

DIGESTS = 3
DIGEST_BYTES = 16
MOST = 4  # of a rank; older ones are of before its committed snapshot
UNKNOWN_YET = -1
CULPRITS = {
    wire.Culprit.FIRST: "first",
    wire.Culprit.SECOND: "second",
    wire.Culprit.BOTH: "both",
    wire.Culprit.UNKNOWN: "unknown",
}
_MEANINGS = {
    "first": "the first execution was wrong",
    "second": "the second execution was wrong",
    "both": "both executions were wrong",
    "unknown": "the third execution had other inputs, so it is not known which was wrong",
}


@dataclass(frozen=True)
class Dispute:
    """Two executions of one rank, by their entries: one if its server has executed it again."""

    first: int
    second: int
    last: int  # the program was told nothing of entries behind it
    digests: str  # hex

    @classmethod
    def of(cls, said: wire.Mismatch) -> Dispute:
        """Return what a server says; raise ValueError for what no server says."""
        if len(said.payload) != DIGESTS * DIGEST_BYTES:
            raise ValueError(f"a mismatch comes with [{len(said.payload)}] bytes of digests")
        if max(said.first, said.second) > said.last:
            entries = f"[{said.first}] and [{said.second}], the last one [{said.last}]"
            raise ValueError(f"a mismatch is of entries that were not executed yet: {entries}")
        return cls(said.first, said.second, said.last, said.payload.hex())

    def words(self) -> str:
        """Return it as PYFT_DMR_DISPUTES has it: digests as two numbers of 64 bits."""
        raw = bytes.fromhex(self.digests)
        each = [raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)]
        digests = ",".join((one[:8][::-1] + one[8:][::-1]).hex() for one in each)
        return f"{self.first},{self.second},{self.last},{digests}"


@dataclass
class Disputes:
    """What one rank's servers have found, and what they may have told wrong."""

    own: list[Dispute] = field(default_factory=list)
    # Another rank has computed wrongly, and all went back: up to this entry values may have been
    # wrong. UNKNOWN_YET: this rank's server of then is being ended.
    told: int = 0
    reached: int = 0  # the furthest entry of all its servers that have ended

    def add(self, said: wire.Mismatch) -> None:
        """Take what a server says; raise ValueError for what no server says."""
        self.own = [*self.own, Dispute.of(said)][-MOST:]

    def of_other(self) -> None:
        """Note that another rank of the set has computed wrongly."""
        self.told = UNKNOWN_YET

    def came_to(self, entry: int) -> None:
        """Note where a server of before was when it ended.

        A server that has ended in a replay was not as far as those before, which have told more.
        """
        self.reached = max(self.reached, entry)
        if self.told == UNKNOWN_YET:
            self.told = self.reached

    def has(self, first: int, second: int) -> bool:
        """Say whether these entries have differed."""
        return any((one.first, one.second) == (first, second) for one in self.own)

    def environment(self) -> dict[str, str]:
        """Return what the next server is told."""
        words = {"PYFT_DMR_DISPUTES": ";".join(one.words() for one in self.own)}
        if self.told > 0:
            words["PYFT_DMR_TOLD"] = str(self.told)
        return {name: text for name, text in words.items() if text}

    def note(self) -> dict[str, Any]:
        """Return all of it, for the next agent."""
        own = [[one.first, one.second, one.last, one.digests] for one in self.own]
        return {"own": own, "told": self.told, "reached": self.reached}

    @classmethod
    def restored(cls, note: dict[str, Any]) -> Disputes:
        """Go on from the note of an agent before this one."""
        return cls([Dispute(*one) for one in note["own"]], note["told"], note["reached"])


def in_words(culprit: str) -> str:
    """Say what a vote has found."""
    return _MEANINGS[culprit]
