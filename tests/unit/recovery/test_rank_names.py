"""Which number a client has, where no launcher says so."""

from __future__ import annotations

import pytest

from pyft.agent.members.ranks import Claim, how_many, leads, numbers, place_of, places


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


def test_how_many_there_are_is_said_by_a_launcher_or_a_communicator() -> None:
    assert how_many([claim(0, 10, 0), claim(1, 11, 1)]) == 0
    assert how_many([claim(0, 10, 0, (1, 2)), claim(1, 11, 1, (0, 4))]) == 4
    launched = [claim(0, 10, 0, RANK=0), claim(1, 11, 0, RANK=1)]
    assert how_many(launched) == 0
    launched = [Claim(0, 10, 0, {"RANK": "1", "WORLD_SIZE": "2"})]
    assert how_many(launched) == 2
    assert how_many([Claim(0, 10, 0, {"WORLD_SIZE": "2"})]) == 0


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


def after(claims: list[Claim], devices: int) -> dict[int, int]:
    """Return the numbers, and note for the next time where they are from."""
    found, held = numbers(claims, devices), places(claims)
    for one in claims:
        one.held = held.get(one.id, (0, 0))
    return found


def test_no_claim_takes_a_number_that_another_one_has() -> None:
    claims = [claim(0, 10, 0, (0, 2)), claim(1, 11, 1, (1, 2))]
    assert after(claims, 2) == {0: 0, 1: 1}
    for place in ((0, 2), (0, (1 << 20) - 1), (7, (1 << 20) - 1), (0, 3)):
        claims[1].place = place
        assert after(claims, 2) == {0: 0, 1: 1}
    claims.append(claim(2, 12, 2, (0, 2)))
    assert after(claims, 3) == {0: 0, 1: 1, 2: 2}
    claims[2].place = (0, 1 << 19)
    assert after(claims, 3) == {0: 0, 1: 1, 2: 2}
    with_rank = [claim(0, 10, 0, RANK=0), claim(1, 11, 1, (0, 2))]
    assert after(with_rank, 2) == {0: 0, 1: 1}


def test_a_larger_communicator_counts_when_all_are_in_it() -> None:
    claims = [claim(id, 10 + id, id, guessed=id) for id in range(4)]
    claims[0].place, claims[1].place = (1, 2), (0, 2)
    assert after(claims, 4) == {0: 1, 1: 0, 2: 2, 3: 3}
    for id, now in ((3, {0: 1, 1: 0, 2: 2, 3: 3}), (0, {0: 1, 1: 0, 2: 2, 3: 3})):
        claims[id].place = (3 - id, 4)
        assert after(claims, 4) == now
    claims[1].place = (2, 4)
    assert after(claims, 4) == {0: 3, 1: 2, 2: 4, 3: 0}
    claims[2].place = (1, 4)
    assert after(claims, 4) == {0: 3, 1: 2, 2: 1, 3: 0}


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (2, 2), (5, 0), (0, 1 << 20), (0, 0)])
def test_a_place_that_cannot_be_is_none(rank: int, size: int) -> None:
    assert place_of(size << 32 | rank) == (0, 0)


def test_a_place_is_read() -> None:
    assert place_of(4 << 32 | 3) == (3, 4)
