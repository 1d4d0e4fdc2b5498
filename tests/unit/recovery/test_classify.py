"""What a server's end means, and how often it may come again: tables and numbers as they are."""

from __future__ import annotations

import dataclasses

import pytest

from pyft.recovery import blame, classify
from pyft.recovery.blame import History, LogPosition
from pyft.recovery.classify import Fault, of_agent, of_exit, of_shared_memory, row_named, row_of
from pyft.recovery.events import Mode
from pyft.wire.layout import (
    DIVERGED_EXIT,
    FAULT_EXIT,
    MISMATCH_EXIT,
    SELF_TEST_EXIT,
    UNRECOVERABLE_EXIT,
    FaultKind,
)

SERIAL_ELSEWHERE = blame.Verdict(Mode.SERIAL, leave=True)


def test_the_page_has_a_line_for_each_row() -> None:
    lines = classify.markdown().splitlines()[2:]
    assert len(lines) == len(classify.TABLE)
    for line, row in zip(lines, classify.TABLE, strict=True):
        assert line.startswith(f"| {row.name} | {row.source}: ")
        assert str(row.signs[-1]) in line
        assert row.do.value in line


@pytest.mark.parametrize(
    ("status", "name", "evidence"),
    [
        (9, "server-killed", "killed by signal [9 SIGKILL]"),
        (11, "server-crash", "killed by signal [11 SIGSEGV]"),
        (50, "server-crash", "killed by signal [50 50]"),  # one without a name
        (1, "server-crash", "killed by signal [1 SIGHUP]"),
        (0, "server-crash", "exit [0]"),
        (SELF_TEST_EXIT << 8, "self-test", f"exit [{SELF_TEST_EXIT}]"),
        (FAULT_EXIT << 8, "server-crash", f"exit [{FAULT_EXIT}]"),  # without last words
    ],
)
def test_ends_of_servers(status: int, name: str, evidence: str) -> None:
    fault = of_exit(status)
    assert (fault.name, fault.evidence) == (name, evidence)
    assert (fault.seq, fault.cut, fault.lasted, fault.undecided) == (0, 0, 0.0, False)


def test_an_error_of_the_device_is_one_only_by_both_signs() -> None:
    fault = of_exit(FAULT_EXIT << 8, FaultKind.DEVICE, 700, "words", 3, 4)
    assert fault == Fault(row_of("api", 700), f"API code [700], exit [{FAULT_EXIT}], words", 3, 4)
    assert "API code [0]" in of_exit(FAULT_EXIT << 8, FaultKind.DEVICE).evidence
    other = of_exit(DIVERGED_EXIT << 8, FaultKind.DEVICE, 700)
    assert (other.row.source, other.name, other.undecided) == ("exit", "diverged", False)
    assert of_exit(FAULT_EXIT << 8, FaultKind.UNDECIDED, 700).row.source == "exit"


def test_a_difference_is_undecided_only_if_it_says_so() -> None:
    assert of_exit(DIVERGED_EXIT << 8, FaultKind.UNDECIDED).undecided
    assert not of_exit(UNRECOVERABLE_EXIT << 8, FaultKind.UNDECIDED).undecided
    assert not of_exit(DIVERGED_EXIT << 8).undecided


def test_what_the_agent_notices_has_no_place_of_its_own() -> None:
    row = row_of("agent", "stuck")
    assert of_agent("stuck", "why") == Fault(row, "why", 0, 0, 0.0, False) == Fault(row, "why")
    assert of_agent("stuck", "why", 1, 2, 3.0) == Fault(row_of("agent", "stuck"), "why", 1, 2, 3.0)


def test_a_replay_of_shared_memory_proves_nothing() -> None:
    fault = of_shared_memory(of_exit(FAULT_EXIT << 8, FaultKind.DEVICE, 700, "", 3, 4))
    assert (fault.name, fault.seq, fault.cut) == ("unrecoverable", 3, 4)
    assert fault.evidence.startswith("API code [700]")
    assert fault.row.source == "exit"


def test_which_explanation_of_a_death_counts() -> None:
    programs = of_exit(FAULT_EXIT << 8, FaultKind.DEVICE, 700, "", 3, 4)
    killed = of_exit(9)
    lost = Fault(row_of("xid", 79), "Xid [79]")
    for replays_imports in (False, True):
        assert classify.weighed(killed, None, replays_imports) is killed
        assert classify.weighed(programs, lost, replays_imports) is lost
    assert classify.weighed(programs, None, replays_imports=False) is programs
    assert classify.weighed(programs, None, replays_imports=True) == of_shared_memory(programs)


