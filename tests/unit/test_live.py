"""What `pyft status` makes of the last entries of a ring."""

from __future__ import annotations

from pyft.trace.live import Wait, word_wait
from pyft.trace.reader import Entry, EntryFlags

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
