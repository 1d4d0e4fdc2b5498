"""What audits find, and what was wrong: a rank, an auditor, or it cannot be told. Pure.

An auditor replays from the committed snapshot of a rank to its next one, on another GPU, and says
what differs there. Where something does, a third execution on another GPU again is the vote:

    first auditor    second auditor           what was wrong
    differs          nothing differs          the first auditor
    differs          the same differs         the rank
    differs          something else differs   not known: the program does not repeat its bits

Where there is no third GPU, the second replay is on the rank's own. If it agrees with the rank, that
may be the same fault again, which lasts: the first auditor's GPU replays once more. If it still finds
the same, one of two GPUs is wrong for good, and which is not known.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pyft.wire import messages as wire

EVIDENCE_BYTES = 16
# Codes of an auditor's last words:
NOT_KEPT = 1  # it lacks the result of a collective
CANNOT_TELL = -1  # of a value it is only known what was told before a fault was corrected
ATTEMPTS = 3  # auditors of one interval that end without a word


class Reason(enum.Enum):
    """Why entries of a rank were not audited: the counter in its control page."""

    FIRST = "unaudited_first"
    LOG = "unaudited_log"
    SPARE = "unaudited_spare"
    FAILED = "unaudited_failed"
    UNDECIDED = "unaudited_undecided"
    COLLECTIVES = "unaudited_collectives"


class Verdict(enum.Enum):
    """What is known of an interval."""

    OPEN = "another replay is needed"
    EQUAL = "a replay has the same contents"
    RANK = "two replays agree, and the rank has something else"
    AUDITOR = "the rank and the second replay agree, the first one has something else"
    UNDECIDED = "three executions have three results"
    INEXACT = "a replay differs, but the program uses memory whose contents are in no log"
    FAILED = "no replay has come to an end"


@dataclass(frozen=True)
class Finding:
    """What one auditor says."""

    gpu: int
    differing: int
    fresh: int
    bytes: int
    evidence: str  # hex; equal if two find the same
    text: str  # about the first that differs

    @classmethod
    def of(cls, said: wire.Audited, gpu: int) -> Finding:
        """Return what a message says; raise ValueError for what no auditor says."""
        if len(said.payload) < EVIDENCE_BYTES:
            raise ValueError(f"an audit comes with [{len(said.payload)}] bytes of evidence")
        text = said.payload[EVIDENCE_BYTES:].decode(errors="replace")
        evidence = said.payload[:EVIDENCE_BYTES].hex()
        return cls(gpu, said.differing, said.fresh, said.bytes, evidence, text)


@dataclass
class Interval:
    """What is being audited: a rank between its committed snapshot and the cut that waits."""

    id: int
    epoch: int
    step: int  # what the plan calls the cut
    entry: int  # of the cut
    entries: int  # since the snapshot
    gpu: int  # the rank's own
    found: list[Finding] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # why auditors have ended without a word

    @property
    def disputed(self) -> bool:
        """Say whether an auditor has found something else, and there was no vote yet."""
        return bool(self.found and self.found[0].differing)

    def verdict(self, exact: bool = True) -> Verdict:
        """Return what is known so far. `exact`: all that the program reads is in its log."""
        if not self.found:
            return Verdict.FAILED if len(self.failed) >= ATTEMPTS else Verdict.OPEN
        first, *votes = self.found
        if not first.differing:
            return Verdict.EQUAL
        if not exact:
            return Verdict.INEXACT  # replays may agree about what was never so
        if not votes or (len(votes) == 1 and self._is_ambiguous()):
            return Verdict.UNDECIDED if len(self.failed) >= ATTEMPTS else Verdict.OPEN
        if not votes[-1].differing:
            return Verdict.AUDITOR
        agree = len(votes) == 1 and votes[0].evidence == first.evidence
        return Verdict.RANK if agree else Verdict.UNDECIDED

    def _is_ambiguous(self) -> bool:
        """Say whether the rank's own GPU has agreed with it, against another one."""
        first, vote = self.found[:2]
        return not vote.differing and vote.gpu == self.gpu != first.gpu

    def place(self, spares: list[int], others: list[int], on_own: bool) -> int | None:
        """Return the GPU for the next replay; None: there is none now.

        `others`: the GPUs of other ranks. A vote goes to one that has not taken part: another spare,
        another rank's GPU, at last the rank's own.
        """
        if on_own:
            return self.gpu
        if len(self.found) > 1:
            return self.found[0].gpu if self.found[0].gpu in spares else None
        used = {one.gpu for one in self.found}
        if fresh := [gpu for gpu in spares if gpu not in used]:
            return fresh[0]
        if not self.disputed:
            return None
        return next((gpu for gpu in others if gpu not in used), self.gpu)
