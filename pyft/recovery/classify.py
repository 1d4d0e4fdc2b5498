"""What a sign of trouble means, and what is done about it: one table.

docs/operate/faults.md shows it (`python tools/gen/gen_faults.py --root .`); lint compares the two.
"""

from __future__ import annotations

import enum
import os
import signal
from dataclasses import dataclass

from pyft.wire.layout import (
    ATTACH_EXIT,
    BACKEND_EXIT,
    DIVERGED_EXIT,
    FAULT_EXIT,
    MISMATCH_EXIT,
    MISMATCH_SPREAD_EXIT,
    NO_PLACE_EXIT,
    PROTOCOL_EXIT,
    SELF_TEST_EXIT,
    STORE_EXIT,
    UNRECOVERABLE_EXIT,
    FaultKind,
)


class Do(enum.Enum):
    """What a class of faults asks for."""

    SAME = "new server, same GPU"
    OTHER = "new server, another GPU; this one is not used again"
    GIVE_UP = "the client's calls return an error"
    WAIT = "nothing"


class Blame(enum.Enum):
    """What the same fault at the same place, again, tells."""

    NOBODY = ""  # chance: only the number of attempts is limited
    SERVER = "again: entry by entry, on a spare; again: the error is the client's"
    REPLAY = "again: the client's calls return an error"  # the first time: entry by entry
    ORDER = "entry by entry, on a spare; again: the client's calls return an error"
    REPLICA = "the same, 16 times at one cut"
    STRIKES = "again: on a spare if there is one; this GPU is not used again"
    PROGRAM = "again: entry by entry, on a spare; again: the program gets its own error"
    RANKS = "again: entry by entry, on a spare; again: the client's calls return an error"


@dataclass(frozen=True)
class Row:
    """One class of faults. `signs` are what the evidence says, by source."""

    name: str
    do: Do
    blame: Blame
    source: str  # exit, signal, api, xid, nvml, agent
    signs: tuple[int | str, ...]
    meaning: str


