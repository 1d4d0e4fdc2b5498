"""The tool that tests tests: what it changes, and what it takes for noticed."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "check"))
import mutants  # noqa: E402
from mutations import mutants as mutants_of  # noqa: E402

SAMPLE = '''
"""A text is left alone."""
LIMIT = 3

def below(a: int, flag: bool = True) -> bool:
    """So is this one."""
    if not flag:
        raise ValueError("and this")
    found = a < LIMIT
    return found
'''
EXPECTED = {
    "module: 3 -> 4",
    "below: True -> False",
    "below: not flag -> flag",
    "below: raise ValueError('and this') -> pass",
    "below: a < LIMIT -> a <= LIMIT",
    "below: return found -> return None",
}
TEST = """
from sample_of_mutants import LIMIT, below

def test_it():
    assert below(2)
    assert not below(9)
    assert LIMIT == 3
"""


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_sample_of_mutants.py").write_text(TEST)
    path = tmp_path / "sample_of_mutants.py"
    path.write_text(SAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    return path


def test_changes(sample: Path) -> None:
    found = mutants_of(sample)
    assert {mutant.text for mutant in found} == EXPECTED
    assert [mutant.line for mutant in found] == sorted(mutant.line for mutant in found)


def test_survivors_are_found(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "ROOT", sample.parent)
    module = mutants.Module("sample_of_mutants", ["test_sample_of_mutants.py"], {})
    some = [mutant for mutant in mutants_of(sample) if "LIMIT" in mutant.text or "3" in mutant.text]
    alive = mutants.judge(module, some, str(sample), 2)
    assert [mutant.text for mutant in some] == ["module: 3 -> 4", "below: a < LIMIT -> a <= LIMIT"]
    assert alive == some[1:]
    assert "sample_of_mutants" not in sys.modules, "each has its own process"


@pytest.mark.parametrize("slower", [True, False])
def test_who_is_late_since_the_machine_is_slow_is_not_killed(
    sample: Path, monkeypatch: pytest.MonkeyPatch, slower: bool
) -> None:
    """No tests end so soon. Later they are found to have more time, or not."""
    clocks = iter([0.001, 60.0 if slower else 0.001])
    monkeypatch.setattr(mutants, "measured", lambda *_: (1.0, next(clocks)))
    monkeypatch.setattr(mutants, "ROOT", sample.parent)
    module = mutants.Module("sample_of_mutants", ["test_sample_of_mutants.py"], {})
    lives = [one for one in mutants_of(sample) if one.text == "below: a < LIMIT -> a <= LIMIT"]
    assert mutants.judge(module, lives, str(sample), 1) == (lives if slower else [])


def test_modules_of_the_product_are_changed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest has a finder of its own for them, as pyft brings a plugin."""
    name = "pyft.recovery.images"
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "test_no_longer.py").write_text(
        f"import {name} as module\n\ndef test_it():\n    assert not hasattr(module, 'CHANGED')\n"
    )
    path = str(tmp_path / "images.py")
    module = mutants.Module(name, ["test_no_longer.py"], {})
    for text, lives in (("HERE = 1", True), ("CHANGED = 1", False)):
        pid = mutants.start(module, path, compile(text, path, "exec"), 60.0)
        assert mutants.survived(os.waitpid(pid, 0)[1], name) == lives


def test_what_survives_has_a_reason(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = mutants_of(sample)
    known = mutants.Module("m", [], {found[0].text: "why"})
    assert mutants.report(known, found * 10, found[:1], whole=True)
    assert not mutants.report(known, found * 10, found[:2], whole=True), "one has no reason"
    assert not mutants.report(known, found * 10, [], whole=True), "one is killed meanwhile"
    assert not mutants.report(known, found, found[:1], whole=True), "too many survive"
    capsys.readouterr()


def test_tests_that_fail_anyway_judge_nothing(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", sample.parent)
    sample.write_text(SAMPLE.replace("LIMIT = 3", "LIMIT = 1"))
    module = mutants.Module("sample_of_mutants", ["test_sample_of_mutants.py"], {})
    with pytest.raises(SystemExit, match="fail without a mutant"):
        mutants.judge(module, mutants_of(sample), str(sample), 1)


def test_the_table_names_what_there_is() -> None:
    for module in mutants.table():
        spec = importlib.util.find_spec(module.name)
        assert spec
        assert spec.origin
        texts = {mutant.text for mutant in mutants_of(Path(spec.origin))}
        assert module.survivors.keys() <= texts, module.name
        assert all((mutants.ROOT / test).is_file() for test in module.tests)
