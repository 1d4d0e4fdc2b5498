"""What `make test-endings` takes for a difference: otherwise it would find none, or explain all."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "endings"))
import judge  # noqa: E402
import ways  # noqa: E402

WAY = ways.Way("kill", 0, "SIGKILL", ("Signal 9",))
END = judge.Ending(1, 2.0, "rank 0: SIGKILL", (), "", "", "")
KNOWN = (ways.Known(("kill",), r"direct: nothing says \[Signal \d\]", "why"),)
# As torchrun prints it, with another rank that has failed later.
SUMMARY = """\
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 10)
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -11 (pid: 11)
"""


def test_endings_that_are_the_same_have_no_difference() -> None:
    proxied = replace(END, seconds=END.seconds + judge.NEAR_S, log="elsewhere")
    assert judge.unexplained(WAY, {"direct": END, "proxied": proxied}, ()) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"code": 0}, "other exit codes"),
        ({"code": None}, "has not ended"),
        ({"seconds": 7.1}, "after the event"),
        ({"first": "rank 1: SIGABRT"}, "first to fail"),
        ({"unsaid": ("Signal 9",)}, "nothing says"),
        ({"left": "a process"}, "left a process"),
        ({"wrong": "a sum"}, "a sum"),
    ],
)
@pytest.mark.parametrize("mode", ["direct", "proxied"])
def test_each_difference_is_named(mode: str, change: dict, named: str) -> None:
    found = {"direct": END, "proxied": END} | {mode: replace(END, **change)}
    assert any(named in one for one in judge.unexplained(WAY, found, ()))


def test_only_time_and_order_depend_on_the_machine() -> None:
    late = {"direct": END, "proxied": replace(END, seconds=60.0, first="rank 1: 1")}
    assert len(judge.busy_differences(late)) == 2
    assert judge.problems(late) == []


def test_a_known_difference_is_explained_and_no_other() -> None:
    silent = replace(END, unsaid=("Signal 9",))
    assert judge.unexplained(WAY, {"direct": silent, "proxied": END}, KNOWN) == []
    assert judge.unexplained(WAY, {"direct": silent, "proxied": silent}, KNOWN) == [
        "proxied: nothing says [Signal 9]"
    ]


def test_a_known_difference_that_is_gone_is_named() -> None:
    found = judge.unexplained(WAY, {"direct": END, "proxied": END}, KNOWN)
    assert found == [f"known, but not seen: {KNOWN[0].problem}"]
    other = replace(WAY, word="raise")
    assert judge.unexplained(other, {"direct": END, "proxied": END}, KNOWN) == []


def test_a_known_race_may_be_there_or_not() -> None:
    race = (replace(KNOWN[0], always=False),)
    assert judge.unexplained(WAY, {"direct": END, "proxied": END}, race) == []
    silent = replace(END, unsaid=("Signal 9",))
    assert judge.unexplained(WAY, {"direct": silent, "proxied": END}, race) == []


def test_known_differences_belong_to_ways_that_there_are() -> None:
    names = {way.name for way in ways.WAYS}
    assert len(names) == len(ways.WAYS)
    for known in ways.KNOWN:
        assert set(known.words) <= {way.word for way in ways.WAYS}


def test_the_first_to_fail_is_the_root_cause() -> None:
    assert judge.first(SUMMARY) == "rank 1: SIGSEGV"
    assert judge.first(SUMMARY.replace("-11", "1")) == "rank 1: 1"
    assert judge.first("nothing of torchrun") == ""
