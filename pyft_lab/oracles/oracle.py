"""What must hold of a run: samples, losses, final state, checkpoints. Each can fail."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pyft_lab.api import AWAY, BACK, KILLED, OF_JOBS, SILENT, STORAGE
from pyft_lab.mechanisms.checkpoints import digest
from pyft_lab.mechanisms.dcp_async import WHOLE
from pyft_lab.oracles import silent_oracle, storage_oracle

ALL_BACK = "server-killed"  # in pyft's report
Lines = list[dict[str, Any]]
Told = Set[tuple[int, int]]  # losses that the script was told before a silent fault was seen
Committed = dict[int, dict[str, Any]]  # step: the line of the last attempt that did it


@dataclass
class Verdict:
    """What is wrong with a run, per oracle; empty lists are good."""

    samples: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    integrity: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not any(vars(self).values())


def lines_of(folder: Path, rank: int) -> Lines:
    """Return what a rank wrote; a last line that is cut short counts for nothing."""
    path = folder / "ranks" / f"{rank}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def committed(folder: Path, ranks: int) -> list[Committed]:
    """Return per rank the line that counts for each step: those of the last attempt that did it.

    A rank that is there no more has done nothing in the attempts that are.
    """
    lines = [lines_of(folder, rank) for rank in range(ranks)]
    last: dict[int, int] = {}
    for line in itertools.chain(*lines):
        last[line["step"]] = max(last.get(line["step"], 0), line["attempt"])
    return [{at["step"]: at for at in of if at["attempt"] == last[at["step"]]} for of in lines]


def check_samples(run: list[Committed], reference: list[Committed], steps: int) -> list[str]:
    """Compare the samples of each step, over all ranks: none twice, missing or extra."""
    found = []
    for step in range(steps):
        want = Counter(i for r in reference for i in r.get(step, {}).get("ids", []))
        have = Counter(i for r in run for i in r.get(step, {}).get("ids", []))
        if want != have:
            missing, extra = (want - have).total(), (have - want).total()
            found.append(f"step {step}: {missing} samples missing, {extra} extra or twice")
    return found


def check_losses(
    run: list[Committed], reference: list[Committed], steps: int, told: Told = frozenset()
) -> list[str]:
    """Compare losses bit by bit, but for those of `told`: rank and step."""
    found = []
    for rank, (have, want) in enumerate(zip(run, reference, strict=True)):
        for step in range(steps):
            one, other = (c.get(step, {}).get("loss") for c in (have, want))
            nobody = not any(step in of for of in run)
            if (rank, step) in told:
                continue
            if one != other or (nobody and rank == 0):
                found.append(f"rank {rank}, step {step}: loss [{one}], reference [{other}]")
    return found


def check_state(run: Path, reference: Path, ranks: int) -> list[str]:
    """Compare hashes of parameters and optimizer state at the end."""
    found = []
    for rank in range(ranks):
        paths = (run / f"final-{rank}", reference / f"final-{rank}")
        one, other = (path.read_text() if path.exists() else None for path in paths)
        if one != other or one is None:
            found.append(f"rank {rank}: parameters or optimizer state differ at the end")
    return found


def check_integrity(run: Path) -> list[str]:
    """The newest checkpoint at the end is whole: the job has replaced those that were not.

    Files have digests; a folder of shares has a file that is written last.
    """
    newest = sorted((run / "checkpoints").glob("step-*.pt"))[-1:]
    shares = sorted(path for path in (run / "checkpoints").glob("step-*") if path.is_dir())[-1:]
    return [
        f"checkpoint [{path.name}] is not what was written"
        for path in newest
        if digest(path.read_bytes()) != path.stem.rpartition("-")[2]
    ] + [
        f"checkpoint [{path.name}] was not written to its end"
        for path in shares
        if not (path / WHOLE).exists()
    ]


def judge(
    run: Path, reference: Path, ranks: int, steps: int, at_end: int = 0, told: Told = frozenset()
) -> Verdict:
    """Ask all oracles about a run; `at_end`: ranks that end it, if these are less."""
    have, want = committed(run, ranks), committed(reference, ranks)
    return Verdict(
        check_samples(have, want, steps),
        check_losses(have, want, steps, told),
        check_state(run, reference, at_end or ranks),
        check_integrity(run),
    )


def repairs(folder: Path) -> list[dict[str, Any]]:
    """Return the repaired faults of pyft's reports, in the order of time; not those of peers.

    The report of a job that was killed has nothing in it.
    """
    texts = [path.read_text() for path in folder.glob("report-*.json")]
    reports = [json.loads(text) for text in texts if text]
    found = [fault for report in reports for fault in report.get("recovery", {}).get("faults", [])]
    own = [f for f in found if f["outcome"] == "recovered" and f["fault"] != "peer-failed"]
    return sorted(own, key=lambda f: f["began"])


def check_faults(faults: Sequence[Any], attempts: int, repaired: list[dict[str, Any]]) -> list[str]:
    """Each fault has led to a restart, or to a repair of its own rank; others are asked apart."""
    faults = [fault for fault in faults if fault.kind not in (*STORAGE, *OF_JOBS, AWAY, BACK)]
    left, missing = list(repaired), 1 - attempts
    for fault in faults:
        own = next((repair for repair in left if is_of(repair, fault)), None)
        if own is None:
            missing += 1
        else:
            left.remove(own)
    return [f"[{missing}] of [{len(faults)}] faults had no effect"] if missing > 0 else []


def check_fired(folder: Path, faults: Sequence[Any]) -> list[str]:
    """Each fault has happened: restarts that others led to are none of it."""
    return [
        f"fault [{fault.kind}] of step [{fault.step}] has not happened"
        for number, fault in enumerate(faults)
        if fault.kind not in (AWAY, BACK) and not (folder / f"fired-{number}").exists()
    ]


def is_of(repair: dict[str, Any], fault: Any) -> bool:
    """Say whether a repair is that of a fault.

    When a process was killed all go back. pyft reports that as the death of all servers at once, of
    which any one may be named.
    """
    if fault.kind == "rank-kill":
        return bool(repair["fault"] == ALL_BACK)
    return bool(repair["rank"] == fault.rank and repair["fault"] != ALL_BACK)


def check_kills(folder: Path, faults: Sequence[Any]) -> list[str]:
    """Each job that was to be killed has been."""
    return [
        f"fault [{fault.kind}] of step [{fault.step}] killed no job"
        for number, fault in enumerate(faults)
        if fault.kind in OF_JOBS and not (folder / f"job-{number}{KILLED}").exists()
    ]


def steps_of(lines: Lines) -> set[int]:
    return {line["step"] for line in lines}


def step_seconds(lines: Lines) -> float:
    """Return the median time of a step."""
    gaps = [b["t"] - a["t"] for a, b in zip(lines, lines[1:], strict=False)
            if a["attempt"] == b["attempt"]]  # fmt: skip
    return median(gaps) if gaps else 0.0


def lost_seconds(lines: Lines, fired: float) -> float | None:
    """Return the time from the rank's last step before a fault to its first new one, less a step.

    Detection, restart and replay alike. None if the rank came to no new step.
    """
    before = [line for line in lines if line["t"] <= fired]
    best = max((line["step"] for line in before), default=-1)
    after = next((line for line in lines if line["t"] > fired and line["step"] > best), None)
    if after is None:
        return None
    return after["t"] - (before[-1]["t"] if before else fired) - step_seconds(lines)


def steps_again(lines: Lines, fired: float) -> int:
    """Return how many steps a rank did again after a fault, until its first new one."""
    best = max((line["step"] for line in lines if line["t"] <= fired), default=-1)
    after = [line["step"] for line in lines if line["t"] > fired]
    return sum(1 for _ in itertools.takewhile(lambda step: step <= best, after))


def restart_phases(folder: Path, rank: int, attempt: int, fired: float) -> dict[str, float]:
    """Return how long the parts of a restart took, from what its rank has noted."""
    path = folder / "ranks" / f"{rank}-{attempt}.times"
    if not path.exists():
        return {}
    at = {"fired": fired, **json.loads(path.read_text())}
    first = [line["t"] for line in lines_of(folder, rank) if line["attempt"] == attempt][:1]
    names = [("notice and launch", "fired", "began"), ("import", "began", "imported"),
             ("process group", "imported", "grouped"), ("load", "grouped", "restored")]  # fmt: skip
    found = {name: at[end] - at[begin] for name, begin, end in names}
    return found | ({"first step": first[0] - at["restored"]} if first else {})


def costs(folder: Path, faults: Sequence[Any], repaired: list[dict[str, Any]]) -> list[dict]:
    """Return per fault what it cost, by the rank that it has hit."""
    found = []
    for number, fault in enumerate(faults):
        mark = folder / f"fired-{number}"
        if not mark.exists():
            continue
        fired, lines = json.loads(mark.read_text())["t"], lines_of(folder, fault.rank)
        cost: dict[str, Any] = {"kind": fault.kind, "moment": fault.moment, "step": fault.step}
        if fault.kind in STORAGE:
            cost["answer"] = storage_oracle.answer(folder, number, fault, lines)
            struck = storage_oracle.struck(folder, number, lines)
            fired = struck or fired
        lost = lost_seconds(lines, fired)
        if lost is None and fault.kind in STORAGE and struck:  # it was told of after the last step
            lost = lines[-1]["t"] - fired
        if fault.kind == "slow-write":
            lost = storage_oracle.slow_seconds(folder, number, lines, step_seconds(lines))
        if fault.kind in SILENT:
            lost = silent_oracle.lost_seconds(lines, fired, step_seconds(lines))
        if lost is None:  # the job went on without that rank
            lost = lost_seconds(lines_of(folder, 0), fired)
        cost["lost_s"], cost["again"] = lost, steps_again(lines, fired)
        own = [repair for repair in repaired if is_of(repair, fault)]
        if own:
            ms = own[0]["phases_ms"]
            cost["phases_s"] = {name: value / 1e3 for name, value in ms.items()}
        else:
            cost["phases_s"] = restart_phases(folder, fault.rank, number + 1, fired)
        cost["phases_s"]["rest"] = max((lost or 0) - sum(cost["phases_s"].values()), 0)
        found.append(cost)
    return found


def times(folder: Path, ranks: int = 1) -> dict[str, float]:
    """Return the times of a run by the first rank that did most of it."""
    lines = max((lines_of(folder, r) for r in range(ranks)), key=lambda of: len(steps_of(of)))
    return {
        "step_s": step_seconds(lines),
        "replayed": float(len(lines) - len(steps_of(lines))),
        "wall_s": lines[-1]["t"] - lines[0]["t"] if lines else 0.0,
    }
