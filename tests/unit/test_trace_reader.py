"""Logs written here byte by byte, read by libpyft_native.so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyft import _native
from pyft._native import NativeError
from pyft.agent.channel import channel, untrusted
from pyft.cli.main import app
from pyft.errors import UsageError
from pyft.trace.reader import TraceReader, format_entry, format_stats
from pyft.wire.layout import (
    ALLOC_MARK,
    ATTACH_REPLY,
    ATTACH_REQUEST,
    CUT_MARK,
    ENTRY_HEADER,
    LOG_HEADER,
    NO_SLOT,
    OBSERVED_MARK,
    EntryFlags,
    Mark,
)

if not (_native.native_dir() / "libpyft_native.so").is_file():
    pytest.skip("[build]: libpyft_native.so is missing", allow_module_level=True)


class Log:
    """A formatted log object and a writer as simple as can be."""

    def __init__(self) -> None:
        self.fds = [os.memfd_create(name) for name in ("log", "control", "bounce")]
        code = _native.channel_format(*self.fds, 8192, 8192, 8192, 8192, 77, 1, 1)
        assert code == 0
        self.fd = self.fds[0]
        self.position = 0
        self.seq = 0

    def set_field(self, name: str, value: int) -> None:
        LOG_HEADER[name].put(self.fd, value)

    def append(self, call: int, body: bytes = b"", flags: int = 0, thread: int = 0) -> int:
        """Write one entry and return its position."""
        self.seq += 1
        at = self.position
        body += bytes(-len(body) % 16)
        slot = 5 if flags & EntryFlags.WANTS_REPLY else NO_SLOT
        size = ENTRY_HEADER.size + len(body)
        head = ENTRY_HEADER.pack(size, call, flags, self.seq, thread, slot, time_ns=1000 + self.seq)
        os.pwrite(self.fd, head + body, untrusted.log_header(self.fd)["ring_offset"] + at)
        self.position += size
        self.set_field("appended", self.position)
        self.set_field("entries_total", self.seq)
        return at

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


def fill(log: Log) -> None:
    log.append(Mark.ALLOC, ALLOC_MARK.pack(0x1800_0000_0200, 512))
    log.append(Mark.ALLOC, ALLOC_MARK.pack(0x7FFF_1234_5678, 64), thread=1)
    for word in range(3):
        log.append(Mark.OBSERVED, OBSERVED_MARK.pack(word, 0, 9), flags=EntryFlags.WANTS_REPLY)
    log.append(Mark.CUT, CUT_MARK.pack(1))


def saved(log: Log) -> str:
    """Return the name of the log for a command of this process."""
    return f"/proc/self/fd/{log.fd}"


def test_live_log(log: Log) -> None:
    fill(log)
    with TraceReader(log.fd) as trace:
        entries = list(trace.entries())
        assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5, 6]
        assert [entry.call for entry in entries][:3] == ["ALLOC", "ALLOC", "OBSERVED"]
        assert "dev0+0x200" in entries[0].text
        log.append(Mark.GOODBYE)
        assert [entry.call for entry in trace.entries(tail=1)] == ["GOODBYE"]
        assert trace.info().client_pid == 77
        assert trace.info().device == 1


def test_filters(log: Log) -> None:
    fill(log)
    with TraceReader(log.fd) as trace:
        assert len(list(trace.entries(call="ALLOC"))) == 2
        assert [entry.seq for entry in trace.entries(thread=1)] == [2]
        assert [entry.seq for entry in trace.entries(handle="word=1")] == [4]
        assert [entry.seq for entry in trace.entries(tail=2)] == [5, 6]
        assert [entry.seq for entry in trace.entries(call="OBSERVED", tail=1)] == [5]
        assert [entry.seq for entry in trace.entries(tail=100)] == [1, 2, 3, 4, 5, 6]
        assert list(trace.entries(objects=True)) == []


def test_saved_log(log: Log, tmp_path: Path) -> None:
    fill(log)
    channel.save_log(log.fd, tmp_path / "a.ring", untrusted.Areas.of_new(log.fd))
    with TraceReader(log.fd) as live, TraceReader(tmp_path / "a.ring") as copy:
        assert list(copy.entries()) == list(live.entries())


def test_stats(log: Log) -> None:
    fill(log)
    with TraceReader(log.fd) as trace:
        stats = trace.stats()
    assert stats.calls["OBSERVED"].count == 3
    assert stats.calls["OBSERVED"].waits == 3
    assert stats.total.count == 6
    assert stats.total.ring_bytes == log.position
    lines = format_stats(stats)
    assert lines[1].startswith("OBSERVED")
    assert "6 entries" in lines[-1]


def test_stats_are_of_what_was_chosen(log: Log) -> None:
    fill(log)
    with TraceReader(log.fd) as trace:
        assert {name: one.count for name, one in trace.stats(call="ALLOC").calls.items()} == {
            "ALLOC": 2
        }
        assert trace.stats(thread=1).total.count == 1
        assert trace.stats(call="OBSERVED", tail=2).total.count == 2
        assert trace.stats(objects=True).total.count == 0
    said = CliRunner().invoke(app, ["trace", saved(log), "--stats", "--call", "ALLOC"]).output
    assert [line.split()[:2] for line in said.splitlines()[1:3]] == [["ALLOC", "2"], ["total", "2"]]


def test_following_begins_with_the_last_ones(log: Log) -> None:
    fill(log)
    follow = ["trace", saved(log), "--follow", "--deterministic"]
    assert len(CliRunner().invoke(app, follow).output.splitlines()) == 6
    lines = CliRunner().invoke(app, [*follow, "--tail", "2"]).output.splitlines()
    assert [line.split()[0] for line in lines] == ["5", "6"]
    assert not CliRunner().invoke(app, [*follow, "--tail", "0"]).output
    for option in ("--stats", "--objects"):
        assert isinstance(CliRunner().invoke(app, [*follow, option]).exception, UsageError)


def test_times_count_from_the_first_entry_whatever_is_printed(log: Log) -> None:
    fill(log)
    at = untrusted.log_header(log.fd)["ring_offset"] + log.append(Mark.GATE, bytes(8))
    ENTRY_HEADER["time_ns"].put(log.fd, 1001 + 7_000_000, at=at)
    for more in ([], ["--follow"], ["--follow", "--tail", "1"]):
        line = CliRunner().invoke(app, ["trace", saved(log), "--call", "GATE", *more]).output
        assert line.split()[1:3] == ["7.000", "ms"], line


def test_deterministic_lines_have_no_time(log: Log) -> None:
    fill(log)
    with TraceReader(log.fd, deterministic=True) as trace:
        lines = [format_entry(entry, deterministic=True) for entry in trace.entries()]
    assert lines[2] == "3 t0 OBSERVED(word=0, kind=0, value=9) waits"
    with TraceReader(log.fd) as trace:
        assert " ms t0 " in format_entry(next(trace.entries()))


def test_damaged_entry_ends_the_trace(log: Log) -> None:
    fill(log)
    at = log.append(Mark.GATE, bytes(8))
    ring = untrusted.log_header(log.fd)["ring_offset"]
    ENTRY_HEADER["size"].put(log.fd, 17, at=ring + at)
    with TraceReader(log.fd) as trace:
        entries = trace.entries()
        assert [next(entries).seq for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(NativeError, match=rf"\[{at}\].*size \[17\]"):
            next(entries)
        for chosen, numbers in (({}, [5, 6]), ({"call": "OBSERVED"}, [4, 5])):
            last = trace.entries(tail=2, **chosen)
            assert [next(last).seq for _ in range(2)] == numbers
            with pytest.raises(NativeError):
                next(last)


def test_oldest_is_where_reading_starts(log: Log) -> None:
    fill(log)
    log.set_field("oldest", ENTRY_HEADER.size + 16)
    with TraceReader(log.fd) as trace:
        assert [entry.seq for entry in trace.entries()] == [2, 3, 4, 5, 6]


def test_a_forced_cut_ends_no_step(log: Log) -> None:
    """It is made in the middle of one, when the log fills: the agent does not count it either."""
    for number, (forced, step) in enumerate([(0, 8), (1, 8), (0, 9), (2, 9), (0, 10)], 1):
        log.append(Mark.CUT, CUT_MARK.pack(number, forced=forced, step=step))
    with TraceReader(log.fd) as trace:
        assert list(trace.times_of_steps()) == [(8, 1001), (9, 1003), (10, 1005)]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", r"only \[0\] bytes"), (bytes(8192), r"magic \[0\]"), (None, "cannot be opened")],
)
def test_no_log(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x.ring"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NativeError, match=message):
        TraceReader(path)


def test_format_refuses_odd_sizes() -> None:
    fds = [os.memfd_create(name) for name in ("log", "control", "bounce")]
    assert _native.channel_format(*fds, 1000, 8192, 8192, 8192, 1, 0, 1) == 22
    for fd in fds:
        os.close(fd)


def test_header_size_matches() -> None:
    sizes = _native.layout_sizes()
    assert sizes["LogHeader"] == LOG_HEADER.size
    assert sizes["AttachRequest"] == ATTACH_REQUEST.size
    assert sizes["AttachReply"] == ATTACH_REPLY.size
