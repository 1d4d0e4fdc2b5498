"""What a run of a program has to be: that of the same program without servers, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

DIRECT, PROXIED, KILLED, LOST = MODES = ("direct", "proxied", "killed", "lost")
# The class under which a fault on request is reported.
CLASSES = {KILLED: "server-killed", LOST: "gpu-lost"}
RECOVERED = "recovered"
_RESULT = re.compile(r"rank=\d+ (loss|sha256)=\S")  # as src/signature.py prints them


@dataclass(frozen=True)
class Run:
    """How one has ended, and what it has printed."""

    code: int | None  # None: it has not ended
    lines: tuple[str, ...] = ()  # losses and hashes, sorted
    faults: Sequence[Mapping] = ()
    not_injected: Sequence[Mapping] = ()
    verdict: str = ""
    seconds: float = 0.0
    left: str = ""  # what it has left behind
    said: str = field(default="", compare=False)  # its last words


def results(output: str) -> tuple[str, ...]:
    """Return the lines that have to be equal. Ranks print them in any order."""
    return tuple(sorted(line for line in output.splitlines() if _RESULT.match(line)))


def _fault(mode: str, run: Run) -> list[str]:
    """Return what is wrong with the fault that was asked for."""
    wrong = [f"the fault did not happen: {one}" for one in run.not_injected]
    came = [one for one in run.faults if one["fault"] == CLASSES.get(mode)]
    if mode in CLASSES and not came:
        wrong.append(f"no fault [{CLASSES[mode]}] is reported")
    outcomes = {one["outcome"] for one in run.faults}
    if outcomes - {RECOVERED}:
        wrong.append(f"outcomes {sorted(outcomes)}")
    if came and run.verdict != "exact":
        wrong.append(f"verdict [{run.verdict}]")
    others = [one["fault"] for one in run.faults if one["fault"] != CLASSES.get(mode)]
    if others:
        wrong.append(f"[{len(others)}] recoveries that nobody asked for: {sorted(set(others))}")
    return wrong


def problems(mode: str, run: Run, direct: Run, ranks: int) -> list[str]:
    """Return all that is wrong with a run; `direct` is that without servers."""
    if run.code is None:
        return ["it has not ended"]
    if run.code != 0:
        return [f"exit code [{run.code}]: {run.said}"]
    wrong = [f"left {run.left}"] if run.left else []
    for kind, least in (("loss=", 1), ("sha256=", ranks)):
        if sum(kind in line for line in run.lines) < least:
            wrong.append(f"prints too few [{kind}]")
    if run.lines != direct.lines:
        different = sorted(set(run.lines) ^ set(direct.lines))
        wrong.append(f"[{len(different)}] other lines than without servers, [{different[:1]}]")
    return wrong + _fault(mode, run)


def row(runs: Mapping[str, Run], versions: Mapping[str, str], ranks: int) -> dict:
    """Return what the results say of a program."""
    wrong = {
        mode: found
        for mode, run in runs.items()
        if (found := problems(mode, run, runs[DIRECT], ranks))
    }
    return {
        "versions": dict(versions),
        "ranks": ranks,
        "losses": sum("loss=" in line for line in runs[DIRECT].lines),
        "hashes": sum("sha256=" in line for line in runs[DIRECT].lines),
        "equal": all(run.code == 0 and run.lines == runs[DIRECT].lines for run in runs.values()),
        "seconds": {mode: run.seconds for mode, run in runs.items()},
        "faults": {mode: _told(run.faults) for mode, run in runs.items() if mode in CLASSES},
        "wrong": wrong,
    }


def _told(faults: Collection[Mapping]) -> list[dict]:
    names = ("rank", "fault", "cut", "total_ms", "replayed_entries", "outcome")
    return [{name: one[name] for name in names} for one in faults]
