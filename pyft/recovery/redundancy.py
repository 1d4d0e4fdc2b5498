"""What dual modular redundancy (--dmr) has covered, and what it has not, by reason."""

from __future__ import annotations

from collections.abc import Callable

_NAMES = ("products", "pairs", "mismatches", "flops", "pair_flops", "opaque", "forgotten")
# By their names in the report: those in the control page.
COUNTERS = {name: f"dmr_{name}" for name in (*_NAMES, "digest_ns")} | {"in_graphs": "dmr_captured"}


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
