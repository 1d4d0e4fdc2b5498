"""The head's log: whole entries come back, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyft.errors import UsageError
from pyft.hosts.head.ledger import FileLedger


def test_entries_come_back(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "ledger")
    entries = [{"kind": "term", "term": 1}, {"kind": "line", "number": 2, "step": 3}]
    for entry in entries:
        ledger.write(entry)
    ledger.close()
    assert FileLedger(tmp_path / "ledger").entries == entries


def test_a_line_that_was_being_written_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b'{"kind": "term", "term": 1}\n{"kind": "li')
    ledger = FileLedger(path)
    assert [entry["kind"] for entry in ledger.entries] == ["term"]
    ledger.write({"kind": "onward", "round": 1})
    ledger.close()
    assert [entry["kind"] for entry in FileLedger(path).entries] == ["term", "onward"]


def test_without_a_path_nothing_is_written() -> None:
    FileLedger(None).write({"kind": "term", "term": 1})


@pytest.mark.parametrize("damage", [b'{"kind": "li', b"\0\0\0", b"[5]", b'{"no": "kind"}'])
def test_damage_before_other_decisions_is_refused(tmp_path: Path, damage: bytes) -> None:
    """To cut the file there would take back what hosts have acted on."""
    path = tmp_path / "ledger"
    data = b'{"kind": "term", "term": 1}\n' + damage + b'\n{"kind": "onward", "round": 1}\n'
    path.write_bytes(data)
    with pytest.raises(UsageError, match="damaged in line \\[2\\]"):
        FileLedger(path)
    assert path.read_bytes() == data


def test_a_long_ledger_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    line = b'{"kind": "id", "key": 1, "made_as": "' + b"a" * (1 << 20) + b'"}\n'
    path.write_bytes(line * 65)
    assert len(FileLedger(path).entries) == 65
    assert path.stat().st_size == 65 * len(line)


def test_one_head_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = FileLedger(path)
    first.write({"kind": "term", "term": 1})
    with pytest.raises(UsageError, match="another head"):
        FileLedger(path)
    first.close()
    assert len(FileLedger(path).entries) == 1


def test_the_name_of_the_file_is_on_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    FileLedger(tmp_path / "ledger")
    assert tmp_path.stat().st_ino in synced
