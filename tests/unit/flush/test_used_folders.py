"""Folders with lines of a job, as `pyft run --flush` finds them: each is refused with what can be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyft.cli import flushed
from pyft.errors import UsageError
from pyft.flush import manifest


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((manifest.name_of(3),), "pyft run --resume {}`"),
        ((manifest.name_of(3), manifest.name_of(4) + manifest.PARTIAL), "pyft run --resume {}`"),
        ((manifest.name_of(4) + manifest.PARTIAL,), "not whole, and none to go on from"),
        ((manifest.name_of(4) + manifest.REFUSED,), "not whole, and none to go on from"),
    ],
)
def test_a_folder_with_lines_is_refused(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError) as refused:
        flushed.check_unused([tmp_path])
    assert said.format(tmp_path) in str(refused.value)


def test_other_files_are_no_lines(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    flushed.check_unused([tmp_path])
