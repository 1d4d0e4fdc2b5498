"""Mechanisms are found, told apart and written as the documents say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyft_lab.command import cli
from pyft_lab.errors import SpecError
from pyft_lab.mechanisms import SHIPPED, digest, find
from pyft_lab.mechanisms.memory import NONE, read_place, write_place

PAGE = Path(__file__).parents[3] / "docs" / "recipes" / "add-mechanism.md"


def outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return exit code and output of a command of the lab."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_example_of_the_documents_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 60
    monkeypatch.chdir(tmp_path)
    Path("per_rank.py").write_text(example)
    code, out = outcome(["check", "per_rank.py:PerRank", "--seeds", "1"], capsys)
    assert code == 0, out


def test_what_is_not_tried_has_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "pyft-snapshot", "--seeds", "1"])
    assert ended.value.code == 2
    assert "[pyft-snapshot] is not tried: " in capsys.readouterr().err


def test_what_is_half_written_does_not_count(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.touch()
    assert read_place(place) == (NONE, b"")
    write_place(place, 7, b"contents")
    assert read_place(place) == (7, b"contents")
    place.write_bytes(place.read_bytes()[:-1])
    assert read_place(place) == (NONE, b"")


def test_the_runner_imports_no_torch() -> None:
    code = "import sys; from pyft_lab.mechanisms import find, SHIPPED, digest\n"
    code += "[(find(n), digest(n)) for n in SHIPPED]; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_digest_follows_the_file_and_what_it_derives_from(tmp_path: Path) -> None:
    assert len({digest(name) for name in ("none", "blocking", "overlapped", "memory")}) == 4
    assert {find(name).name for name in SHIPPED} == set(SHIPPED)
    file = tmp_path / "mine.py"
    file.write_text("from pyft_lab.api import Mechanism\nclass A(Mechanism): name = 'a'\n")
    before = digest(f"{file}:A")
    file.write_text(file.read_text() + "# more\n")
    assert digest(f"{file}:A") != before
    with pytest.raises(SpecError, match="is no class derived from Mechanism"):
        find(f"{file}:B")
