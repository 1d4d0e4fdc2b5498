"""What happened to a job: one entry per fault, sums, and both as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

DELIVERED = "error delivered"  # an outcome: the program got its own error
MOVED = "moved"  # an outcome: the place goes on at another host, where it is not known
PHASES = ("detect", "fence", "wait", "spawn", "restore", "communicator", "replay", "join")


@dataclass
class Incident:
    """A fault of one rank and what was done about it. Times are seconds since the job's start."""

    rank: int
    device: int
    fault: str  # class
    evidence: str
    began: float  # last moment at which all was well for certain
    noticed: float
    seq: int = 0
    cut: int = 0
    action: str = ""
    gpu_from: int = -1
    gpu_to: int = -1
    epoch_from: int = 0
    epoch_to: int = 0
    mode: str = "normal"
    outcome: str = "under way"  # recovered, given up, failed again, moved, job ended
    ended: float = 0.0
    total_ms: float = 0.0  # what the user has waited: from `began` to `ended`
    phases_ms: dict[str, float] = field(default_factory=dict)
    waits_since: float = 0.0  # for a GPU; 0: it does not
    restored_bytes: int = 0
    restored_blocks: int = 0
    peer_bytes: int = 0  # of restored_bytes: copied from other ranks' GPUs
    replayed_entries: int = 0
    ready_modules: int = 0  # loaded by the new server while it stood by
    compared: int = 0
    differed: int = 0
    differed_seq: int = 0
    corrected: int = 0  # of those, told wrong: two replays agree on it, or a mismatch explains it
    corrected_text: str = ""  # the first of them
    verdict: str = ""  # exact, equivalent, corrected, unknown, diverged
    own_error: bool = False  # of the program: it came at the same place each time
    # Of a mismatch: which execution was wrong, says a third: first, second, both, unknown.
    culprit: str = ""

    def finish(self, outcome: str, now: float) -> None:
        """Close the entry."""
        self.outcome, self.ended = outcome, now
        self.total_ms = round((now - self.began) * 1e3, 3)


# What the server's phases (by their number, page.Phase) are called here.
_OF_SERVER = {1: "spawn", 2: "restore", 3: "restore", 4: "communicator", 5: "replay", 0: "join"}


def phases_of(
    began: float,
    noticed: float,
    fenced: float,
    live: float,
    phase_ns: tuple[int, ...],
    waited: float = 0.0,
) -> dict[str, float]:
    """Return the length of each phase in ms. Times are in seconds, as those of the server in ns.

    The server's phases come in any order; one that it has left out takes no time.
    `waited`: for a GPU, before the server was started.
    """
    started = min(fenced + waited, live)
    entered = [(phase_ns[n] / 1e9, name) for n, name in _OF_SERVER.items() if phase_ns[n]]
    marks = [(began, "detect"), (noticed, "fence"), (fenced, "wait"), (started, "spawn")]
    marks += [(min(max(at, started), live), name) for at, name in sorted(entered)]
    lengths = dict.fromkeys(PHASES, 0.0)
    for (start, name), (end, _) in zip(marks, [*marks[1:], (live, "")], strict=True):
        lengths[name] += (end - start) * 1e3
    return {name: round(ms, 3) for name, ms in lengths.items()}


def mark_own_error(faults: list[Incident]) -> None:
    """Mark the last fault of a rank, and what was tried before it was known for the program's own.

    `faults` are those of the rank, oldest first. The same error came again from the same snapshot.
    """
    last = faults[-1]
    for fault in reversed(faults):
        if fault.outcome != "failed again" and (fault.fault, fault.cut) != (last.fault, last.cut):
            break
        fault.own_error = True


