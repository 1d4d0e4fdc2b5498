"""How often what has failed where, and so: how to replay, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyft.recovery.classify import Blame, Fault
from pyft.recovery.events import Mode

# An error of a kernel is noticed late: so many entries further on it is still the same place.
NOTICED_WITHIN = 4096
ATTEMPTS = 8  # servers of a rank in a row that never came to life
CRASHES = 4  # of a server at one place
REPEATS = 16  # of anything at one place
UNDECIDED = 4  # replays that may ask for another one to tell which is right


@dataclass(frozen=True)
class Verdict:
    """How the next server replays; `leave`: on another GPU if there is one."""

    mode: Mode = Mode.NORMAL
    leave: bool = False
    give_up: str = ""


@dataclass
class LogPosition:
    """Where a class of faults was seen last, and how often there."""

    cut: int
    seq: int
    times: int = 1

    def is_here(self, fault: Fault) -> bool:
        """Say whether a fault has come back: no new committed snapshot, not further on."""
        return fault.cut == self.cut and fault.seq <= self.seq + NOTICED_WITHIN


@dataclass
class History:
    """The faults of one rank since its last committed snapshot."""

    positions: dict[str, LogPosition] = field(default_factory=dict)
    attempts: int = 0  # since a server of this rank was alive

    def lived(self) -> None:
        """Note that a recovery has succeeded."""
        self.attempts = 0

    def judge(self, fault: Fault, mode: Mode = Mode.NORMAL) -> Verdict:
        """Note a fault of a server that replayed in this mode, and say how to go on."""
        times = self._count(fault)
        self.attempts += 1
        if self.attempts > ATTEMPTS:
            return Verdict(
                give_up=f"[{ATTEMPTS}] replacements in a row have failed, the last one by "
                f"[{fault.name}]: {fault.evidence}"
            )
        if fault.row.blame is Blame.ORDER:
            # On another GPU it also says which of the two computes wrongly.
            if mode is Mode.NORMAL or (fault.undecided and times <= UNDECIDED):
                return Verdict(Mode.SERIAL, leave=True)
            return Verdict(give_up=fault.evidence)
        if fault.row.blame is Blame.REPLAY:
            return Verdict(give_up=fault.evidence) if times > 1 else Verdict(Mode.SERIAL)
        if times > REPEATS:
            return Verdict(give_up=self._repeated(fault, times))
        if fault.row.blame is Blame.REPLICA:
            return Verdict(leave=True)
        if fault.row.blame in (Blame.NOBODY, Blame.STRIKES) or times == 1:
            return Verdict()
        if times == 2:
            return Verdict(Mode.SERIAL, leave=True)
        if fault.row.blame is Blame.PROGRAM:
            return Verdict(Mode.DELIVER)
        if times < CRASHES and fault.row.blame is not Blame.RANKS:
            return Verdict(Mode.SERIAL, leave=True)
        return Verdict(give_up=self._repeated(fault, times))

    def _repeated(self, fault: Fault, times: int) -> str:
        return (
            f"the same fault [{fault.name}] has come [{times}] times at the same place, "
            f"entry [{fault.seq}]: {fault.evidence}"
        )

    def _count(self, fault: Fault) -> int:
        position = self.positions.get(fault.name)
        if position and position.is_here(fault):
            position.times += 1
            position.seq = max(position.seq, fault.seq)
        else:
            position = self.positions[fault.name] = LogPosition(fault.cut, fault.seq)
        return position.times
