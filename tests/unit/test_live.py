"""What `pyft status` makes of the last entries of a ring."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyft.agent.channel import page
from pyft.trace import live
from pyft.trace.live import Wait, word_wait
from pyft.trace.reader import Entry, EntryFlags
from pyft.wire.layout import (
    COMPLETION_WORD,
    COMPLETION_WORDS,
    COMPLETION_WORDS_OFFSET,
    CONTROL_PAGE,
)

SECOND = 1_000_000_000


def entry(seq: int, thread: int, text: str) -> Entry:
    return Entry(seq, seq * SECOND, thread, EntryFlags(0), 64, 0, False, text)


REDUCE = "ncclAllReduce(comm=comm#16.1, stream=0, count=1)"
RECORD = "cudaEventRecord(event=event#20.1, stream=0, value=1, stream_value=2)"
LAUNCH = "cuLaunchKernel(kernel=kernel#1.1, stream=stream#17.3, grid=(1, 1, 1))"
FENCE = "FENCE(stream=stream#17.3, word=17, value=1)"
ENTRIES = [
    entry(1, 0, REDUCE),
    entry(2, 3, RECORD),
    entry(3, 0, "OBSERVED(word=0, kind=0, value=1)"),
    entry(4, 1, LAUNCH),
    entry(5, 1, FENCE),
    entry(6, 1, "cudaEventDestroy(handle=event#20.1)"),
]


def test_a_wait_names_its_mark_and_what_is_before_it() -> None:
    assert word_wait(0, ENTRIES, 4 * SECOND) == Wait(3, 2.0, f"[2] {RECORD}, behind [1] {REDUCE}")
    assert word_wait(17, ENTRIES, 6 * SECOND) == Wait(1, 1.0, f"[5] {FENCE}, behind [4] {LAUNCH}")


def test_a_mark_that_is_gone() -> None:
    assert word_wait(18, ENTRIES, 6 * SECOND) == Wait(-1, 0.0, "completion word 18")
    assert word_wait(0, ENTRIES[1:], 4 * SECOND) == Wait(3, 2.0, f"[2] {RECORD}")


def test_nobody_has_waited_for_less_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client goes on while it is looked at, and appends behind the moment of the look."""
    fds = {part: os.memfd_create(f"pyft-{part}-rank0") for part in ("log", "control")}
    os.ftruncate(fds["log"], 4096)
    size = COMPLETION_WORDS * COMPLETION_WORD.size
    os.ftruncate(fds["control"], COMPLETION_WORDS_OFFSET + size)
    waiters = COMPLETION_WORD.pack(0, 0, 0, 1)
    offset = COMPLETION_WORDS_OFFSET + 17 * COMPLETION_WORD.size
    os.pwrite(fds["control"], waiters, offset)

    def entries(log: Path) -> list[Entry]:
        time.sleep(0.01)
        now = time.monotonic_ns()
        answer = Entry(1, now, 0, EntryFlags.WANTS_REPLY, 64, 0, False, "cudaMalloc()")
        return [answer, Entry(2, now, 0, EntryFlags(0), 64, 0, False, FENCE)]

    monkeypatch.setattr(live, "recent_entries", entries)
    meta = {"agent_pid": os.getpid()}
    entry = {"name": "rank0", "rank": 0, "pid": 1, "device": 0, "server_pid": 2, "store_fd": -1}
    state = live.look(meta, entry | {f"{part}_fd": fd for part, fd in fds.items()})
    for fd in fds.values():
        os.close(fd)
    assert len(state.waits) == 2
    assert all(wait.seconds >= 0 for wait in state.waits), state.waits


def test_protection_is_shown_as_it_is() -> None:
    control = bytearray(4096)
    header, position = {"objects_missing": 0, "committed": 4096}, 0

    def put(name: str, value: int) -> None:
        CONTROL_PAGE[name].write(control, value)

    assert live.protection(control, header, position) == "none (--protect none)"
    put("protect", page.Protect.SNAPSHOT)
    assert "the log behind the last snapshot found no room" in live.protection(
        control, header, position
    )
    header["committed"] = 0
    assert live.protection(control, header, position) == "the log from the beginning"
    put("snapshot_cut", 7)
    position = header["committed"] = 4096
    assert live.protection(control, header, position) == "last snapshot at cut 7"
    put("journal_lost", 99)
    header["objects_missing"] = 2
    shown = live.protection(control, header, position)
    assert shown.startswith("NONE at present: the journal was full at entry 99 (PYFT_JOURNAL_MB); ")
    assert shown.endswith("2 objects found no room in the object log (PYFT_OBJECT_LOG_MB)")


def test_a_time_to_come_is_no_time_of_a_client() -> None:
    """Another process may write anything into an entry."""
    assert word_wait(17, ENTRIES, 1 * SECOND).seconds == 0