def span(seconds: float) -> str:
    """Return a length of time in words."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def verdict(differed: int, corrected: int = 0, shared: int = 0) -> str:
    """Return in one word how a replay compared with what had been handed out.

    `shared`: the rank shares memory with other processes. What they write has not been compared.
    """
    if shared:
        return "unknown"
    if corrected:
        return "corrected"
    return "equivalent" if differed else "exact"


def in_words(incident: Incident) -> str:
    """Return the verdict, and what it rests on when something differed."""
    if incident.verdict == "unknown":
        return (
            "unknown: it shares memory with other processes, and what they write is in no log; "
            f"[{incident.differed}] of [{incident.compared}] values differ"
        )
    if not incident.differed:
        return incident.verdict
    if incident.corrected:
        others = incident.differed - incident.corrected
        more = f"; [{others}] other values differ" if others else ""
        values = "value" if incident.corrected == 1 else "values"
        return (
            f"{incident.verdict}: the program was told [{incident.corrected}] wrong {values} "
            f"before the fault, by silent corruption or from memory that it had not written, and "
            f"goes on with what is right: "
            f"{incident.corrected_text}{more}"
        )
    return (
        f"{incident.verdict}: valid, not bit-identical, [{incident.differed}] of "
        f"[{incident.compared}] values differ, the first at entry [{incident.differed_seq}]"
    )


def lost_seconds(incidents: list[Incident], now: float, since: float = 0.0) -> float:
    """Return the time during which at least one rank was not working, from a time on."""
    spans = sorted((i.began, i.ended or now) for i in incidents)
    lost, end = 0.0, since
    for start, stop in spans:
        lost += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return lost


def shares(lost: float, seconds: float) -> dict[str, float]:
    """Return that time, the job's, and the share of it in which all ranks worked."""
    goodput = round(1 - lost / seconds, 6) if seconds > 0 else 1.0
    return {"lost_seconds": round(lost, 6), "goodput": goodput, "seconds": round(seconds, 6)}


def later(found: Mapping[str, Any], since: float) -> dict[str, Any]:
    """Return what was found `since` seconds ago as it is now, if nothing has happened since then."""
    stands_still = any(not fault["ended"] for fault in found["faults"])
    lost = found["lost_seconds"] + (since if stands_still else 0.0)
    return {**found, **shares(lost, found["seconds"] + since)}


def key_of(fault: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a fault of a report is known by: entries before it may go."""
    return tuple(fault.get(name) for name in ("noticed", "rank", "device", "epoch_from"))


def outcomes(incidents: list[Incident]) -> tuple[int, int, int]:
    """Return how many were recovered, were errors that the program got, and were given up."""
    return (
        sum(i.outcome == "recovered" and not i.own_error for i in incidents),
        sum(i.outcome == DELIVERED for i in incidents),
        sum(i.outcome.startswith("given up") for i in incidents),
    )


def worst(verdicts: Collection[str]) -> str:
    """Return the worst verdict, empty without any."""
    order = ("diverged", "unknown", "corrected", "equivalent", "exact")
    return next((v for v in order if v in verdicts), "")


def came_again(incidents: list[Incident]) -> int:
    """Return how many were recovered, and turned out later to be the program's own error."""
    return sum(i.outcome == "recovered" and i.own_error for i in incidents)


@dataclass
class Sums:
    """What is counted of faults."""

    recovered: int = 0
    own_errors: int = 0
    came_again: int = 0
    given_up: int = 0
    lost_seconds: float = 0.0
    until: float = 0.0  # all time before is counted
    verdict: str = ""

    def take(self, incidents: list[Incident], now: float) -> None:
        """Count more of them, which were noticed after all that are counted."""
        recovered, own_errors, given_up = outcomes(incidents)
        self.recovered += recovered
        self.own_errors += own_errors
        self.came_again += came_again(incidents)
        self.given_up += given_up
        self.lost_seconds += lost_seconds(incidents, now, self.until)
        self.until = max([self.until, *(i.ended or now for i in incidents)])
        self.verdict = worst({self.verdict, *(i.verdict for i in incidents)})


def summary(
    incidents: list[Incident], seconds: float, restarts: int = 0, before: Sums | None = None
) -> dict[str, Any]:
    """Return the part of report.json about recovery; `before`: of faults that are not kept."""
    sums = replace(before) if before else Sums()
    sums.take(incidents, seconds)
    return {
        "faults": [asdict(i) for i in incidents],
        "recovered": sums.recovered,
        "own_errors": sums.own_errors,
        "came_again": sums.came_again,
        "given_up": sums.given_up,
        **shares(sums.lost_seconds, seconds),
        "verdict": sums.verdict,
        "agent_restarts": restarts,
    }


def table(found: dict[str, Any]) -> list[str]:
    """Return the lines shown at the end of a job that had faults."""
    head = ("at s", "rank", "fault", "gpu", "incarnation", "total", "MB", "entries", "outcome")
    lines = _aligned([head, *(_row(fault) for fault in found["faults"])])
    if earlier := number_of_earlier(found):
        lines.insert(1, f"[{earlier}] faults before these are only counted")
    if any(fault["phases_ms"] for fault in found["faults"]):
        phases = [_phases_row(fault) for fault in found["faults"]]
        lines += ["their phases in ms:", *_aligned([("at s", "rank", *PHASES), *phases])]
    goodput = f"goodput {found['goodput']:.4f}, {found['lost_seconds']:.3f} s lost"
    restarts = found["agent_restarts"]
    agent = f", agent restarted [{restarts}] times" if restarts else ""
    return [*lines, f"{counts(found)}, {goodput}{agent}"]


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, whose cells stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]


