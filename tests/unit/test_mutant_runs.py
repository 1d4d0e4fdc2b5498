"""How a run of a C++ test is judged, and that a slow machine kills no mutant."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "check"))
import mutant_runs  # noqa: E402
import source_mutants  # noqa: E402
from mutant_runs import End, Limits  # noqa: E402

PLENTY = Limits(60, 60)
WRONG = "tests/a_test.cc:3: CHECK_EQ(a, b) failed: [1] != [2]"


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Return what makes a program that runs these lines of a shell."""

    def made(lines: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return path

    return made


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ("exit 0", End.WELL),
        ("exit 1", End.FAILED),
        ("kill -9 $$", End.FAILED),
        ("echo words >&2; exit 0", End.WELL),
        (f"echo '{WRONG}' >&2; sleep 1000", End.FAILED),  # it is not waited for
        ("sleep 1000 & exit 0", End.WELL),  # nor is what it has started
        ("exec 2>&-; exit 1", End.FAILED),
    ],
)
def test_how_a_run_ends(program: Callable[[str], Path], lines: str, end: End) -> None:
    assert mutant_runs.run(program(lines), PLENTY) is end


def test_what_computes_is_ended_by_its_processor_time(program: Callable[[str], Path]) -> None:
    assert mutant_runs.run(program("while :; do :; done"), Limits(0, 600)) is End.FAILED


def test_what_waits_is_ended_by_the_clock(program: Callable[[str], Path]) -> None:
    assert mutant_runs.run(program("sleep 1000"), Limits(60, 0.3)) is End.LATE


def test_limits_follow_the_machine_as_it_is_now(program: Callable[[str], Path]) -> None:
    end, limits = mutant_runs.measured(program("exit 0"), PLENTY)
    assert end is End.WELL
    assert limits.clock >= 20
    assert Limits(5, 30).on(Limits(9, 40)) == Limits(5, 40)
    assert Limits(5, 30).on(Limits(9, 20)) == Limits(5, 30)


class Ends:
    """Runs that end as they are told to, instead of real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: End) -> None:
        self.left = list(ends)
        self.seen: list[Limits] = []
        self.judge = source_mutants.Judge.__new__(source_mutants.Judge)
        self.judge.limits = {"test": Limits(5, 30)}
        self.judge._lock = threading.Lock()
        self.judge._kills_of = Counter()
        monkeypatch.setattr(source_mutants, "run", self.run)
        self.controls = 0
        monkeypatch.setattr(self.judge, "_measured", self.measured)

    def measured(self, _: str) -> Limits:
        self.controls += 1
        return Limits(5, 90)

    def run(self, _: Path, limits: Limits) -> End:
        self.seen.append(limits)
        return self.left.pop(0)

    def kill(self) -> bool:
        killed = self.judge._kills("test", Path("test"))
        assert not self.left
        return killed


@pytest.mark.parametrize(
    ("ends", "killed"),
    [
        ([End.WELL], False),
        ([End.FAILED, End.FAILED], True),
        ([End.FAILED, End.WELL, End.WELL], False),
        ([End.FAILED, End.WELL, End.FAILED], True),
    ],
)
def test_one_failure_alone_kills_nothing(
    monkeypatch: pytest.MonkeyPatch, ends: list[End], killed: bool
) -> None:
    assert Ends(monkeypatch, *ends).kill() == killed


def test_what_was_only_slow_is_tried_again_with_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends(monkeypatch, End.LATE, End.WELL, End.WELL)
    assert not ends.kill()
    assert [limits.clock for limits in ends.seen] == [30, 90, 90]
    assert Ends(monkeypatch, End.LATE, End.LATE).kill()


def test_a_test_that_kills_has_to_pass_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = 2 * source_mutants.KILLS_PER_CONTROL + 1
    ends = Ends(monkeypatch, *[End.FAILED] * 2 * kills)
    assert all(ends.judge._kills("test", Path("test")) for _ in range(kills))
    assert ends.controls == 2


def test_what_a_test_has_killed_is_forgotten_when_it_fails_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    judge = Ends(monkeypatch).judge
    judge.memory, judge._keys = tmp_path / "known.json", {"a": "A", "b": "B"}
    judge.known = {"x": ["killed", "A"], "y": ["killed", "B"], "z": ["survived", "A", "B"]}
    judge._forget("a")
    assert judge.known == json.loads(judge.memory.read_text())
    assert list(judge.known) == ["y", "z"]


def test_lines_of_the_test_framework_are_known() -> None:
    """Its text is in tests/check.h, and here in a pattern."""
    header = (source_mutants.ROOT / "tests" / "check.h").read_text()
    assert '<< ":" << line << ": CHECK_EQ(" << what << ") failed' in header
    assert '<< ":" << line << ": CHECK(" << what << ") failed' in header
