"""The ways in which a job of two ranks ends, and what is said then."""

from __future__ import annotations

import signal
from dataclasses import dataclass

WRONG_SUM = "took for a sum what is none:"  # said by the program


@dataclass(frozen=True)
class Way:
    """One of them."""

    word: str  # what the program is told
    rank: int | None  # whose end it is; None: something outside gets the signal
    text: str  # for people
    says: str  # a pattern of what is said, with and without servers
    victim: str = ""  # launcher or torchrun
    signal: int = 0

    @property
    def name(self) -> str:
        return f"{self.word}-{self.rank if self.rank is not None else self.victim}"


_RANKS = (
    ("raise", (0, 1), "an exception", r"RuntimeError: an error of the program"),
    ("exit-0", (0,), "`sys.exit(0)`, while the other rank waits", r"DistBackendError|has ended"),
    ("late", (1,), "comes after `init_process_group(timeout=)`", r"collective operation timeout"),
    ("assert", (1,), "an assert in a kernel", r"device-side assert triggered"),
    ("memory", (0,), "more memory than the GPU has", r"OutOfMemoryError: CUDA out of memory"),
    ("kill", (0,), "SIGKILL", r"Signal 9 \(SIGKILL\)"),
)
_OUTSIDE = (("launcher", signal.SIGTERM), ("torchrun", signal.SIGTERM))

WAYS = (
    *(Way(word, rank, text, says) for word, ranks, text, says in _RANKS for rank in ranks),
    *(
        Way(number.name, None, number.name, r"SIGTERM|signal", victim, number)
        for victim, number in _OUTSIDE
    ),
)
