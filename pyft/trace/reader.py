"""Read the entries of a ring: of a job that ended, was killed, or still runs.

with TraceReader(path) as trace:
    for entry in trace.entries(call="cudaMalloc", tail=20):
        print(format_entry(entry))
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pyft._native import NativeTrace, TraceInfo
from pyft.wire.layout import EntryFlags as EntryFlags
from pyft.wire.layout import Mark


@dataclass(frozen=True)
class Entry:
    """One entry of the ring; `text` is "name(argument=value, ...)"."""

    seq: int
    time_ns: int
    thread: int
    flags: EntryFlags
    size_bytes: int
    payload_bytes: int
    payload_overwritten: bool
    text: str
    position: int = 0  # in the ring, bytes; counts on over the ring's end

    @property
    def call(self) -> str:
        """Name of the API call or mark."""
        return self.text.partition("(")[0]


@dataclass
class CallStats:
    """How often one call occurs and what it puts into ring and arena."""

    count: int = 0
    ring_bytes: int = 0
    payload_bytes: int = 0
    waits: int = 0  # entries the client waited for


@dataclass
class TraceStats:
    """Counters over the entries still in the ring, and over the whole job (`info`)."""

    info: TraceInfo
    calls: dict[str, CallStats] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0

    @property
    def total(self) -> CallStats:
        """Sum over all calls."""
        sums = CallStats()
        for stats in self.calls.values():
            sums.count += stats.count
            sums.ring_bytes += stats.ring_bytes
            sums.payload_bytes += stats.payload_bytes
            sums.waits += stats.waits
        return sums


class TraceReader:
    """An open log: a saved file or the descriptor of a live log object (it stays the caller's)."""

    def __init__(self, source: Path | str | int, *, deterministic: bool = False) -> None:
        """Open `source`; with `deterministic` texts leave out what differs between equal runs."""
        self._trace = NativeTrace(source if isinstance(source, int) else Path(source))
        self.deterministic = deterministic

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._trace.close()

    def info(self) -> TraceInfo:
        """Return the counters in the log's header."""
        return self._trace.info()

    def entries(
        self,
        *,
        call: str | None = None,
        thread: int | None = None,
        handle: str | None = None,
        tail: int | None = None,
        objects: bool = False,
    ) -> Iterator[Entry]:
        """Yield entries, oldest first, from the oldest still whole to the last complete one.

        `call` is a call's name or a part of it, `handle` a text as printed ("stream#3.1"), `tail`
        keeps only the last ones that match. `objects` reads the object log instead of the ring.
        NativeError at a damaged entry, after all before it.
        """
        if tail is None:
            yield from self._matching(call, thread, handle, objects)
            return
        if call is None and thread is None and handle is None and not objects:
            count = self._count()
            self._trace.skip(max(0, count - tail))
            yield from self._read(objects=False)
            return
        kept: deque[Entry] = deque(maxlen=tail)
        try:
            kept.extend(self._matching(call, thread, handle, objects))
        finally:  # also in front of a damaged one
            yield from kept

    def added(
        self, *, call: str | None = None, thread: int | None = None, handle: str | None = None
    ) -> Iterator[Entry]:
        """Yield entries of the ring that came behind the last one that was read."""
        yield from self._chosen(self._read(objects=False), call, thread, handle)

    def times_of_steps(self) -> Iterator[tuple[int, int]]:
        """Yield each step whose cut the ring still has: its number, and its end in nanoseconds."""
        self._trace.rewind()
        while (raw := self._trace.next(False)) is not None:
            if raw.call == Mark.CUT and not raw.forced:
                yield raw.step, raw.time_ns

    def stats(
        self,
        *,
        call: str | None = None,
        thread: int | None = None,
        handle: str | None = None,
        tail: int | None = None,
        objects: bool = False,
    ) -> TraceStats:
        """Count entries by call: all that are in the ring, or those that `entries` would yield."""
        stats = TraceStats(self.info())
        chosen = self.entries(call=call, thread=thread, handle=handle, tail=tail, objects=objects)
        for entry in chosen:
            stats.first_ns = stats.first_ns or entry.time_ns
            stats.last_ns = entry.time_ns
            one = stats.calls.setdefault(entry.call, CallStats())
            one.count += 1
            one.ring_bytes += entry.size_bytes
            one.payload_bytes += entry.payload_bytes
            one.waits += bool(entry.flags & EntryFlags.WANTS_REPLY)
        return stats

    def _count(self) -> int:
        self._trace.rewind()
        count = self._trace.skip((1 << 64) - 1)
        self._trace.rewind()
        return count

    def _matching(
        self, call: str | None, thread: int | None, handle: str | None, objects: bool
    ) -> Iterator[Entry]:
        self._trace.rewind()
        yield from self._chosen(self._read(objects), call, thread, handle)

    @staticmethod
    def _chosen(
        entries: Iterator[Entry], call: str | None, thread: int | None, handle: str | None
    ) -> Iterator[Entry]:
        for entry in entries:
            if call is not None and call not in entry.call:
                continue
            if thread is not None and entry.thread != thread:
                continue
            if handle is not None and handle not in entry.text:
                continue
            yield entry

    def _read(self, objects: bool) -> Iterator[Entry]:
        while (raw := self._trace.next(objects)) is not None:
            yield Entry(
                raw.seq,
                raw.time_ns,
                raw.thread,
                EntryFlags(raw.flags),
                raw.size,
                raw.payload_bytes,
                bool(raw.payload_overwritten),
                self._trace.text(self.deterministic),
                raw.position,
            )


def format_entry(entry: Entry, *, deterministic: bool = False, start_ns: int = 0) -> str:
    """Return one line; deterministic lines of two equal runs can be compared with diff."""
    waits = " waits" if entry.flags & EntryFlags.WANTS_REPLY else ""
    if deterministic:
        return f"{entry.seq} t{entry.thread} {entry.text}{waits}"
    milliseconds = (entry.time_ns - start_ns) / 1e6
    return f"{entry.seq:>8} {milliseconds:>12.3f} ms t{entry.thread} {entry.text}{waits}"


def format_stats(stats: TraceStats) -> list[str]:
    """Return the lines of a table, most frequent calls first."""
    row = functools.partial("{:<44} {:>9} {:>12} {:>14} {:>7}".format)
    lines = [row("call", "count", "ring bytes", "payload bytes", "waits")]
    order = sorted(stats.calls.items(), key=lambda item: (-item[1].count, item[0]))
    for name, one in [*order, ("total", stats.total)]:
        lines.append(row(name, one.count, one.ring_bytes, one.payload_bytes, one.waits))
    info = stats.info
    lines.append(
        f"whole job: {info.entries_total} entries, {info.appended} ring bytes, "
        f"{info.arena_head} payload bytes, {info.cuts} cuts ({info.forced_cuts} forced), "
        f"{info.local_calls} calls answered locally, {info.live_objects} live objects"
    )
    return lines
