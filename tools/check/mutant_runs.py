"""Runs a C++ test for source_mutants.py: how it ends, under limits that a busy machine does not move.

A mutant that computes without an end is ended by its processor time. One that waits is ended by the
clock, and then the test is measured once more without a mutant: on a machine that has become slower
meanwhile the limit grows, and the mutant is tried again.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MEMORY = 6 << 30
# tests/check.h prints such a line for the first thing that is wrong, and goes on.
_WRONG = re.compile(rb":\d+: CHECK\w*\([^\n]* failed")
_LOOK = 0.1  # seconds between two looks at a test that prints nothing


class End(Enum):
    """How a run of a test has ended."""

    WELL = "well"
    FAILED = "failed"
    LATE = "late"  # the clock has ended it


@dataclass(frozen=True)
class Limits:
    """What a test may take, in seconds."""

    processor: float
    clock: float

    @staticmethod
    def of(processor: float, clock: float) -> Limits:
        """Return them for a test that takes so long without a mutant."""
        return Limits(20 + 10 * processor, 20 + 10 * clock)

    def on(self, now: Limits) -> Limits:
        """Return the limits on a machine on which the test takes as long as it does now."""
        return Limits(self.processor, max(self.clock, now.clock))


FIRST = Limits(600, 600)  # before anything is known of a test


def run(test: Path, limits: Limits) -> End:
    """Run a test until it ends, or says that something is wrong, or has reached a limit."""
    process = subprocess.Popen(
        [str(test)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _limit(process.pid, limits.processor)
        return _followed(process, time.monotonic() + limits.clock)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr:
            process.stderr.close()


def measured(test: Path, limits: Limits) -> tuple[End, Limits]:
    """Run a test without a mutant; return how it ends and the limits for those with one."""
    began, used = time.monotonic(), _used()
    end = run(test, limits)
    return end, Limits.of(_used() - used, time.monotonic() - began)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _limit(pid: int, processor: float) -> None:
    """Limit a process that has just begun; those that it starts have the same limits."""
    seconds = int(processor) + 1
    rows = {
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: seconds,
    }
    for what, most in rows.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, what, (most, most))


def _followed(process: subprocess.Popen[bytes], deadline: float) -> End:
    """Read what it prints until its end is known. What it has started may outlive it."""
    assert process.stderr
    pipe, text = process.stderr.fileno(), b""
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None  # looked at first: then all that it printed is read
        is_ready = bool(select.select([pipe], [], [], 0 if has_ended else _LOOK)[0])
        more = os.read(pipe, 1 << 16) if is_ready else b""
        text = text[text.rfind(b"\n") + 1 :] + more
        if _WRONG.search(text):
            return End.FAILED
        if has_ended and not more:
            return End.FAILED if process.returncode else End.WELL
        if is_ready and not more:
            time.sleep(_LOOK)  # it has closed that, and goes on
    return End.LATE
