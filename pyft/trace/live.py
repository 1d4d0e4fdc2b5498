"""What a running channel does right now, read from the agent's memory without disturbing the job."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pyft._native import NativeError
from pyft.agent.channel import page, untrusted
from pyft.errors import TraceError
from pyft.recovery import redundancy
from pyft.trace.reader import Entry, EntryFlags, TraceReader
from pyft.trace.targets import live_descriptor
from pyft.wire.layout import (
    COMPLETION_WORD,
    COMPLETION_WORDS,
    COMPLETION_WORDS_OFFSET,
    CONTROL_PAGE,
    ChannelStatus,
    Protect,
)

# A stream's word is the index of its handle, but for the streams that have always been there
# (proxy/ring/completion.h).
_STREAM = re.compile(r"\bstream=(?:stream#(\d+)|(\d+))")
_DEFAULT_STREAM_WORDS = {"0": 0, "1": 0, "2": 1}
_WORD = re.compile(r"\bword=(\d+)")

_STATUS = {int(one): one.name.lower().replace("_", " ") for one in ChannelStatus}

WAITS = "waiting for a GPU"  # status of a rank without a server
LOOK_BACK = 20_000  # entries searched for what a thread waits for
MOST_WAITS = 256  # shown of a client


@dataclass(frozen=True)
class Wait:
    """A thread of the client that waits: for the answer to an entry, or for a stream."""

    thread: int
    seconds: float
    what: str


@dataclass(frozen=True)
class GpuWait:
    """What a rank without a server waits for: a GPU in place of one. Numbers are those of a fault."""

    seconds: float
    gpu: int
    fault: str  # its class
    evidence: str


@dataclass(frozen=True)
class ChannelState:
    """One client process and device. Positions and sizes are bytes of the ring."""

    name: str
    rank: int
    pid: int
    device: int
    server_pid: int
    status: str
    position: int  # appended so far
    lag: int  # appended and not yet taken by the server
    log_bytes: int  # kept for replay
    heartbeat_age: float  # seconds; negative: none yet
    sticky_error: int
    working_on: str  # the entry being executed
    protection: str  # what a fault would find
    redundancy: str  # what --dmr has covered; nothing without it
    waits: list[Wait]
    steps: int = 0
    waits_for_gpu: GpuWait | None = None  # there is no server then


def look(meta: dict[str, Any], entry: dict[str, Any], waits: bool = True) -> ChannelState:
    """Return the state of one channel of a live job; TraceError when it has just ended.

    `meta`: as it is now, see pyft.report.history.until_now.
    `waits`: with what is worked on and waited for, which takes a look at many entries.
    """
    log = live_descriptor(meta, entry, "log")
    control_path = live_descriptor(meta, entry, "control")
    try:
        with _opened(log) as fd:
            header = untrusted.log_header(fd)
        with _opened(control_path) as fd:
            control = untrusted.first_page(fd)
            array = (COMPLETION_WORDS if waits else 0, COMPLETION_WORDS_OFFSET)
            waiters = untrusted.column_at(fd, COMPLETION_WORD, "waiters", *array)
        position = _snapshot_position(meta, entry)
    except OSError as error:
        raise TraceError(f"the channel [{entry['name']}] has just ended: {error}") from None
    consumed = CONTROL_PAGE["consumed"].read(control)
    beat = CONTROL_PAGE["heartbeat_ns"].read(control)
    status = CONTROL_PAGE["status"].read(control)
    entries = recent_entries(log) if waits else []
    now = time.monotonic_ns()  # the client goes on meanwhile: not before its last entry is read
    pending = [e for e in entries if e.position >= consumed]
    gpu_wait = gpu_wait_of(meta, entry)
    return ChannelState(
        name=entry["name"],
        rank=entry["rank"],
        pid=entry["pid"],
        device=entry["device"],
        server_pid=entry["server_pid"],
        status=WAITS if gpu_wait else _STATUS.get(status, f"[{status}], which does not exist"),
        position=header["appended"],
        lag=max(0, header["appended"] - consumed),
        log_bytes=max(0, header["appended"] - header["oldest"]),
        heartbeat_age=(now - beat) / 1e9 if beat else -1.0,
        sticky_error=CONTROL_PAGE["sticky_error"].read(control),
        protection=protection(control, header, position),
        redundancy=redundancy_of(control, header["next_seq"] - 1),
        working_on=f"[{pending[0].seq}] {pending[0].text}" if pending and not gpu_wait else "",
        waits=[*reply_waits(pending, now), *word_waits(waiters, entries, now)] if waits else [],
        steps=CONTROL_PAGE["steps"].read(control),
        waits_for_gpu=gpu_wait,
    )


def gpu_wait_of(meta: dict[str, Any], entry: dict[str, Any]) -> GpuWait | None:
    """Return since when the rank of a channel waits for a GPU, and what has become of its last one."""
    recovery = meta.get("recovery") or {}
    where = (entry["rank"], entry["device"])
    for fault in reversed(recovery.get("faults", [])):
        if (fault["rank"], fault.get("device")) == where and (since := fault.get("waits_since")):
            seconds = max(0.0, recovery.get("seconds", since) - since)
            return GpuWait(seconds, fault["gpu_from"], fault["fault"], fault["evidence"])
    return None


def _snapshot_position(meta: dict[str, Any], entry: dict[str, Any]) -> int:
    """Return where a replay would begin. A rank without protection has no store."""
    if entry["store_fd"] < 0:
        return 0
    with _opened(live_descriptor(meta, entry, "store")) as store:
        return page.snapshot_position(store)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def redundancy_of(control: bytes, written: int) -> str:
    """Say what dual modular redundancy has covered of the entries, empty without it."""

    def counter(name: str) -> int:
        return CONTROL_PAGE[name].read(control)

    if found := redundancy.figures(counter):
        return redundancy.sentence(found)
    audited = redundancy.audit_figures(counter, written)
    return redundancy.audit_sentence(audited) if audited else ""


def protection(control: bytes, header: dict[str, int], position: int) -> str:
    """Say from where a rank would go on after a fault, or why it would not.

    `position`: where in the ring a replay would begin. The header was read before it.
    """

    def field(name: str) -> int:
        return CONTROL_PAGE[name].read(control)

    if field("protect") == Protect.NONE:
        return "none (--protect none)"
    if why := why_unprotected(field("journal_lost"), position, header):
        return f"NONE at present: {why}"
    cut = field("snapshot_cut")
    return f"last snapshot at cut {cut}" if cut else "the log from the beginning"


def why_unprotected(journal_lost: int, position: int, header: dict[str, int]) -> str:
    """Say what a replay would lack, empty if nothing: see protection()."""
    why = []
    if header["committed"] > position:
        why.append(
            "the log behind the last snapshot found no room, and is gone "
            "(PYFT_RING_MB, PYFT_ARENA_MB)"
        )
    if journal_lost:
        why.append(f"the journal was full at entry {journal_lost} (PYFT_JOURNAL_MB)")
    if missing := header["objects_missing"]:
        why.append(f"{missing} objects found no room in the object log (PYFT_OBJECT_LOG_MB)")
    return "; ".join(why)


def recent_entries(log: Path) -> list[Entry]:
    """Return the last entries of a ring that may be written meanwhile."""
    try:
        with TraceReader(log) as reader:
            return list(reader.entries(tail=LOOK_BACK))
    except NativeError:
        return []  # overwritten while it was read


def reply_waits(pending: list[Entry], now: int) -> list[Wait]:
    """Return what waits for the answer to an entry the server has not finished."""
    return [
        Wait(e.thread, _seconds_since(e, now), f"the answer to [{e.seq}] {e.text}")
        for e in pending
        if e.flags & EntryFlags.WANTS_REPLY
    ]


def word_waits(waiters: list[int], entries: list[Entry], now: int) -> list[Wait]:
    """Return what sleeps until a stream or event completes, by its mark in the stream.

    `waiters`: how many sleep at each completion word.
    """
    asleep = (word for word, sleepers in enumerate(waiters) if sleepers)
    return [word_wait(word, entries, now) for word in islice(asleep, MOST_WAITS)]


def word_wait(word: int, entries: list[Entry], now: int) -> Wait:
    """Describe the wait for a stream's word: since when, and behind which command."""
    last = next((i for i in reversed(range(len(entries))) if marked_word(entries[i]) == word), None)
    if last is None:  # it lies further back
        return Wait(-1, 0.0, f"completion word {word}")
    mark = entries[last]
    what = f"[{mark.seq}] {mark.text}"
    for entry in reversed(entries[:last]):
        if stream_word(entry) == word and marked_word(entry) is None:
            what += f", behind [{entry.seq}] {entry.text}"
            break
    return Wait(mark.thread, _seconds_since(mark, now), what)


def _seconds_since(entry: Entry, now: int) -> float:
    """Return the age of an entry; a time that has not come yet is no time of the client's."""
    return max(0, now - entry.time_ns) / 1e9


def stream_word(entry: Entry) -> int | None:
    """Return the completion word of the stream that an entry names, None if it names none."""
    found = _STREAM.search(entry.text)
    if not found:
        return None
    return int(found.group(1)) if found.group(1) else _DEFAULT_STREAM_WORDS.get(found.group(2))


def marked_word(entry: Entry) -> int | None:
    """Return the word of the stream in which the entry marks a point that can be waited for."""
    if entry.call == "FENCE":
        found = _WORD.search(entry.text)
        return int(found.group(1)) if found else None
    return stream_word(entry) if entry.call == "cudaEventRecord" else None
