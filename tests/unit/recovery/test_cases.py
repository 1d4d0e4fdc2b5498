"""Whom a disagreement makes suspect, what replays say, and which replica keeps a block."""

from __future__ import annotations

import ast
import json
from importlib.resources import files

import pytest

from pyft.recovery.assignment import Assignment
from pyft.recovery.case import UNSETTLED, Case, Contents
from pyft.recovery.line import ENDED, NOT_MADE, Line, lines_of, note_of
from pyft.recovery.rank import Rank, State

ONE, TWO = (0, 64), (64, 64)


def case(**contents: str) -> Case:
    """Return a case about cut 5; `one`, `two`: what ranks 0, 1, … had, a dot: it has no such block."""
    keys = {"one": ONE, "two": TWO}
    differing = {
        keys[name]: {id: had.encode() for id, had in enumerate(text) if had != "."}
        for name, text in contents.items()
    }
    return Case.of(5, differing)


def test_the_hook_of_pytorch_names_what_is_not_settled_alike() -> None:
    """It runs in the program, which may not have this module."""
    hook = ast.parse((files("pyft") / "torch_support/site/sitecustomize.py").read_text())
    (said,) = (
        value
        for node in ast.walk(hook)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
        if isinstance(node.value, ast.Tuple)
        for name, value in zip(node.targets[0].elts, node.value.elts, strict=False)
        if isinstance(name, ast.Name) and name.id == "unsettled"
    )
    assert eval(compile(ast.Expression(said), "hook", "eval")) == UNSETTLED


def test_of_a_rank_that_came_to_no_cut_nothing_is_known() -> None:
    assert Contents() == Contents(table={}, entry=0, since={})


@pytest.mark.parametrize(
    ("contents", "suspects"),
    [
        ({"one": "aab"}, (2,)),
        ({"one": "abb"}, (0,)),
        ({"one": "ab"}, (0, 1)),
        ({"one": "abc"}, (0, 1, 2)),
        ({"one": "aabb"}, (0, 1, 2, 3)),  # half of them are no majority
        ({"one": "aab", "two": "baa"}, (0, 2)),
        ({"one": "aab.", "two": "..ab"}, (2, 3)),
    ],
)
def test_who_is_not_with_more_than_half_is_suspected(
    contents: dict[str, str], suspects: tuple[int, ...]
) -> None:
    assert case(**contents).suspects == suspects


def test_of_each_suspect_is_kept_what_it_had() -> None:
    found = case(one="aab.", two="..ab")
    assert found.first == {2: {ONE: b"b", TWO: b"a"}, 3: {TWO: b"b"}}
    assert (found.key, found.keys) == (ONE, {ONE, TWO})


def test_a_replay_that_gives_one_other_block_convicts() -> None:
    found = case(one="aab", two="aab")
    assert found.take(2, {ONE: b"b", TWO: b"a"}) is True
    assert found.verdict() == ((2,), True)


def test_a_replay_that_gives_the_same_acquits() -> None:
    found = case(one="aab", two="aab")
    assert found.take(2, {ONE: b"b"}) is True, "the other block may have been freed"
    assert found.verdict() == ((), True)


def test_a_replay_without_these_blocks_says_nothing() -> None:
    found = case(one="aab")
    assert found.take(2, {TWO: b"b"}) is True
    assert found.verdict() == ((), False)


def test_one_that_is_found_guilty_is_enough_although_another_says_nothing() -> None:
    found = case(one="ab")
    assert found.take(0, {}) is False
    assert found.take(1, {ONE: b"a"}) is True
    assert found.verdict() == ((1,), True)


def test_whose_servers_are_still_to_be_ended() -> None:
    found = case(one="abc")
    assert found.unheeded() == (0, 1, 2)
    found.replaying.add(0)
    found.take(1, {})
    assert found.unheeded() == (2,)
    assert [found.waits_for(id) for id in range(4)] == [True, False, True, False]


