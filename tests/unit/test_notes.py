"""Notes of agents: the next one reads what was written, and nobody changes it in between."""

from __future__ import annotations

import os

import pytest

from pyft.agent.process.notes import make_note, read_note

VALUES = {"a": [1, "é\udcff", None], "b": {"c": 2**64}}


def test_a_note_says_what_was_written() -> None:
    assert read_note(make_note("job", VALUES)) == VALUES


def test_nobody_writes_into_a_note() -> None:
    fd = make_note("job", VALUES)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"{}", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    with pytest.raises(PermissionError):
        os.pwrite(again, b"{}", 0)
    os.close(again)
    assert read_note(fd) == VALUES
