"""The ways in which a job of two ranks ends, what is said then, and differences that are known."""

from __future__ import annotations

import signal
from dataclasses import dataclass

WRONG_SUM = "took for a sum what is none:"  # said by the program
# PyTorch's watchdog, when it has aborted all communicators.
_ABORTED = r"taking the entire process down"


@dataclass(frozen=True)
class Way:
    """One of them."""

    word: str  # what the program is told
    rank: int | None  # whose end it is; None: something outside gets the signal
    text: str  # for people
    says: tuple[str, ...]  # patterns of what is said, with and without servers
    victim: str = ""  # launcher or torchrun
    signal: int = 0

    @property
    def name(self) -> str:
        return f"{self.word}-{self.rank if self.rank is not None else self.victim}"


@dataclass(frozen=True)
class Known:
    """A difference between the modes whose cause is known."""

    words: tuple[str, ...]  # the ways that have it
    problem: str  # a pattern of what judge.py says of it
    why: str  # a paragraph of the page
    always: bool = True  # it has to be there; otherwise it is a race


_ENDS = (
    ("raise", "an exception", (r"RuntimeError: an error of the program",)),
    ("exit-0", "`sys.exit(0)`, while the other rank waits", (r"ncclRemoteError", _ABORTED)),
    (
        "late",
        "comes after `init_process_group(timeout=)`",
        (r"collective operation timeout", _ABORTED),
    ),
    ("assert", "an assert in a kernel", (r"device-side assert triggered",)),
    ("memory", "more memory than the GPU has", (r"OutOfMemoryError: CUDA out of memory",)),
    ("term", "SIGTERM", (r"Signal 15 \(SIGTERM\)",)),
    ("int", "SIGINT", (r"KeyboardInterrupt",)),
    ("kill", "SIGKILL", (r"Signal 9 \(SIGKILL\)",)),
    ("segv", "SIGSEGV: it reads at address 0", (r"Signal 11 \(SIGSEGV\)",)),
)
_SIGNALS = {
    signal.SIGTERM: (r"got signal: 15|Signal 15|SIGTERM",),
    signal.SIGINT: (r"got signal: 2|Signal 2|SIGINT",),
}

WAYS = (
    *(Way(word, rank, text, says) for word, text, says in _ENDS for rank in (0, 1)),
    *(
        Way(number.name, None, number.name, says, victim, number)
        for victim in ("launcher", "torchrun")
        for number, says in _SIGNALS.items()
    ),
)

KNOWN = (
    Known(
        ("assert",),
        r"first to fail: \[rank (\d): 1\] and \[rank \1: SIGABRT\]",
        "How the rank ends whose kernel asserts. When Python ends, PyTorch aborts the "
        "communicator. flexccl does it without the device. The client refuses each call to a "
        "device that has failed (`Device::call` in `proxy/client/device/device.cc`). So "
        "`ncclCommAbort` returns `ncclUnhandledCudaError`, and PyTorch ends the process by "
        "SIGABRT. Without servers it ends by code 1, or by SIGABRT where PyTorch's watchdog sees the "
        "error first. The job's exit code is the same.",
        always=False,
    ),
)
