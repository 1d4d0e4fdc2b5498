"""What of two endings has to be the same, and which differences are known."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ways import KNOWN, Known, Way

NEAR_S = 5.0


@dataclass(frozen=True)
class Ending:
    """How one job ended."""

    code: int | None  # None: it did not
    seconds: float  # from the event on
    first: str  # the rank that has failed first, and how, says torchrun
    unsaid: tuple[str, ...]  # patterns of what should be said, and is not
    left: str  # what is left behind
    wrong: str  # the wrong sum that came to the program
    log: str


def first(text: str) -> str:
    """Return which rank has failed first, and how, by torchrun's summary; empty: none has."""
    _, found, summary = text.partition("Root Cause (first observed failure)")
    match = re.search(r"rank +: (\d+) .*\n +exitcode +: (-?\d+)", summary) if found else None
    if not match:
        return ""
    code = int(match[2])
    return f"rank {match[1]}: {signal.Signals(-code).name if code < 0 else code}"


def busy_differences(found: Mapping[str, Ending]) -> list[str]:
    """Return differences that a busy machine can make: they count when they come again."""
    direct, proxied = found["direct"], found["proxied"]
    different = []
    if abs(direct.seconds - proxied.seconds) > NEAR_S:
        different.append(f"ends [{direct.seconds}] s and [{proxied.seconds}] s after the event")
    if direct.first != proxied.first:
        different.append(f"first to fail: [{direct.first}] and [{proxied.first}]")
    return different


def problems(found: Mapping[str, Ending]) -> list[str]:
    """Return what is wrong, and does not depend on how busy the machine is."""
    wrong = []
    if found["direct"].code != found["proxied"].code:
        wrong.append("other exit codes")
    for mode, one in found.items():
        if one.code is None:
            wrong.append(f"{mode}: has not ended")
        wrong += [f"{mode}: nothing says [{pattern}]" for pattern in one.unsaid]
        if one.left:
            wrong.append(f"{mode}: left {one.left}")
        if one.wrong:
            wrong.append(f"{mode}: {one.wrong}")
    return wrong


def unexplained(way: Way, found: Mapping[str, Ending], known: Sequence[Known] = KNOWN) -> list[str]:
    """Return what is wrong and not known, and what is known and not to be seen any more."""
    wrong = problems(found) + busy_differences(found)
    expected = [one for one in known if way.word in one.words]
    seen = {one for one in expected if any(re.fullmatch(one.problem, text) for text in wrong)}
    gone = [one.problem for one in expected if one.always and one not in seen]
    other = [text for text in wrong if not any(re.fullmatch(one.problem, text) for one in seen)]
    return other + [f"known, but not seen: {one}" for one in gone]
