"""What `pyft status` makes of the last entries of a ring."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pyft.agent.channel import page
from pyft.agent.channel.channel import Channel
from pyft.agent.job.meta_shape import damage
from pyft.agent.members.member import Member
from pyft.cli import status
from pyft.errors import TraceError
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
    assert (state.waits_for_gpu, state.steps) == (None, 0)


def test_a_rank_that_waits_for_a_gpu_has_no_server_that_works() -> None:
    fds = {part: os.memfd_create(f"pyft-{part}-rank1") for part in ("log", "control")}
    os.ftruncate(fds["log"], 4096)
    size = COMPLETION_WORDS * COMPLETION_WORD.size
    os.ftruncate(fds["control"], COMPLETION_WORDS_OFFSET + size)
    CONTROL_PAGE["steps"].put(fds["control"], 8)
    entry = {"name": "rank1", "rank": 1, "pid": 3514, "device": 1, "server_pid": 1034}
    entry |= {"store_fd": -1, **{f"{part}_fd": fd for part, fd in fds.items()}}
    fault = {"rank": 1, "device": 1, "gpu_from": 7, "fault": "gpu-lost", "evidence": "error [999]"}
    before = fault | {"gpu_from": 1, "waits_since": 0.0}
    recovery = {"faults": [before, fault | {"waits_since": 20.0}], "seconds": 36.5}
    recovery |= {"recovered": 1, "goodput": 0.5, "lost_seconds": 18.25}
    meta = {"agent_pid": os.getpid(), "job": "j", "gpus": "0,1,7", "spares": 2, "spares_left": 0}
    meta |= {"live": [entry], "recovery": recovery, "started": time.time() - 40}
    state = live.look(meta, entry)
    assert (state.status, state.working_on, state.steps) == ("waiting for a GPU", "", 8)
    assert state.waits_for_gpu == live.GpuWait(16.5, 7, "gpu-lost", "error [999]")
    shown = status.describe(Path("j"), meta)
    json.dumps(shown)
    text = "\n".join(status.lines(shown))
    for words in (
        "0,1,7, 0 spares left, running 40 s",
        "faults so far: 2, recovered 1; at work 50.00% of the time",
        "rank 1 pid 3514 device 1: waiting for a GPU for 16.5 s, in place of GPU 7 "
        "(gpu-lost: error [999])",
        "`pyft spare --gpu G` gives the job one",
        "8 steps, protection: ",
    ):
        assert words in text, text
    assert "1034" not in text
    assert "works on" not in text
    meta["recovery"]["faults"][-1]["waits_since"] = 0.0
    assert live.look(meta, entry).waits_for_gpu is None
    for fd in fds.values():
        os.close(fd)


def test_a_rank_that_was_found_out_later_is_looked_at(tmp_path: Path) -> None:
    """Its memory has the name of the attach, with rank 0; status and trace name the rank."""
    names = {part: f"pyft-{part}-rank0-pid7-dev1" for part in ("log", "control")}
    fds = {part: os.memfd_create(name) for part, name in names.items()}
    os.ftruncate(fds["log"], 4096)
    os.ftruncate(fds["control"], COMPLETION_WORDS_OFFSET + COMPLETION_WORDS * COMPLETION_WORD.size)
    channel = Channel("rank0-pid7-dev1", 3, 7, 1, 1, fds["log"], fds["control"])
    member = Member(0, channel, None, {}, tmp_path)  # type: ignore[arg-type]
    meta = {"agent_pid": os.getpid(), "live": [member.describe()]}
    assert damage(meta) == ""
    state = live.look(meta, member.describe())
    assert (state.rank, state.name) == (3, "rank3-pid7-dev1")
    with pytest.raises(TraceError, match="no longer the log"):
        live.look(meta, member.describe() | {"memory": "rank0-pid7-dev"})
    for fd in fds.values():
        os.close(fd)


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
