"""`pyft replace`, `drain`, `spare`, `inject`: orders to a job that runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyft.agent import orders
from pyft.cli.status import live_jobs
from pyft.errors import TraceError
from pyft.recovery.inject import KINDS
from pyft.recovery.inject import parse as parse_fault

Job = Annotated[
    str | None,
    typer.Option("--job", help="Its name, folder, or the agent's pid; not needed if one runs."),
]
Rank = Annotated[int, typer.Option(min=0, help="Rank of the program.")]
Gpu = Annotated[int, typer.Option(min=0, help="Number of the GPU.")]


def replace(
    rank: Rank,
    gpu: Annotated[int, typer.Option(min=-1, help="On this GPU; -1: where it is.")] = -1,
    job: Job = None,
) -> None:
    """Put a rank on a new server, while the program waits."""
    orders.give(_only(job), "replace", rank=rank, gpu=gpu)
    print(f"rank {rank} is being moved")


def drain(gpu: Gpu, job: Job = None) -> None:
    """Move everything off a GPU and use it no more."""
    orders.give(_only(job), "drain", gpu=gpu)
    print(f"GPU {gpu} is being drained")


def spare(gpu: Gpu, job: Job = None) -> None:
    """Give a job another GPU, or one back that was drained or lost and is well again."""
    orders.give(_only(job), "spare", gpu=gpu)
    print(f"GPU {gpu} is a spare")


def inject(
    rank: Rank,
    fault: Annotated[
        str,
        typer.Option(metavar="KIND[,step=S][,call=C]", help=f"One of {', '.join(KINDS)}."),
    ],
    job: Job = None,
) -> None:
    """Let a fault happen, for tests: now, or after step S, before its C-th call."""
    parse_fault(fault, rank)
    orders.give(_only(job), "inject", rank=rank, fault=fault)
    print(f"fault {fault} at rank {rank}")


def _only(target: str | None) -> dict[str, Any]:
    found = [meta for _, meta in live_jobs(target) if not meta.get("direct")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(meta["job"] for meta in found)
    what = f"jobs [{names}] run: say which by --job" if found else "no job is running"
    raise TraceError(what)
