"""`pyft trace`: print the command ring of a finished, killed or running job."""

from __future__ import annotations

from typing import Annotated

import typer

from pyft.cli import following
from pyft.cli.following import Chosen, start_ns
from pyft.errors import UsageError
from pyft.trace import targets
from pyft.trace.reader import TraceReader, format_entry, format_stats


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
    if follow and (stats or objects):
        raise UsageError("--follow prints the ring: leave --stats and --objects")
    chosen: Chosen = {"call": call, "thread": thread, "handle": handle}
    if follow:
        following.follow(target, chosen, tail, deterministic)
        return
    rings = targets.find(target)
    for ring in rings:
        if len(rings) > 1:
            print(f"# {ring.title.partition('-')[0] if deterministic else ring.title}")
        with TraceReader(ring.path, deterministic=deterministic) as reader:
            if stats:
                found = reader.stats(**chosen, tail=tail, objects=objects)
                print("\n".join(format_stats(found)))
                continue
            begun = start_ns(reader)
            for entry in reader.entries(**chosen, tail=tail, objects=objects):
                print(format_entry(entry, deterministic=deterministic, start_ns=begun))
