"""What came of a run of the soak: equal bits, an end with a reason, or something that may not be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disturbances import Disturbance

from pyft.errors import NOT_INJECTED

EQUAL, ENDED, MISSED = "equal", "ended", "missed"
CHANGED = "changed"  # by a silent fault, which nothing saw
WRONG, BAD = "wrong bits", "bad"
FAILURES = (WRONG, BAD)
_NUMBERS = re.compile(r"\[[^\[\]]*\]")
# What is said of a run that ends, from the most telling to the least. The rest is the program's own.
REASONS = (
    r"pyft: .*(?:supervisor|launcher) .*ended.*",
    r"pyft: .*(?:descriptor|Too many open files|ulimit).*",
    r"pyft: .*(?:Cannot allocate memory|no memory|[Oo]ut of memory|address space).*",
    r"pyft: .*not replaced.*",
    r"pyft: .*(?:ended|killed|given up|cannot|does not start|refused).*",
    r".*(?:Too many open files|Cannot allocate memory|MemoryError|can't start new thread).*",
    r".*(?:OSError|RuntimeError|CUDA error|error while loading shared libraries).*",
)


@dataclass(frozen=True)
class Seen:
    """A run, as far as it is judged."""

    code: int | None
    trouble: str  # it did not end in time, or something is left
    lines: Sequence[str]  # losses and hashes
    errors: str
    recovery: Mapping  # of the report; empty, if it did not come to one


@dataclass(frozen=True)
class Verdict:
    """What came of it."""

    outcome: str
    reason: str = ""


def reason_of(errors: str) -> str:
    """Return the sentence that says why a run ended, without its numbers; empty if none does."""
    for pattern in REASONS:
        if found := re.search(pattern, errors):
            return _NUMBERS.sub("[...]", found[0].strip())[:160]
    return ""


def judge(given: Disturbance, seen: Seen, wanted: Sequence[str]) -> Verdict:
    """Compare a run with the undisturbed one, whose losses and hashes are `wanted`."""
    if seen.trouble or seen.code is None:
        return Verdict(BAD, seen.trouble or "it did not end")
    if not set(seen.lines) <= set(wanted):  # also of a job that ended before its time
        return Verdict(CHANGED if given.silent else WRONG, reason_of(seen.errors))
    if why := _crashed(given, seen):
        return Verdict(BAD, why)
    if seen.code in (0, NOT_INJECTED):
        return _ended_well(given, seen, wanted)
    why = reason_of(seen.errors) or _killed(given)
    if not given.may_end and not given.silent:
        return Verdict(BAD, f"exit code [{seen.code}]: {why}")
    return Verdict(ENDED, why) if why else Verdict(BAD, f"exit code [{seen.code}] without a reason")


def _ended_well(given: Disturbance, seen: Seen, wanted: Sequence[str]) -> Verdict:
    if sorted(seen.lines) != sorted(wanted):
        return Verdict(WRONG, "it says that all is well, and lines are missing")
    if seen.recovery.get("given_up"):
        why = reason_of(seen.errors)
        if given.limit and why:  # too little for a new server, and the program needed none any more
            return Verdict(ENDED, why)
        return Verdict(BAD, f"given up [{seen.recovery['given_up']}], and the program ends well")
    missed = seen.recovery.get("not_injected") or ()
    return Verdict(MISSED, missed[0]["why"]) if missed else Verdict(EQUAL)


def _crashed(given: Disturbance, seen: Seen) -> str:
    """Say so if an agent ended that nobody has killed."""
    restarts = seen.recovery.get("agent_restarts", 0)
    asked = sum(kind in ("agent killed", "at agent.says") for kind in given.kinds)
    if "memory" in given.limit:  # the kernel ends whom it likes
        return ""
    if restarts > asked:
        return f"the agent was restarted [{restarts}] times"
    inside = re.search(r'File ".*/pyft/(?:agent|recovery)/.*', seen.errors)
    return f"an exception in the agent: {inside[0].strip()}" if inside else ""


def _killed(given: Disturbance) -> str:
    """Return which process was killed without which a job, or a rank, ends."""
    whose = [k for k in given.kinds if k.startswith(("client", "launcher", "supervisor", "at "))]
    return ", ".join(whose)
