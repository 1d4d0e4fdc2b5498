"""`pyft trace`: print the command ring of a finished, killed or running job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, TypedDict

import typer

from pyft.errors import UsageError
from pyft.trace import targets
from pyft.trace.reader import TraceReader, format_entry, format_stats

FOLLOW_S = 0.2


class Chosen(TypedDict):
    """Which entries are printed or counted."""

    call: str | None
    thread: int | None
    handle: str | None


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
    rings = targets.find(target)
    chosen: Chosen = {"call": call, "thread": thread, "handle": handle}
    if follow:
        _follow(rings, chosen, tail, deterministic)
        return
    for ring in rings:
        if len(rings) > 1:
            print(f"# {ring.title.partition('-')[0] if deterministic else ring.title}")
        with TraceReader(ring.path, deterministic=deterministic) as reader:
            if stats:
                found = reader.stats(**chosen, tail=tail, objects=objects)
                print("\n".join(format_stats(found)))
                continue
            start_ns = _start_ns(reader)
            for entry in reader.entries(**chosen, tail=tail, objects=objects):
                print(format_entry(entry, deterministic=deterministic, start_ns=start_ns))


def _start_ns(reader: TraceReader) -> int:
    """Return from when times count, whatever is printed: when the first entry was written."""
    first = next(reader.entries(), None)
    return first.time_ns if first else 0


def _follow(
    rings: Sequence[targets.Ring], chosen: Chosen, tail: int | None, deterministic: bool
) -> None:
    """Print what is there, or the last of it, then what is added, every FOLLOW_S seconds."""
    with contextlib.ExitStack() as stack:
        readers = [
            (ring, stack.enter_context(TraceReader(ring.path, deterministic=deterministic)))
            for ring in rings
        ]
        seen: dict[str, int] = {}
        starts: dict[str, int] = {}
        while True:
            alive = any(ring.live and ring.path.exists() for ring in rings)
            for ring, reader in readers:
                label = f"{ring.title} " if len(rings) > 1 else ""
                starts[ring.title] = start_ns = starts.get(ring.title) or _start_ns(reader)
                last = tail if ring.title not in seen else None
                seen.setdefault(ring.title, 0 if tail is None else _newest(reader))
                for entry in reader.entries(**chosen, tail=last):
                    if last is not None or entry.seq > seen[ring.title]:
                        text = format_entry(entry, deterministic=deterministic, start_ns=start_ns)
                        print(f"{label}{text}", flush=True)
                        seen[ring.title] = max(entry.seq, seen[ring.title])
            if not alive:
                return
            time.sleep(FOLLOW_S)


def _newest(reader: TraceReader) -> int:
    """Return the number of the last entry, 0 before there is one."""
    return next((entry.seq for entry in reader.entries(tail=1)), 0)
