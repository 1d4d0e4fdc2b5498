"""What dual modular redundancy (--dmr) has covered, and what it has not, by reason."""

from __future__ import annotations

from collections.abc import Callable

_NAMES = ("products", "pairs", "mismatches", "flops", "pair_flops", "opaque", "forgotten")
# By their names in the report: those in the control page.
COUNTERS = {name: f"dmr_{name}" for name in (*_NAMES, "digest_ns")} | {"in_graphs": "dmr_captured"}
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
    return found | {"single": max(0, found["products"] - 2 * found["pairs"])}


def sentence(found: dict[str, int]) -> str:
    """Say it in a line for `pyft status`."""
    share = 100 * found["pair_flops"] / max(found["flops"], 1)
    unseen = {"opaque": "opaque", "in_graphs": "in graphs", "forgotten": "forgotten"}
    others = "".join(f", {found[name]} {text}" for name, text in unseen.items() if found[name])
    return (
        f"{2 * found['pairs']} of {found['products']} products in pairs ({share:.0f} % of their "
        f"operations), {found['mismatches']} mismatches; not covered: {found['single']} "
        f"executed once{others}, and all that are no products"
    )


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