def test_the_next_agent_has_the_same_case() -> None:
    found = case(one="abc", two="aab")
    found.replaying |= {0, 2}
    found.take(0, {})
    found.take(2, {ONE: b"a"})
    assert Case.restored(json.loads(json.dumps(found.note()))) == found


# ---- who keeps a block ---------------------------------------------------------------------------


def test_blocks_worth_dividing_are_ordered_by_size_then_place() -> None:
    large, left, right, small = (300, 9), (100, 5), (200, 5), (400, 4)
    holders = [(right, {0, 1}), (small, {0, 1}), (left, {2, 3}), (large, {0, 1}), (left, {0, 5})]
    ordered = Assignment(least_bytes=5).shared(holders, apart=set())
    assert ordered == [(large, {0, 1}), (left, {0, 5}), (left, {2, 3}), (right, {0, 1})]


def test_what_one_rank_has_alone_or_what_is_not_the_same_is_not_divided() -> None:
    assert Assignment().shared([(ONE, {0}), (TWO, {0, 1})], apart={TWO}) == []


def test_who_has_kept_a_block_keeps_it() -> None:
    assignment = Assignment()
    assert assignment.divide([(ONE, {1, 2})]) == {2: {ONE: 1}}
    assert assignment.divide([(ONE, {0, 1, 2})]) == {0: {ONE: 1}}
    assert assignment.divide([(ONE, {0, 2})]) == {2: {ONE: 0}, 0: {}}, "that one has it no more"


def test_who_keeps_less_takes_the_next_block() -> None:
    assignment = Assignment()
    sizes = {0: 9, 10: 5, 20: 3, 30: 2, 40: 1}
    rows = assignment.divide([((at, size), {0, 1}) for at, size in sizes.items()])
    assert {at for at, _ in rows[1]} == {0, 40}, "rank 0 keeps these"
    assert {at for at, _ in rows[0]} == {10, 20, 30}


# ---- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "others", "behind"),
    [
        (Line(0, 4), Line(1, 4), False),
        (Line(0, 4), Line(1, 5), True),
        (Line(0, 5), Line(1, 4), False),
        (Line(0, 4, received={1: 2}), Line(1, 4, sent={0: 2}), False),
        (Line(0, 4, received={1: 1}), Line(1, 4, sent={0: 2}), True),
        (Line(0, 4, sent={1: 2}), Line(1, 4, received={0: 2}), False),
        (Line(0, 4, sent={1: 1}), Line(1, 4, received={0: 2}), True),
        (Line(0, 4), Line(1, 4, sent={0: 1}), True),
        (Line(0, 4), Line(1, 4, received={0: 1}), True),
        (Line(0, 4, sent={1: 1}), Line(1, 4), False),
        (Line(0, 4, received={1: 1}), Line(1, 4), False),
        (Line(0, 4), Line(1, 4, sent={2: 9}, received={2: 9}), False),
    ],
)
def test_who_lacks_what_the_other_one_has_done_with_it_is_behind(
    mine: Line, others: Line, behind: bool
) -> None:
    assert mine.is_behind(others) is behind


def test_lines_are_noted_whole() -> None:
    lines = {7: Line(0, 4, {1: 3}, {1: 2}), 8: Line(2, 5)}
    assert lines_of(json.loads(json.dumps(note_of(lines)))) == lines
    assert lines_of(note_of(None)) is None


def test_what_stands_for_a_number_of_collectives_fits_into_64_bits() -> None:
    lines = {7: Line(0, NOT_MADE), 8: Line(0, ENDED)}
    assert note_of(lines) == [[7, 0, -1, [], []], [8, 0, 2**62, [], []]]


# ---- ranks ---------------------------------------------------------------------------------------


def test_in_which_states_a_rank_may_have_a_server() -> None:
    assert Rank(0, 0, 0, 0, 1).state is State.RUNNING
    having = {state for state in State if Rank(0, 0, 0, 0, 1, state).has_server}
    assert having == {State.RUNNING, State.FENCING, State.RECOVERING}
