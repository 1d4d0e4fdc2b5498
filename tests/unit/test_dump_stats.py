"""What CRIU notes of its dumps is read, whatever bytes are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyft.images import dump_stats

# Of CRIU 4.2.1: it took 208 us to have the processes stand, for 13935 us.
WRITTEN = bytes.fromhex(
    "4059105506330957220000000a2008d00110ef6c18fd2320 8c012839300038 1e40004800500658066000680070 00"
)


def said(folder: Path, data: bytes) -> float:
    (folder / dump_stats.NAME).write_bytes(data)
    return dump_stats.stood_s(folder)


def test_processes_stood_as_long_as_criu_says(tmp_path: Path) -> None:
    assert said(tmp_path, WRITTEN) == pytest.approx(0.014143)


def test_without_a_note_nothing_is_known(tmp_path: Path) -> None:
    assert dump_stats.stood_s(tmp_path) == 0.0


def test_no_damage_makes_more_of_it_than_a_number(tmp_path: Path) -> None:
    for at in range(len(WRITTEN)):
        for bit in range(8):
            damaged = bytearray(WRITTEN)
            damaged[at] ^= 1 << bit
            assert 0.0 <= said(tmp_path, bytes(damaged)) <= 3600.0
        assert said(tmp_path, WRITTEN[:at]) == 0.0
    assert said(tmp_path, WRITTEN[:8] + b"\xff" * 4 + WRITTEN[12:]) == 0.0
