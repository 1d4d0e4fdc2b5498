"""Checks, how they run one after the other, and what is said about them."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts import Artifacts
    from machine import Machine


PATIENCE = 3  # limits are those of a machine with a GPU and 16 cores; without one all takes longer
GRACE_S = 20.0  # programs are ended at the deadline: this is for what does not look at it


class SkipError(Exception):
    """It cannot be checked on this machine; the sentence says why."""


class FailError(Exception):
    """It does not hold; the sentence says what was found instead.

    `lines`: what a program said, to be read where the check ran.
    """

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = lines


@dataclass(frozen=True)
class Check:
    """One line of the result. `run` returns figures, or raises SkipError or FailError.

    `planned`: what it should take on a machine with a GPU and 16 cores. All together must fit.
    """

    name: str
    planned: float
    seconds: float  # it may take so long
    run: Callable[[Machine], list[str]]
    needs: tuple[str, ...] = ()  # checks that come before it, also when only it is asked for


@dataclass
class Result:
    name: str
    status: str  # PASS, FAIL, SKIP
    text: str  # figures, or the reason
    planned: float
    seconds: float
    lines: Sequence[str] = ()  # what a program said that failed


@dataclass
class Checklist:
    """Runs checks until the time of all together is used up."""

    machine: Machine
    seconds: float
    artifacts: Artifacts | None = None
    results: list[Result] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run_all(self, checks: Sequence[Check], after_each: Callable[[], None]) -> None:
        """Run them in this order; what they leave is kept when the last one of a part is over."""
        parts = [self.artifacts.part_of[check.name] if self.artifacts else "" for check in checks]
        for number, check in enumerate(checks):
            last = True  # where this program is ended it is
            try:
                last = self.run(check) or parts[number] not in parts[number + 1 :]
            finally:
                after_each()  # each time: something may end this program without a word
                if self.artifacts and last:
                    self.artifacts.pack(parts[number])

    def run(self, check: Check) -> bool:
        """Run one check and print its line; say whether it failed."""
        started = time.monotonic()
        left = self.seconds - (started - self.began)
        self.machine.begin(check.name)
        if left < check.planned / 2:
            status, text = "SKIP", f"[{left:.0f} s] of [{self.seconds:.0f} s] are left: --only it"
            lines: Sequence[str] = ()
        else:
            allowed = check.seconds * (1 if self.machine.gpu else PATIENCE)
            self.machine.deadline = started + min(allowed, left)
            status, text, lines = _outcome(check, self.machine)
        if status == "FAIL":
            self.machine.keep_kernel_log()
        took = time.monotonic() - started
        self.results.append(Result(check.name, status, text, check.planned, took, lines))
        print(
            f"{status}  {took:6.1f} s of {check.planned:3.0f}  {check.name:<21} {text}", flush=True
        )
        for line in lines:
            print(f"      | {line}", flush=True)
        return status == "FAIL"

    @property
    def failed(self) -> int:
        return sum(result.status == "FAIL" for result in self.results)

    def print_sum(self) -> None:
        counts = {s: sum(r.status == s for r in self.results) for s in ("PASS", "FAIL", "SKIP")}
        words = ", ".join(f"{count} {status}" for status, count in counts.items())
        print(f"check.sh: {words}, {time.monotonic() - self.began:.0f} s on {self.machine.name}")

    def markdown(self, arguments: Sequence[str]) -> str:
        """Return the table for docs/gpu-results.md."""
        command = shlex.join(["tools/gpu/check.sh", *arguments])
        lines = [
            f"{self.machine.name}, {self.machine.versions()}, {datetime.date.today()}, `{command}`",
            "",
            "| check | result | planned s | seconds | figures, or why not |",
            "|---|---|---|---|---|",
        ]
        for one in self.results:
            text = one.text.replace("|", "\\|")
            times = f"{one.planned:.0f} | {one.seconds:.1f}"
            lines.append(f"| {one.name} | {one.status} | {times} | {text} |")
        for one in self.results:
            if one.lines:
                lines += ["", f"`{one.name}`:", "", *(f"    {line}" for line in one.lines)]
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Let a check fail that waits for ever: the others must still run."""

    def over(*_: object) -> None:
        raise FailError(f"it is not over after [{seconds:.0f} s]")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _outcome(check: Check, machine: Machine) -> tuple[str, str, Sequence[str]]:
    try:
        with _ended_after(max(0.0, machine.deadline - time.monotonic()) + GRACE_S):
            return "PASS", "; ".join(check.run(machine)), ()
    except SkipError as error:
        return "SKIP", str(error), ()
    except FailError as error:
        return "FAIL", str(error), error.lines
    except Exception as error:  # the others must still run
        return "FAIL", f"{type(error).__name__}: {error}", traceback.format_exc().splitlines()
