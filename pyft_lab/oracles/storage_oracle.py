"""What a fault of storage met, and what the mechanism did: of strace's notes and of ranks' lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft_lab.api import ASKED, STORAGE

Lines = list[dict[str, Any]]
CALL = re.compile(r"^(?P<thread>\d+) +(?P<t>\d+\.\d+) (?:<\.\.\. )?(?P<name>[a-z]+)(?P<rest>.*)$")
SLOW_S = 1.0  # of matrix/storage.py; strace notes a call when it begins, or when it has ended
FAILED, DELAYED, DONE = "(INJECTED)", "(DELAYED)", re.compile(r"\) += 0$")


@dataclass(frozen=True)
class Met:
    """Calls that a fault met: when the first was, how many, and names given in spite of it."""

    first: float  # seconds since 1970
    times: tuple[float, ...]
    named: tuple[str, ...]


def read_trace(text: str) -> Met:
    """Return what strace noted. A line that is cut short counts for nothing."""
    times: list[float] = []
    failed: set[str] = set()  # threads whose fsync has failed
    named: list[str] = []
    for line in text.splitlines():
        call = CALL.match(line)
        if call is None:
            continue
        thread, rest = call["thread"], call["rest"]
        if rest.endswith((FAILED, DELAYED)):
            times.append(float(call["t"]))
            failed |= {thread} if rest.endswith(FAILED) else set()
        elif call["name"].startswith("rename") and thread in failed and DONE.search(rest):
            named.append(rest)
    return Met(min(times, default=0.0), tuple(times), tuple(named))


def met(folder: Path, number: int) -> Met:
    path = folder / f"io-{number}.trace"
    return read_trace(path.read_text() if path.exists() else "")


def check(folder: Path, faults: Sequence[Any], attempts: int) -> tuple[list[str], list[str]]:
    """Return what is wrong with the checkpoints, and which faults had no effect."""
    wrong, without = [], []
    for number, fault in enumerate(faults):
        if fault.kind not in STORAGE:
            continue
        found = met(folder, number)
        if found.named:
            wrong.append(f"a checkpoint whose fsync failed got its name: rename{found.named[0]}")
        full = fault.kind == "disk-full" and attempts > 1
        if not (found.times or full):
            without.append(f"fault [{fault.kind}] met no call of a checkpoint's")
    return wrong, without


def answer(folder: Path, number: int, fault: Any, lines: Lines) -> str:
    """Say what the mechanism did, by the lines of a rank."""
    after = [line for line in lines if line["attempt"] > attempt_of(folder, number, lines)]
    if after:
        return f"was told of it, began anew from step {after[0]['step']}"
    if fault.kind == "slow-write":
        return f"went on; {len(met(folder, number).times)} calls took a second more"
    return "went on"


def attempt_of(folder: Path, number: int, lines: Lines) -> int:
    """Return in which attempt a fault began."""
    began = json.loads((folder / f"fired-{number}").read_text())["t"]
    return max((line["attempt"] for line in lines if line["t"] <= began), default=0)


def struck(folder: Path, number: int, lines: Lines) -> float | None:
    """Return when the training stood still: after the last step before the job began anew."""
    if not (folder / f"io-{number}{ASKED}").exists():
        return None
    attempt = attempt_of(folder, number, lines)
    if not any(line["attempt"] > attempt for line in lines):
        return None
    return max(line["t"] for line in lines if line["attempt"] == attempt)


def slow_seconds(folder: Path, number: int, lines: Lines, step_s: float) -> float:
    """Return by how much steps took longer while calls were slow, together."""
    times = met(folder, number).times
    gaps = [(a["t"], b["t"]) for a, b in zip(lines, lines[1:], strict=False)
            if a["attempt"] == b["attempt"]
            and any(a["t"] <= t + SLOW_S and t - SLOW_S < b["t"] for t in times)]  # fmt: skip
    return sum(max(end - begin - step_s, 0.0) for begin, end in gaps)
