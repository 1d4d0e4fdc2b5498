"""`pyft replace`, `drain`, `move`, `spare`, `inject`: orders to a job that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from pyft.agent.operators import orders
from pyft.api import jobs
from pyft.cli import hosts
from pyft.errors import UsageError
from pyft.recovery.inject import KINDS, parse_order

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
    to: Annotated[
        str, typer.Option(help="The spare host that takes its place (default: any that can).")
    ] = "",
    head: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where `pyft head` is.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave the host as it is.")] = False,
    wait: Annotated[bool, typer.Option(help="Until the host is drained, or cannot be.")] = True,
) -> None:
    """Move everything off a GPU, or off a host to a spare one, and use it no more."""
    if (gpu is None) == (not host) or bool(host) != bool(head) or (host and job):
        raise UsageError("say either --gpu, or --host and --head")
    if cancel and to:
        raise UsageError("--to says where a place goes: leave it away with --cancel")
    if gpu is None:
        _drain_host(head, host, to, cancel, wait)
        return
    if cancel:
        raise UsageError("--cancel is for hosts: give a GPU back by `pyft spare --gpu`")
    if to:
        raise UsageError("--to is for hosts: a GPU's work goes to the job's spare GPUs")
    orders.give(jobs.only(job)[1], "drain", gpu=gpu)
    print(f"GPU {gpu} is being drained")


def _drain_host(head: str, host: str, to: str, cancel: bool, wait: bool) -> None:
    named = {"to": to} if to else {}
    said = hosts.ask(head, "cancel" if cancel else "drain", host=host, **named)
    if cancel:
        print(f"host {host} is not drained")
        return
    drain = said["drain"]
    where = f"host {drain['to']}" if drain["to"] else "a spare host"
    print(f"host {host}: place {drain['place']} goes to {where} at the next line", flush=True)
    if not wait:
        return
    done, how = hosts.wait_for_drain(head, host)
    if not done:
        raise UsageError(f"host [{host}] is not drained: {how}")
    print(f"host {host} is drained: {how}")


def move(
    rank: Rank,
    head: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where `pyft head` is.")],
    to: Annotated[str, typer.Option(help="Name of the spare host that takes its place.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave the rank where it is.")] = False,
    wait: Annotated[bool, typer.Option(help="Until the rank is moved, or cannot be.")] = True,
) -> None:
    """Move a rank, and all ranks of its place, to a spare host, in a job on several hosts."""
    if cancel == bool(to):
        raise UsageError("say either --to or --cancel")
    if cancel:
        hosts.ask(head, "cancel", rank=rank)
        print(f"rank {rank} is not moved")
        return
    said = hosts.ask(head, "move", rank=rank, to=to)
    drain = said["drain"]
    place = next(one for one in said["places"] if one["place"] == drain["place"])
    where = f"rank {rank}: place {drain['place']} goes from host {drain['host']} to host {to}"
    print(f"{where} at the next line{_with_it(rank, place['ranks'])}", flush=True)
    if not wait:
        return
    done, how = hosts.wait_for_drain(head, drain["host"])
    if not done:
        raise UsageError(f"rank [{rank}] is not moved: {how}")
    print(f"rank {rank} is moved: {how}")


def _with_it(rank: int, ranks: list[int]) -> str:
    """Return which other ranks go along."""
    others = [one for one in ranks if one != rank]
    if not others:
        return ""
    return f"; rank {others} goes with it" if len(others) == 1 else f"; ranks {others} go with it"


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
    parse_order(fault, rank)
    orders.give(jobs.only(job)[1], "inject", rank=rank, fault=fault)
    print(f"fault {fault} at rank {rank}")
