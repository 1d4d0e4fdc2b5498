"""`pyft trace`: print the command ring of a finished, killed or running job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from pyft.errors import UsageError
from pyft.trace import targets
from pyft.trace.reader import TraceReader, format_entry, format_stats

FOLLOW_S = 0.2


def trace(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB|FILE|PID]", help="A job, a saved .ring file, or a process of a live job."
        ),
    ] = None,
    call: Annotated[str | None, typer.Option(help="Only calls whose name contains this.")] = None,
    thread: Annotated[int | None, typer.Option(help="Only this thread of the client.")] = None,
    handle: Annotated[
        str | None, typer.Option(help="Only entries that name this, as in stream#3.1.")
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last N entries.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Count calls, bytes and waits.")] = False,
    objects: Annotated[
        bool, typer.Option("--objects", help="The log of living objects, not the ring.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing a live job until it ends.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="No addresses and times: equal runs diff clean.")
    ] = False,
) -> None:
    """Print every entry from the oldest still whole to the last complete one.

    Default: the rings of the latest job.
    """
    rings = targets.find(target)
    if follow:
        if stats or objects:
            raise UsageError("--follow prints the ring: leave --stats and --objects")
        _follow(rings, call=call, thread=thread, handle=handle, deterministic=deterministic)
        return
    for ring in rings:
        if len(rings) > 1:
            print(f"# {ring.title.partition('-')[0] if deterministic else ring.title}")
        with TraceReader(ring.path, deterministic=deterministic) as reader:
            if stats:
                print("\n".join(format_stats(reader.stats())))
                continue
            first = next(reader.entries(), None)  # times count from here, whatever is printed
            start_ns = first.time_ns if first else 0
            for entry in reader.entries(
                call=call, thread=thread, handle=handle, tail=tail, objects=objects
            ):
                print(format_entry(entry, deterministic=deterministic, start_ns=start_ns))


def _follow(
    rings: Sequence[targets.Ring],
    *,
    call: str | None,
    thread: int | None,
    handle: str | None,
    deterministic: bool,
) -> None:
    """Print what is there, then what is added, every FOLLOW_S seconds."""
    with contextlib.ExitStack() as stack:
        readers = [
            (ring, stack.enter_context(TraceReader(ring.path, deterministic=deterministic)))
            for ring in rings
        ]
        seen = dict.fromkeys((ring.title for ring in rings), 0)
        starts: dict[str, int] = {}
        while True:
            alive = any(ring.live and ring.path.exists() for ring in rings)
            for ring, reader in readers:
                label = f"{ring.title} " if len(rings) > 1 else ""
                for entry in reader.entries(call=call, thread=thread, handle=handle):
                    start_ns = starts.setdefault(ring.title, entry.time_ns)
                    if entry.seq > seen[ring.title]:
                        text = format_entry(entry, deterministic=deterministic, start_ns=start_ns)
                        print(f"{label}{text}", flush=True)
                        seen[ring.title] = entry.seq
            if not alive:
                return
            time.sleep(FOLLOW_S)