def number_of_earlier(found: Mapping[str, Any]) -> int:
    """Return how many faults a job had before those of which there are entries."""
    return sum(row["count"] for row in found.get("earlier") or [])


def number_of_faults(found: Mapping[str, Any]) -> int:
    """Return how many faults a job had; errors of the program itself are none."""
    own = sum(row["own_errors"] for row in found.get("earlier") or [])
    listed = sum(not fault.get("own_error") for fault in found.get("faults") or [])
    return number_of_earlier(found) - own + listed


def counts(found: dict[str, Any]) -> str:
    """Return how many faults were recovered, and how many errors were the program's."""
    faults, own = number_of_faults(found), found.get("own_errors", 0)
    said = [f"{found['recovered']} of {faults} recovered"] if faults or not own else []
    return ", ".join([*said, *([f"errors of the program itself: {own}"] if own else [])])


def at_end(found: dict[str, Any]) -> list[str]:
    """Return what is said when a job ends."""
    said: list[str] = []
    if found["faults"]:
        said.append("\n".join(["faults of this job:", *table(found)]))
    elif found["agent_restarts"]:
        said.append(table(found)[-1])
    return [*said, *not_injected(found)]


def not_injected(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each fault that was asked for and did not happen."""
    return [f"the fault [{m['fault']}] did not happen: {m['why']}" for m in found["not_injected"]]


def _row(fault: dict[str, Any]) -> tuple[str, ...]:
    moved = "" if fault["gpu_to"] in (-1, fault["gpu_from"]) else f">{fault['gpu_to']}"
    epochs = f"{fault['epoch_from']}>{fault['epoch_to']}" if fault["epoch_to"] else ""
    outcome = fault["outcome"].partition(":")[0]
    if fault.get("own_error") and outcome == "recovered":
        outcome = "came again"
    return (
        f"{fault['noticed']:.2f}",
        str(fault["rank"]),
        fault["fault"],
        f"{fault['gpu_from']}{moved}",
        epochs,
        span(fault["total_ms"] / 1e3) if fault["ended"] else "-",
        f"{fault['restored_bytes'] / 1e6:.1f}",
        str(fault["replayed_entries"]),
        f"{outcome}, {fault['verdict']}" if fault["verdict"] else outcome,
    )


def _phases_row(fault: dict[str, Any]) -> tuple[str, ...]:
    phases = [fault["phases_ms"].get(name) for name in PHASES]
    cells = ("-" if ms is None else f"{ms:.1f}" for ms in phases)
    return (f"{fault['noticed']:.2f}", str(fault["rank"]), *cells)
