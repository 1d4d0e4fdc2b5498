"""`pyft replace`, `drain`, `spare`, `inject`: orders to a job that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from pyft.agent.operators import orders
from pyft.api import jobs
from pyft.cli import hosts
from pyft.errors import UsageError
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
    orders.give(jobs.only(job)[1], "replace", rank=rank, gpu=gpu)
    print(f"rank {rank} is being moved")


def drain(
    gpu: Annotated[int | None, typer.Option(min=0, help="Number of the GPU.")] = None,
    job: Job = None,
    host: Annotated[
        str, typer.Option(help="Name of a host, in a job of several; with --head.")
    ] = "",
    head: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where `pyft head` is.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave the host as it is.")] = False,
    wait: Annotated[bool, typer.Option(help="Until the host is drained, or cannot be.")] = True,
) -> None:
    """Move everything off a GPU, or off a host to a spare one, and use it no more."""
    if (gpu is None) == (not host) or bool(host) != bool(head) or (host and job):
        raise UsageError("say either --gpu, or --host and --head")
    if gpu is None:
        _drain_host(head, host, cancel, wait)
        return
    if cancel:
        raise UsageError("--cancel is for hosts: give a GPU back by `pyft spare --gpu`")
    orders.give(jobs.only(job)[1], "drain", gpu=gpu)
    print(f"GPU {gpu} is being drained")


def _drain_host(head: str, host: str, cancel: bool, wait: bool) -> None:
    said = hosts.ask(head, "cancel" if cancel else "drain", host=host)
    if cancel:
        print(f"host {host} is not drained")
        return
    place = (said["drain"] or {}).get("place")
    print(f"host {host}: place {place} goes to a spare host at the next line", flush=True)
    if not wait:
        return
    done, how = hosts.wait_for_drain(head, host)
    if not done:
        raise UsageError(f"host [{host}] is not drained: {how}")
    print(f"host {host} is drained: {how}")


def spare(gpu: Gpu, job: Job = None) -> None:
    """Give a job another GPU, or one back that was drained or lost and is well again."""
    orders.give(jobs.only(job)[1], "spare", gpu=gpu)
    print(f"GPU {gpu} is a spare")


def inject(
    rank: Rank,
    fault: Annotated[
        str,
        typer.Option(metavar="KIND[,step=S][,call=C][,seed=N]", help=f"One of {', '.join(KINDS)}."),
    ],
    job: Job = None,
) -> None:
    """Let a fault happen, for tests: now, or after step S, before its C-th call."""
    parse_fault(fault, rank)
    orders.give(jobs.only(job)[1], "inject", rank=rank, fault=fault)
    print(f"fault {fault} at rank {rank}")
