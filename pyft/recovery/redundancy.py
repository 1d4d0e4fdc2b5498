"""What dual modular redundancy (--dmr) has covered, and what it has not, by reason."""

from __future__ import annotations

from collections.abc import Callable

_NAMES = ("products", "pairs", "mismatches", "flops", "pair_flops", "opaque", "forgotten")
# Of second executions that the server makes.
_AGAIN = ("again", "covered", "covered_flops", "expired", "no_room", "later", "refused", "kernels")
_TIMES = ("digest_ns", "again_ns", "window_again_ns", "window_ns")
# By their names in the report: those in the control page.
COUNTERS = {name: f"dmr_{name}" for name in (*_NAMES, *_AGAIN, *_TIMES, "period")}
COUNTERS["in_graphs"] = "dmr_captured"
# Why launches of kernels were executed once, where a mode executes them again.
KERNELS = {
    "order": "whose order is drawn",
    "host": "with memory of others",
    "calls": "that call the system",
    "clock": "that read clocks",
    "waits": "that may wait for others",
    "room": "that write too much",
    "later": "that cannot wait",
    "graphs": "in graphs",
}
COUNTERS |= {f"kernels_{name}": f"dmr_kernels_{name}" for name in ("again", *KERNELS)}
# Why products were executed once; the rest of them were in a pair one interval before.
ONCE = {
    "expired": "with other inputs by then",
    "no_room": "without memory",
    "later": "whose turn comes later",
    "refused": "refused by the library",
}
_AUDITED = {"intervals": "audits", "entries": "audit_entries", "bytes": "audit_bytes"}
_FOUND = {"ranks": "audit_ranks", "auditors": "audit_auditors", "undecided": "audit_undecided"}
# Why entries were not audited.
REASONS = {
    "unaudited_first": "before the first snapshot",
    "unaudited_log": "the log was full",
    "unaudited_spare": "no GPU for it",
    "unaudited_failed": "audits that failed",
    "unaudited_undecided": "replays that do not agree",
    "unaudited_collectives": "results of collectives not kept",
}
AUDIT_COUNTERS = _AUDITED | {"fresh": "audit_fresh"} | _FOUND | {name: name for name in REASONS}


def figures(counter: Callable[[str], int]) -> dict[str, int]:
    """Return the counters of a rank's servers; empty where nothing was looked at.

    `single`: products that were not executed a second time.
    """
    found = {name: counter(field) for name, field in COUNTERS.items()}
    if not any(found.values()):
        return {}
    return found | {"single": max(0, found["products"] - found["covered"])}


def sentence(found: dict[str, int]) -> str:
    """Say it in a line for `pyft status`."""
    share = 100 * found["covered_flops"] / max(found["flops"], 1)
    twice = f"{2 * found['pairs']} in pairs"
    twice += f", {found['again']} by the server" if found["again"] else ""
    once = [f"{found[name]} {text}" for name, text in ONCE.items() if found[name]]
    why = f" ({', '.join(once)})" if once else ""
    unseen = {"opaque": "opaque", "in_graphs": "in graphs", "forgotten": "forgotten"}
    others = "".join(f", {found[name]} {text}" for name, text in unseen.items() if found[name])
    period = f"; all once in {found['period']} steps" if found["period"] else ""
    return (
        f"{found['covered']} of {found['products']} products executed twice ({twice}; {share:.0f} % "
        f"of their operations){period}, {found['mismatches']} mismatches; not covered: "
        f"{found['single']} executed once{why}{others}, and {_kernels(found)}"
    )


def _kernels(found: dict[str, int]) -> str:
    """Say which launches of kernels were not executed twice."""
    if not found["kernels_again"]:
        return f"{found['kernels']} launches of kernels"
    why = [f"{found[f'kernels_{name}']} {text}" for name, text in KERNELS.items()]
    reasons = ", ".join(text for text in why if not text.startswith("0 "))
    of = f"{found['kernels']} of {found['kernels'] + found['kernels_again']} launches of kernels"
    return f"{of} ({reasons})" if reasons else of


def audit_figures(counter: Callable[[str], int], written: int) -> dict[str, int]:
    """Return what audits have covered of `written` entries; empty where nothing was to be audited.

    `unaudited_end`: entries behind the last snapshot that was decided about.
    """
    found = {name: counter(field) for name, field in AUDIT_COUNTERS.items()}
    if not any(found.values()):
        return {}
    decided = found["entries"] + sum(found[name] for name in REASONS)
    return found | {"unaudited_end": max(0, written - decided)}


def audit_sentence(found: dict[str, int]) -> str:
    """Say it in a line for `pyft status`."""
    reasons = REASONS | {"unaudited_end": "since the last snapshot"}
    of = found["entries"] + sum(found[name] for name in reasons)
    others = [f"{found[name]} entries ({why})" for name, why in reasons.items() if found[name]]
    others += [f"{found['fresh']} fresh blocks"] if found["fresh"] else []
    left = f"; not covered: {', '.join(others)}" if others else ""
    return (
        f"{found['entries']} of {of} entries audited ({100 * found['entries'] / max(of, 1):.0f} %) "
        f"in {found['intervals']} intervals; wrong: this rank {found['ranks']} times, its auditor "
        f"{found['auditors']} times{left}"
    )
