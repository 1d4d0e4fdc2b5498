"""Every record of a published number holds, and a record that does not is noticed."""

from __future__ import annotations

import pytest

from pyft_lab.anchors.formulas import FORMULAS
from pyft_lab.anchors.record import Anchor, Check, Status, load
from pyft_lab.anchors.verify import verify, verify_all
from pyft_lab.command import cli
from pyft_lab.errors import SpecError


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return {check.anchor.name: check for check in verify_all()}


@pytest.mark.parametrize("name", [anchor.name for anchor in load()])
def test_a_record_holds(checks: dict[str, Check], name: str) -> None:
    assert checks[name].problem == ""


def test_names_are_unique_and_formulas_are_used() -> None:
    names = [anchor.name for anchor in load()]
    assert len(set(names)) == len(names)
    assert {anchor.formula for anchor in load()} == set(FORMULAS)


def test_what_does_not_follow_shows_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--only", "deadpool.run.share"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "(18 + 2366) steps x 2.08 s = 5258.7 s" in out
    assert "swaps / restarts = 1.19 %, restarts / swaps = 84.3 x" in out
    assert "5.3 % needs 422 replayed steps instead of 2384" in out


def test_all_that_does_not_follow_has_a_note() -> None:
    assert all(a.note for a in load() if a.status is Status.NOT_REPRODUCIBLE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ours": 16.0}, "the record has [16]"),
        ({"status": "consistent"}, "is [reproduced], the record says [consistent]"),
        ({"published": 17.0}, "is [not reproducible], the record says [reproduced]"),
    ],
)
def test_a_wrong_record_is_noticed(change: dict[str, object], problem: str) -> None:
    right = next(anchor for anchor in load() if anchor.name == "deadpool.replay")
    wrong = Anchor(**{**right.model_dump(), **change})
    assert problem in verify(wrong).problem


def test_a_formula_that_is_not_there_is_named() -> None:
    wrong = load()[0].model_copy(update={"formula": "alchemy"})
    with pytest.raises(SpecError, match=r"\[alchemy\]"):
        verify(wrong)


def test_nothing_to_check_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--only", "nothing"])
    assert ended.value.code == 2
    assert "no anchor begins with [nothing]" in capsys.readouterr().err
