"""tools/check/unique_tests.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "check"))

import unique_tests


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    for path in ("tests/a/test_one.py", "tests/b/test_two.py", "tests/a/two.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert list(unique_tests.problems(tmp_path / "tests")) == []
    (tmp_path / "tests/b/test_one.py").touch()
    (said,) = unique_tests.problems(tmp_path / "tests")
    assert "tests/a/test_one.py, tests/b/test_one.py" in said