TABLE = (
    Row("server-killed", Do.SAME, Blame.NOBODY, "signal", ("SIGKILL", "SIGTERM"),
        "another process, or the kernel for want of memory, ended the server"),
    Row("server-crash", Do.SAME, Blame.SERVER, "signal", ("any other",),
        "the server or the driver library in it failed"),
    Row("server-crash", Do.SAME, Blame.SERVER, "exit", ("any other",),
        "the server ended without a reason that it knows"),
    Row("server-start", Do.SAME, Blame.SERVER, "exit", (ATTACH_EXIT, BACKEND_EXIT, STORE_EXIT),
        "the server could not use its memory or its device"),
    Row("self-test", Do.OTHER, Blame.NOBODY, "exit", (SELF_TEST_EXIT,),
        "a new server has found that its GPU forgets, or multiplies wrongly"),
    Row("communicator", Do.SAME, Blame.NOBODY, "exit", (NO_PLACE_EXIT,),
        "a new server did not get its place in a communicator"),
    Row("ring-broken", Do.GIVE_UP, Blame.NOBODY, "exit", (PROTOCOL_EXIT,),
        "the client has written what no client writes: a replay would meet it again"),
    Row("ring-broken", Do.GIVE_UP, Blame.NOBODY, "agent", ("damage",),
        "the client has overwritten what says where its ring is, or its control page"),
    Row("unrecoverable", Do.SAME, Blame.REPLAY, "exit", (UNRECOVERABLE_EXIT,),
        "the committed snapshot cannot be restored, or the device failed while it was"),
    Row("diverged", Do.SAME, Blame.ORDER, "exit", (DIVERGED_EXIT,),
        "the replay differs from what the program has been told"),
    Row("mismatch", Do.SAME, Blame.STRIKES, "exit", (MISMATCH_EXIT,),
        "two executions of a product with the same inputs differ: a replay executes both again"),
    Row("mismatch", Do.SAME, Blame.STRIKES, "agent", ("audit",),
        "a replay on another GPU has other contents, and a third execution agrees with it"),
    Row("mismatch-spread", Do.GIVE_UP, Blame.NOBODY, "exit", (MISMATCH_SPREAD_EXIT,),
        "likewise, and other ranks may have what is wrong: a replay of one rank would not undo that"),
    Row("context-lost", Do.SAME, Blame.PROGRAM, "api",
        (700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 720),
        "a kernel failed: the context is gone, the GPU is not"),
    Row("memory-contained", Do.SAME, Blame.NOBODY, "api", (226,),
        "a memory error that took only this context with it"),
    Row("link-error", Do.SAME, Blame.NOBODY, "api", (220,),
        "an error on the way to another GPU"),
    Row("memory-uncontained", Do.OTHER, Blame.NOBODY, "api", (214,),
        "a memory error of the whole GPU: it needs a reset"),
    Row("gpu-lost", Do.OTHER, Blame.NOBODY, "api", (46, 100, 101, 802, 999),
        "the GPU does not answer, or is not there"),
    Row("context-lost", Do.SAME, Blame.PROGRAM, "api", ("any other",),
        "an error after which every call of the context fails"),
    Row("silent", Do.SAME, Blame.SERVER, "agent", ("heartbeat",),
        "no sign of life for PYFT_HEARTBEAT_TIMEOUT_S, neither heartbeat nor progress"),
    Row("hang", Do.SAME, Blame.PROGRAM, "agent", ("stuck",),
        "an entry was started, waits for no other rank, and is not finished after PYFT_HANG_S"),
    Row("collective", Do.SAME, Blame.RANKS, "agent", ("collective",),
        "all ranks that replay together wait for each other, and nothing moved for PYFT_COLLECTIVE_S"),
    Row("communicator", Do.SAME, Blame.NOBODY, "agent", ("communicator",),
        "connections of a rank broke, or it did not take part in a repair in time"),
    Row("overdue", Do.SAME, Blame.NOBODY, "agent", ("overdue",),
        "a recovery made no progress in time"),
    Row("ordered", Do.SAME, Blame.NOBODY, "agent", ("replace", "drain"),
        "an operator wants the rank on a new server or elsewhere"),
    Row("interrupted", Do.SAME, Blame.NOBODY, "agent", ("adopted",),
        "the agent died while the rank was recovered: the new agent begins that again"),
    Row("gpu-lost", Do.OTHER, Blame.NOBODY, "agent", ("gpu",),
        "another rank's server has lost the GPU that both use"),
    Row("replica", Do.SAME, Blame.REPLICA, "agent", ("replica",),
        "its memory is no longer that of its replicas: its replay, on a spare if there is one, says which is right"),
    Row("peer-failed", Do.SAME, Blame.NOBODY, "agent", ("peer",),
        "another rank of communicators that cannot be repaired has failed: all of them replay"),
    Row("memory-contained", Do.SAME, Blame.NOBODY, "xid", (94,), "contained memory error"),
    Row("context-lost", Do.SAME, Blame.PROGRAM, "xid", (13, 31, 43, 69),
        "the program's kernel did something forbidden"),
    Row("link-error", Do.SAME, Blame.NOBODY, "xid", (74, 121), "NVLink or C2C error"),
    Row("memory-uncontained", Do.OTHER, Blame.NOBODY, "xid", (48, 64, 95, 140),
        "uncorrectable memory error, or no rows left to remap"),
    Row("gpu-lost", Do.OTHER, Blame.NOBODY, "xid", (61, 62, 79, 119, 120, 143, 154),
        "fell off the bus, its microcontroller stopped, or it needs a reset"),
    Row("notice", Do.WAIT, Blame.NOBODY, "xid", (45, 63, 68, 92, "any other"),
        "a consequence or a warning: nothing to repair"),
    Row("gpu-lost", Do.OTHER, Blame.NOBODY, "nvml",
        ("GPU_IS_LOST", "RESET_REQUIRED", "gpu reset", "node reboot", "drain p2p",
         "drain and reset", "bus reset", "any other"),
        "NVML says so, by its error or its recovery action, when a server has died or at Xid 154"),
    Row("device-error", Do.SAME, Blame.SERVER, "nvml", ("none",),
        "the API says that the GPU is lost, NVML that a new process can use it: after a self-test"),
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One sign of trouble at a rank, classified."""

    row: Row
    evidence: str  # for people: what was seen
    seq: int = 0  # entry being dispatched
    cut: int = 0  # last snapshot
    lasted: float = 0.0  # seconds, when it was noticed, if the agent knows
    undecided: bool = False  # only one replay has come there yet, entry by entry

    @property
    def name(self) -> str:
        """The class."""
        return self.row.name

    @property
    def means_well(self) -> bool:
        """Say whether this is NVML's word that a new process can use the GPU."""
        return self.row.source == "nvml" and self.row.do is Do.SAME


def row_of(source: str, sign: int | str) -> Row:
    """Return the row of a sign; `any other` of the source when no row names it."""
    rows = [row for row in TABLE if row.source == source]
    named = [row for row in rows if sign in row.signs]
    return named[0] if named else next(row for row in rows if "any other" in row.signs)


def row_named(name: str) -> Row:
    """Return a row of a class, for a fault whose sign was not written down."""
    return next(row for row in TABLE if row.name == name)


def of_exit(
    status: int, kind: int = 0, code: int = 0, text: str = "", seq: int = 0, cut: int = 0
) -> Fault:
    """Classify the death of a server: its wait status and its last words, if it left any."""
    ended = os.waitstatus_to_exitcode(status)
    if ended < 0:
        name = signal.Signals(-ended).name if -ended in list(signal.Signals) else str(-ended)
        return Fault(row_of("signal", name), f"killed by signal [{-ended} {name}]", seq, cut)
    evidence = f"exit [{ended}]" + (f", {text}" if text else "")
    if ended == FAULT_EXIT and kind == FaultKind.DEVICE:
        return Fault(row_of("api", code), f"API code [{code}], {evidence}", seq, cut)
    undecided = ended == DIVERGED_EXIT and kind == FaultKind.UNDECIDED
    return Fault(row_of("exit", ended), evidence, seq, cut, undecided=undecided)


def of_agent(sign: str, evidence: str, seq: int = 0, cut: int = 0, lasted: float = 0.0) -> Fault:
    """Classify what the agent itself has noticed or was asked to do."""
    return Fault(row_of("agent", sign), evidence, seq, cut, lasted)


def weighed(fault: Fault, from_nvml: Fault | None, replays_imports: bool) -> Fault:
    """Return which explanation of a death counts, of all that is known.

    `replays_imports`: the rank replays, and has opened memory of other processes.
    """
    fault = worse(fault, from_nvml)
    if replays_imports and fault.row.blame is Blame.PROGRAM:
        return of_shared_memory(fault)
    return fault


def of_shared_memory(fault: Fault) -> Fault:
    """Return what a fault of the program is that a rank with memory of other processes replays.

    The replay has read what is there now, and not what was there then: it proves nothing about the
    program.
    """
    why = "the replay reads memory of other processes, and what they write there is in no log"
    evidence = f"{fault.evidence}: {why}"
    return Fault(row_of("exit", UNRECOVERABLE_EXIT), evidence, fault.seq, fault.cut)


def worse(first: Fault, second: Fault | None) -> Fault:
    """Return which of two explanations of one death counts: a lost GPU before all others.

    Of a GPU that the API alone calls lost, NVML knows better (H6).
    """
    if second is None:
        return first
    if second.row.do is Do.OTHER:
        return second
    if second.means_well and first.row.source == "api" and first.row.do is Do.OTHER:
        evidence = f"{first.evidence}; {second.evidence}"
        return Fault(second.row, evidence, first.seq, first.cut)
    return first


def markdown() -> str:
    """Return the table as docs/operate/faults.md shows it."""
    lines = ["| class | sign | meaning | what is done | the same again |", "|---|---|---|---|---|"]
    for row in TABLE:
        signs = ", ".join(str(sign) for sign in row.signs)
        cells = (row.name, f"{row.source}: {signs}", row.meaning, row.do.value, row.blame.value)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
