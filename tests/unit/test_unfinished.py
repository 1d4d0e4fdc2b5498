"""What has not ended, as told to the user while a rank stands still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page, untrusted
from pyft.agent.channel.untrusted import Areas
from pyft.agent.members import unfinished
from pyft.trace import live
from pyft.trace.reader import Entry, EntryFlags
from pyft.wire.layout import COMPLETION_WORD, COMPLETION_WORDS_OFFSET, ENTRY_HEADER, LOG_HEADER

LAUNCH = "cuLaunchKernel(kernel=kernel#1.1, stream={stream}, grid_x=1)"
FENCE = "FENCE(stream={stream}, word={word}, value={value})"
WORDS_AT = COMPLETION_WORDS_OFFSET


def with_payload(position: int, size: int) -> bytes:
    """Return the header of an entry that has a payload there."""
    return ENTRY_HEADER.pack(
        64, 70, EntryFlags.HAS_PAYLOAD, 1, payload_position=position, payload_bytes=size
    )


class Rank:
    """A ring of which the test says what is in it, and a control page."""

    def __init__(self) -> None:
        self.control, self.log = os.memfd_create("control"), os.memfd_create("log")
        os.ftruncate(self.control, WORDS_AT + (2 << 20))
        os.ftruncate(self.log, 1 << 16)
        page.write(self.control, consumed=1 << 20, fences_open=1, dispatching_seq=2)
        areas = Areas(4096, 8192, 12288, 4096, 16384, 4096)
        self.member = SimpleNamespace(
            channel=SimpleNamespace(control_fd=self.control, log_fd=self.log, areas=areas)
        )
        self.entries: list[Entry] = []

    def add(self, text: str, flags: int = 0, position: int = 0) -> None:
        seq = len(self.entries) + 1
        self.entries.append(Entry(seq, 0, 0, EntryFlags(flags), 64, 0, False, text, position))

    def reached(self, word: int, value: int) -> None:
        row = COMPLETION_WORD.pack(value)
        os.pwrite(self.control, row, WORDS_AT + word * COMPLETION_WORD.size)

    def name(self, text: bytes, payload: int) -> None:
        """Make the first entry that of a kernel's look-up."""
        self.add("cuModuleGetFunction(handle=kernel#1.1, module=module#1.1)", 4, 8192 + 64)
        os.pwrite(self.log, with_payload(payload, len(text)), 4096 + 64)
        os.pwrite(self.log, text, 16384 + payload % 4096)

    def words(self) -> str:
        return unfinished.in_words(self.member, page.read(self.control))  # type: ignore[arg-type]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    made = Rank()
    monkeypatch.setattr(live, "recent_entries", lambda log: made.entries)
    yield made
    os.close(made.control)
    os.close(made.log)


def test_a_kernel_is_named(rank: Rank) -> None:
    rank.name(b"add_one\0", 4096 + 128)
    rank.add(LAUNCH.format(stream=0))
    rank.add(FENCE.format(stream=0, word=0, value=1))
    assert rank.words() == "kernel [add_one] (entry [2])"


def test_what_other_streams_have_done_is_not_named(rank: Rank) -> None:
    rank.add(LAUNCH.format(stream="stream#17.3"))
    rank.add(FENCE.format(stream="stream#17.3", word=17, value=1))
    rank.add(LAUNCH.format(stream=0))
    rank.add("cudaMemcpyAsync(dst=dev0+0x1, stream=0)")
    rank.add("cudaEventRecord(event=event#20.1, stream=0, value=9, stream_value=4)")
    rank.reached(17, 1)
    assert rank.words() == "kernel [kernel#1.1] (entry [3]) or one of the [1] commands behind it"
    rank.reached(0, 4)
    rank.add(LAUNCH.format(stream="stream#17.3"))
    rank.add("cudaStreamDestroy(handle=stream#18.1, stream=stream#17.3)", EntryFlags.DESTROYS)
    rank.add(FENCE.format(stream="stream#17.3", word=17, value=2))
    assert rank.words() == "kernel [kernel#1.1] (entry [6])"


def test_a_call_that_does_not_return(rank: Rank) -> None:
    page.write(rank.control, fences_open=0)
    rank.add("cuModuleLoadData(handle=module#1.1)")
    rank.add("cuMemAlloc_v2(bytes=7)")
    assert rank.words() == "[cuMemAlloc_v2] (entry [2])"
    rank.entries.clear()
    assert rank.words() == "what was begun at entry [2]"


def test_a_ring_of_nonsense_is_no_error(rank: Rank) -> None:
    rank.name(b"\x1b[31mred\xff\0", 100)
    rank.add(LAUNCH.format(stream=0))
    rank.add(FENCE.format(stream=0, word=0, value=1))
    assert rank.words() == "kernel [?[31mred\ufffd] (entry [2])"
    for name in untrusted.LOG_COUNTERS:
        for value in (0, 1, 2**63, 2**64 - 1):
            LOG_HEADER[name].put(rank.log, value)
            assert rank.words() == "kernel [?[31mred\ufffd] (entry [2])", name
    for payload, size in ((2**64 - 1, 2**64 - 1), (2**63, 7)):
        os.pwrite(rank.log, with_payload(payload, size), 4096 + 64)
        assert rank.words().startswith("kernel [")
