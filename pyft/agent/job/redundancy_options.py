"""Which options of dual modular redundancy (--dmr) go together, and with the rest of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft import config
from pyft.errors import UsageError

if TYPE_CHECKING:
    from pyft.agent.job.options import JobOptions

BUDGET, MEMORY = 0.03, 0.05  # unless something else is asked for
TWICE = ("idle", "full")  # the server executes again what the program executes once
MOST_MEMORY = 0.5


def check_given(options: JobOptions) -> None:
    """Raise UsageError for an option that another one must go with, or that cannot be kept."""
    if options.dmr == "off" and options.dmr_where:
        raise UsageError(
            "--dmr-where says where --dmr executes again: add --dmr audit, idle or full"
        )
    if options.dmr_budget != BUDGET:
        if options.dmr != "idle":
            raise UsageError("--dmr-budget is the time that --dmr idle may take: add --dmr idle")
        if not 0 < options.dmr_budget <= 1:
            raise UsageError(
                f"--dmr-budget [{options.dmr_budget:g}] is no share of the time: "
                "it is above 0, and at most 1"
            )
    if options.dmr_memory != MEMORY:
        if options.dmr not in TWICE:
            raise UsageError(
                "--dmr-memory is what second executions may take: add --dmr idle or full"
            )
        if not 0 < options.dmr_memory <= MOST_MEMORY:
            raise UsageError(
                f"--dmr-memory [{options.dmr_memory:g}] leaves the program too little, or takes "
                f"nothing: it is above 0, and at most {MOST_MEMORY}"
            )


def check(options: JobOptions) -> None:
    """Raise UsageError where --dmr cannot work. Precondition: it is not off."""
    if options.direct:
        raise UsageError(f"--dmr {options.dmr} needs servers: leave --direct away")
    if options.protect != "snapshot":
        raise UsageError(f"--dmr {options.dmr} needs --protect snapshot, to undo what it finds")
    if options.real_gpus:
        raise UsageError(
            f"--dmr {options.dmr} needs soft GPUs in this version: use --gpus soft:N, or --dmr off"
        )
    if options.dmr == "audit":
        return _check_audit(options)
    if options.dmr_where == "other":
        raise UsageError(
            f"--dmr {options.dmr} compares what one GPU does: --dmr audit uses another one"
        )
    if options.dmr == "checkpoint" and options.dmr_where == "permuted":
        raise UsageError(
            "--dmr checkpoint executes nothing itself: --dmr-where permuted needs --dmr idle or full"
        )
    return None


def _check_audit(options: JobOptions) -> None:
    if config.get_str("PYFT_REPLAY") == "one":
        raise UsageError(
            "--dmr audit needs ranks that go back together: leave PYFT_REPLAY=one away"
        )
    if options.head or options.movable:
        raise UsageError("--dmr audit does not work with --movable, --flush or --head yet")
    if options.dmr_where == "permuted":
        raise UsageError("--dmr audit replays everything: use --dmr-where other, or same")
    if options.dmr_where != "same" and not options.spares:
        raise UsageError("--dmr audit replays on another GPU: add --spares 1, or --dmr-where same")


def environment(options: JobOptions) -> dict[str, str]:
    """Return what a server is told."""
    told = {"PYFT_DMR": options.dmr}
    if options.dmr not in TWICE:
        return told
    return told | {
        "PYFT_DMR_WHERE": options.dmr_where or "permuted",
        "PYFT_DMR_BUDGET": str(options.dmr_budget),
        "PYFT_DMR_MEMORY": str(options.dmr_memory),
    }
