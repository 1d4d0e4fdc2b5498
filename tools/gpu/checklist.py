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
    from machine import Machine


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
    """One line of the result. `run` returns figures, or raises SkipError or FailError."""

    name: str
    seconds: float  # it may take so long
    run: Callable[[Machine], list[str]]
    needs: tuple[str, ...] = ()  # checks that come before it, also when only it is asked for


@dataclass
class Result:
    name: str
    status: str  # PASS, FAIL, SKIP
    text: str  # figures, or the reason
    seconds: float


@dataclass
class Checklist:
    """Runs checks until the time of all together is used up."""

    machine: Machine
    seconds: float
    results: list[Result] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self, check: Check) -> None:
        """Run one check and print its line."""
        started = time.monotonic()
        left = self.seconds - (started - self.began)
        if left < check.seconds / 4:
            status, text = "SKIP", f"[{left:.0f} s] of [{self.seconds:.0f} s] are left: --only it"
            lines: Sequence[str] = ()
        else:
            self.machine.deadline = started + min(check.seconds, left)
            status, text, lines = _outcome(check, self.machine)
        result = Result(check.name, status, text, time.monotonic() - started)
        self.results.append(result)
        print(f"{status}  {result.seconds:6.1f} s  {check.name:<24} {text}", flush=True)
        for line in lines:
            print(f"      | {line}", flush=True)

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
            "| check | result | seconds | figures, or why not |",
            "|---|---|---|---|",
        ]
        for result in self.results:
            text = result.text.replace("|", "\\|")
            lines.append(f"| {result.name} | {result.status} | {result.seconds:.1f} | {text} |")
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
