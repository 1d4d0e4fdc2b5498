"""Which number a client has, where no launcher says so."""

from __future__ import annotations

import pytest

from pyft.agent.members.ranks import Claim, leads, numbers, place_of


def claim(id: int, pid: int, device: int, place: tuple[int, int] = (0, 0), **more: object) -> Claim:
    environment = {name: str(more[name]) for name in ("RANK", "LOCAL_RANK") if name in more}
    return Claim(id, pid, device, environment, place, int(str(more.get("guessed", -1))))


def test_rank_in_the_environment_is_believed() -> None:
    claims = [claim(0, 10, 0, (0, 2), RANK=3), claim(1, 11, 0, (1, 2), RANK=1)]
    assert numbers(claims, 2) == {0: 3, 1: 1}


@pytest.mark.parametrize("text", ["", "x", "-1", "12345678"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert numbers([claim(0, 10, 1, RANK=text)], 2) == {0: 1}


def test_without_communicators_it_is_local_rank_or_the_device_or_a_free_number() -> None:
    assert numbers([claim(0, 10, 1), claim(1, 11, 0)], 2) == {0: 1, 1: 0}
    assert numbers([claim(0, 10, 0, LOCAL_RANK=1), claim(1, 11, 0, LOCAL_RANK=0)], 2) == {
        0: 1,
        1: 0,
    }
    shared = [claim(0, 10, 0), claim(1, 11, 0), claim(2, 12, 1)]
    assert numbers(shared, 2) == {0: 0, 1: 2, 2: 1}
    shared[1].guessed = 2
    assert numbers(shared[1:], 2) == {1: 2, 2: 1}, "it keeps the number when the other has ended"


def test_the_place_in_the_largest_communicator_counts() -> None:
    assert numbers([claim(0, 10, 0, (1, 2)), claim(1, 11, 1, (0, 2))], 2) == {0: 1, 1: 0}
    one_is_late = [claim(0, 10, 0, (1, 2), guessed=0), claim(1, 11, 1, guessed=1)]
    assert numbers(one_is_late, 2) == {0: 1, 1: 2}
    larger = [claim(id, 10 + id, id, (3 - id, 4), guessed=id) for id in range(4)]
    assert numbers(larger, 4) == {0: 3, 1: 2, 2: 1, 3: 0}


def test_equal_places_are_those_of_parts() -> None:
    parts = [claim(id, 10 + id, id, (id % 2, 2), guessed=id) for id in range(4)]
    assert numbers(parts, 4) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_devices_of_one_process_share_its_number_unless_each_has_a_place() -> None:
    assert numbers([claim(0, 10, 0), claim(1, 10, 1)], 2) == {0: 0, 1: 0}
    second = [claim(0, 10, 0), claim(1, 11, 0), claim(2, 11, 1, (1, 2)), claim(3, 10, 0, (0, 2))]
    assert numbers(second, 2) == {0: 0, 1: 1, 2: 1, 3: 0}
    assert [leads(c, second) for c in second] == [False, False, True, True]
    assert numbers([claim(0, 10, 0, (0, 2)), claim(1, 10, 1, (1, 2))], 2) == {0: 0, 1: 1}


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (2, 2), (5, 0), (0, 1 << 20), (0, 0)])
def test_a_place_that_cannot_be_is_none(rank: int, size: int) -> None:
    assert place_of(size << 32 | rank) == (0, 0)


def test_a_place_is_read() -> None:
    assert place_of(4 << 32 | 3) == (3, 4)
