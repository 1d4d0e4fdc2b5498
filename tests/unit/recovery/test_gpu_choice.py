"""Which GPU takes over a device, and whose word takes one away."""

from __future__ import annotations

import pytest

from pyft.recovery.gpus import Gpus, Strikes, Word


def own_word(rank: int, only: bool = False) -> Word:
    return Word(rank, own=True, only=only)


def test_a_gpu_can_take_over_a_device_unless_something_speaks_against_it() -> None:
    gpus = Gpus(devices=1, spares=3)
    gpus.lose(2, "it fell off")
    gpus.lose(2, "and again")
    gpus.drained.add(3)
    said = [gpus.why_not(gpu, in_use=set()) for gpu in range(5)]
    assert said == [
        "GPU [0] is in use",
        "",
        "GPU [2] is lost: it fell off",
        "GPU [3] is drained",
        "GPU [4] does not exist: there are [0, 1, 2, 3]",
    ]
    assert gpus.why_not(1, in_use={1}) == "GPU [1] is in use"
    gpus.add(7)
    assert gpus.why_not(9, in_use=set()).endswith("there are [0, 1, 2, 3, 7]")


def test_the_operator_brings_back_what_was_lost_or_drained() -> None:
    gpus = Gpus(devices=1, spares=2)
    gpus.lose(1, "why")
    gpus.drained.add(2)
    assert gpus.free(set()) == []
    for gpu in (1, 2, 7):
        gpus.add(gpu)
    assert gpus.free(set()) == [1, 2, 7]


def test_a_device_stays_where_it_is_while_it_can() -> None:
    gpus = Gpus(devices=2, spares=1)
    assert gpus.place(1, leave=False, in_use=set()) == 1
    assert gpus.place(1, leave=True, in_use=set()) == 2
    assert gpus.place(1, leave=True, in_use=set()) == 1, "the one that was left is free again"
    assert gpus.place(1, leave=True, in_use={2}) == 1, "without a spare it stays"
    gpus.lose(1, "why")
    assert gpus.place(1, leave=False, in_use={2}) is None


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_server_and_a_rank_are_two_witnesses(rank: int) -> None:
    strikes = Strikes(most=2)
    other = Word(rank, own=False, only=False)
    assert not strikes.add(5, 1, other)
    assert not strikes.add(5, 2, other), "one rank, twice"
    assert strikes.add(5, 3, None), "a server has found it"
    assert strikes.add(5, 4, other), "now there are two"


def test_a_rank_says_so_alone_of_one_gpu() -> None:
    strikes = Strikes(most=1)
    assert strikes.add(0, 1, own_word(7))
    strikes.left(0, own_word(7))
    assert not strikes.add(1, 2, own_word(7))
    assert strikes.add(2, 2, own_word(8)), "another rank has said nothing yet"
    strikes.clear(0)
    assert strikes.add(1, 3, own_word(7)), "the operator takes the first one for well"


def test_what_others_do_not_pay_for_is_not_counted_against_a_rank() -> None:
    strikes = Strikes(most=1)
    strikes.add(0, 1, own_word(7, only=True))
    strikes.left(0, own_word(7, only=True))
    assert strikes.add(1, 2, own_word(7)), "it was the only client then"
    strikes = Strikes(most=1)
    strikes.add(0, 1, own_word(7))
    strikes.add(0, 1, own_word(8))
    strikes.left(0, own_word(7))
    assert strikes.add(1, 2, own_word(7)), "two ranks have said so then"
    strikes = Strikes(most=1)
    strikes.add(0, 1)
    strikes.left(0, None)
    assert strikes.add(1, 2, own_word(7))


def test_a_gpu_is_left_when_it_has_computed_wrongly_often_enough_and_another_is_free() -> None:
    gpus = Gpus(devices=1, spares=1)
    assert gpus.struck(0, 1, None, in_use={0}) == ""
    assert gpus.struck(0, 2, None, in_use={0, 1}) == "", "none is free"
    assert gpus.struck(0, 3, None, in_use={0}) == "it has computed wrongly [3] times"