def test_a_row_is_found_by_its_class() -> None:
    assert [row_named(row.name).name for row in classify.TABLE] == [r.name for r in classify.TABLE]


def test_limits() -> None:
    """What docs/operate/faults.md and messages promise: a change is a decision."""
    numbers = (blame.ATTEMPTS, blame.CRASHES, blame.REPEATS, blame.UNDECIDED)
    assert (blame.NOTICED_WITHIN, *numbers) == (4096, 8, 4, 16, 4)


@pytest.mark.parametrize(
    ("cut", "seq", "here"), [(1, 1, True), (1, 4196, True), (1, 4197, False), (2, 100, False)]
)
def test_the_same_place(cut: int, seq: int, here: bool) -> None:
    assert LogPosition(1, 100).is_here(of_agent("stuck", "", seq, cut)) is here


def test_a_place_moves_on_with_its_fault() -> None:
    """An error that is noticed later and later is at one place all the same, also earlier ones."""
    history = History()
    for seq in (100, 4000, 8000, 50, 12_000):
        history.judge(of_agent("replace", "", seq, 1))
    place = history.positions["ordered"]
    assert (place.cut, place.seq, place.times) == (1, 12_000, 5)


def verdicts(fault: Fault, times: int) -> list[blame.Verdict]:
    history, found = History(), []
    for _ in range(times):
        found.append(history.judge(fault))
        history.lived()
    return found


def test_verdicts_on_a_server_that_crashes_at_one_place() -> None:
    found = verdicts(of_exit(11, seq=5, cut=1), 4)
    assert found[:3] == [blame.Verdict(), SERIAL_ELSEWHERE, SERIAL_ELSEWHERE]
    assert found[3].give_up.startswith("the same fault [server-crash] has come [4] times")
    assert (found[3].mode, found[3].leave) == (Mode.NORMAL, False)


def test_verdicts_on_a_program_that_fails_at_one_place() -> None:
    found = verdicts(of_exit(FAULT_EXIT << 8, FaultKind.DEVICE, 700, seq=5, cut=1), 3)
    assert found == [blame.Verdict(), SERIAL_ELSEWHERE, blame.Verdict(Mode.DELIVER)]


def test_verdicts_on_ranks_that_wait_for_each_other_at_one_place() -> None:
    history = History()
    fault = of_agent("collective", "nothing moves", 5, 1)
    assert history.judge(fault, Mode.NORMAL) == blame.Verdict()
    assert history.judge(fault, Mode.NORMAL) == SERIAL_ELSEWHERE
    assert "has come [3] times" in history.judge(fault, Mode.SERIAL).give_up


def test_verdicts_on_products_that_differ_at_one_place() -> None:
    """The GPU has a strike each time; neither replay nor program is to blame."""
    *before, last = verdicts(of_exit(MISMATCH_EXIT << 8, seq=5, cut=1), 17)
    assert before == [blame.Verdict()] * 16
    assert "has come [17] times" in last.give_up


@pytest.mark.parametrize("sign", ["replace", "replica"])
def test_nothing_repeats_for_ever(sign: str) -> None:
    *before, last = verdicts(of_agent(sign, "", 5, 1), 17)
    assert before == [blame.Verdict(leave=sign == "replica")] * 16
    assert "has come [17] times" in last.give_up


def test_attempts_count_since_the_last_life() -> None:
    faults = [of_agent("replace", "", 5000 * number, number) for number in range(1, 10)]
    history = History()
    for _ in range(2):
        assert [history.judge(fault).give_up for fault in faults[:8]] == [""] * 8
        assert "[8] replacements in a row have failed" in history.judge(faults[8]).give_up
        history.lived()


def test_a_difference_in_a_replay_asks_for_one_entry_by_entry() -> None:
    fault = of_exit(DIVERGED_EXIT << 8, seq=5, cut=1)
    undecided = dataclasses.replace(fault, undecided=True)
    history = History()
    assert history.judge(fault) == SERIAL_ELSEWHERE
    assert history.judge(fault, Mode.SERIAL).give_up == fault.evidence
    history = History()
    found = [history.judge(undecided, Mode.SERIAL) for _ in range(5)]
    assert found[:4] == [SERIAL_ELSEWHERE] * 4
    assert found[4].give_up == fault.evidence


def test_a_snapshot_that_cannot_be_restored_is_tried_twice() -> None:
    first, second = verdicts(of_exit(UNRECOVERABLE_EXIT << 8, seq=5, cut=1), 2)
    assert first == blame.Verdict(Mode.SERIAL)
    assert second.give_up == f"exit [{UNRECOVERABLE_EXIT}]"
