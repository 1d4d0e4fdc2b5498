"""What a device was given and has not finished, in words. Reads what the client has written."""

from __future__ import annotations

import re
from pathlib import Path

from pyft.agent.channel import untrusted
from pyft.agent.channel.channel import Channel
from pyft.agent.channel.page import ControlState
from pyft.agent.members.member import Member
from pyft.trace import live
from pyft.trace.reader import Entry, EntryFlags
from pyft.wire.layout import (
    COMPLETION_WORD,
    COMPLETION_WORDS,
    COMPLETION_WORDS_OFFSET,
    ENTRY_HEADER,
)

NAME_BYTES = 120  # of a kernel, as shown
_WORD_VALUE = re.compile(r"\b(?:stream_)?value=(\d+)\)?")
_KERNEL = re.compile(r"\bkernel=(kernel#\d+\.\d+)")


def in_words(member: Member, state: ControlState) -> str:
    """Return what has not ended, as far as can be told: the oldest work behind which a mark waits.

    A device says which marks of a stream it has come to, and nothing of what lies between two.
    """
    channel = member.channel
    entries = live.recent_entries(Path(f"/proc/self/fd/{channel.log_fd}"))
    given = [entry for entry in entries if entry.position < state.consumed]
    between = _between_marks(given, _words(channel.control_fd)) if state.fences_open else []
    if between:
        first = _name(between[0], channel, entries)
        if len(between) == 1:
            return first
        return f"{first} or one of the [{len(between) - 1}] commands behind it"
    for entry in entries:
        if entry.seq == state.dispatching_seq:
            return f"[{entry.call}] (entry [{entry.seq}])"
    return f"what was begun at entry [{state.dispatching_seq}]"


def is_waited_for(control_fd: int) -> bool:
    """Say whether a thread of the client sleeps until a stream or an event completes."""
    size = COMPLETION_WORDS * COMPLETION_WORD.size
    raw = untrusted.some_at(control_fd, size, COMPLETION_WORDS_OFFSET)
    whole = len(raw) - len(raw) % COMPLETION_WORD.size
    number = memoryview(raw[:whole]).cast("I")  # all of them often: no objects are made
    first, step = COMPLETION_WORD["waiters"].offset // 4, COMPLETION_WORD.size // 4
    return any(number[first::step])


def _words(control_fd: int) -> list[int]:
    """Return what the streams have come to, by completion word."""
    records = untrusted.records_at(
        control_fd, COMPLETION_WORD, COMPLETION_WORDS, COMPLETION_WORDS_OFFSET
    )
    return [word.value for word in records]


def _between_marks(given: list[Entry], words: list[int]) -> list[Entry]:
    """Return the work before the first mark that has not been reached, behind the last that has."""
    since: dict[int, list[Entry]] = {}  # by stream's word
    for entry in given:
        word = live.marked_word(entry)
        if word is None:
            stream = live.stream_word(entry)
            if stream is not None and not _is_of_objects(entry):
                since.setdefault(stream, []).append(entry)
            continue
        value = _WORD_VALUE.findall(entry.text)
        reached = not value or (word < len(words) and words[word] >= int(value[-1]))
        if not reached and since.get(word):
            return since[word]
        if reached:
            since[word] = []
    return []


def _is_of_objects(entry: Entry) -> bool:
    """Say whether an entry makes, sets or ends an object, and gives the device nothing to do."""
    return bool(entry.flags & (EntryFlags.CREATES | EntryFlags.DESTROYS))


def _name(entry: Entry, channel: Channel, entries: list[Entry]) -> str:
    found = _KERNEL.search(entry.text)
    if not found:
        return f"[{entry.call}] (entry [{entry.seq}])"
    name = _kernel_name(channel, found.group(1), entries) or found.group(1)
    return f"kernel [{name}] (entry [{entry.seq}])"


def _kernel_name(channel: Channel, kernel: str, entries: list[Entry]) -> str:
    """Return the name a kernel was looked up by, empty when that is no longer in the ring."""
    made = (e for e in reversed(entries) if e.call == "cuModuleGetFunction")
    found = next((e for e in made if f"handle={kernel}," in e.text), None)
    if found is None or found.payload_overwritten:
        return ""
    areas = channel.areas
    at = areas.ring_offset + found.position % areas.ring_bytes
    raw = untrusted.some_at(channel.log_fd, ENTRY_HEADER.size, at)
    if len(raw) < ENTRY_HEADER.size:
        return ""
    header = ENTRY_HEADER.unpack(raw)
    at = areas.arena_offset + header.payload_position % areas.arena_bytes
    return untrusted.text(
        untrusted.some_at(channel.log_fd, min(header.payload_bytes, NAME_BYTES), at)
    )
