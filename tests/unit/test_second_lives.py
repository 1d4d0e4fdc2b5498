"""How two lives of a client are compared: events, and bytes that no code can read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nodes"))
import logs  # noqa: E402
import operands  # noqa: E402
from logs import Entry  # noqa: E402

STREAM, OTHER = 7, 8


def entry(call: int, *words: int) -> Entry:
    return Entry(call, 0, 1, 0, b"".join(word.to_bytes(8, "little") for word in words))


def record(event: int, value: int, stream: int = STREAM) -> Entry:
    return entry(logs.EVENT_RECORD, event, stream, value * 100 + event, value)


def bodies(*log: Entry) -> list[tuple[int, bytes]]:
    return [(one.call, one.body) for one in logs.with_free_events(list(log))]


def test_which_event_it_is_makes_no_difference() -> None:
    made = entry(logs.EVENT_CREATE, 2, 0)
    first = bodies(record(1, 5), entry(logs.STREAM_WAIT_EVENT, OTHER, 1, 0))
    second = bodies(made, record(2, 5), entry(logs.STREAM_WAIT_EVENT, OTHER, 2, 0))
    assert first == second


@pytest.mark.parametrize(
    "log",
    [
        (record(1, 6), entry(logs.STREAM_WAIT_EVENT, OTHER, 1, 0)),  # a later place
        (record(1, 5, OTHER), entry(logs.STREAM_WAIT_EVENT, OTHER, 1, 0)),  # another stream
        (record(1, 5), entry(logs.STREAM_WAIT_EVENT, OTHER, 3, 0)),  # one of before
        (record(1, 5), record(1, 6), entry(logs.STREAM_WAIT_EVENT, OTHER, 1, 0)),
    ],
)
def test_where_it_was_recorded_does(log: tuple[Entry, ...]) -> None:
    assert bodies(*log) != bodies(record(1, 5), entry(logs.STREAM_WAIT_EVENT, OTHER, 1, 0))


def unread(monkeypatch: pytest.MonkeyPatch, *instructions: str) -> list[int]:
    monkeypatch.setattr(operands, "_instructions", lambda text: list(instructions))
    operands.unread.cache_clear()
    return sorted(operands.unread(b"", "", 32))


def test_operands_say_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    word = "FMUL R1, R2, c[0x0][0x160]"
    pair = "IMAD.WIDE R2, R0, R3, c[0x0][0x168]"
    assert unread(monkeypatch, word, pair) == [4, 5, 6, 7, *range(16, 32)]
    assert unread(monkeypatch, word, "DADD R2, R4, c[0x0][0x168]") == [4, 5, 6, 7, *range(24, 32)]
    assert unread(monkeypatch, "MOV R1, c[0x3][0x160]") == list(range(32))  # another bank


@pytest.mark.parametrize(
    "one", ["LDC R1, c[0x0][R2+0x160]", "CALL.ABS 0x40", "0 ERROR no such word"]
)
def test_what_may_read_anything_leaves_nothing_out(
    monkeypatch: pytest.MonkeyPatch, one: str
) -> None:
    assert unread(monkeypatch, "FMUL R1, R2, c[0x0][0x160]", one) == []


def test_code_that_is_not_there_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unread(monkeypatch) == []
