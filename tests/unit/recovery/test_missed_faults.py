"""Why a fault that was asked for has not happened, and which cannot: one reason each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_requests import account, noted, why  # noqa: E402

from pyft.errors import UsageError  # noqa: E402
from pyft.recovery.inject import parse  # noqa: E402
from pyft.recovery.requests import (  # noqa: E402
    MOST_SEEN,
    MOST_TOLD,
    NUMBERS,
    Requests,
    Seen,
    check,
)

HINT = " (a cut follows each step of an optimizer of torch.optim)"


def told(text: str, seen: Seen) -> Requests:
    """Return the account of a fault of which a server was told, whose rank came that far."""
    requests = account(text)
    requests.all[0].tell(7, 1)
    requests.saw(7, seen)
    return requests


def test_of_a_new_member_nothing_is_known() -> None:
    assert Seen() == Seen(rank=0, servers=0, cuts=0, place=(0, 0, 0))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("server-kill,rank=0,step=5,call=9", (4, 3, 0), f"made [4] cuts, and came to [3] entries after that{HINT}"),
        ("server-kill,rank=0,step=5,call=9", (5, 3, 3), "made [5] cuts: only [3] entries follow cut [5]"),
        ("server-kill,rank=0,call=9", (0, 3, 3), "made [0] cuts: only [3] entries follow cut [0]"),
        ("server-kill,rank=0,step=1", (0, 3, 0), f"made [0] cuts, and came to [3] entries after that{HINT}"),
    ],
)  # fmt: skip
def test_how_far_a_server_came_that_looked_for_the_place(
    text: str, place: tuple[int, int, int], reason: str
) -> None:
    requests = told(text, Seen(0, 1, place[0], place))
    assert why(requests) == [f"server [1] of rank [0] {reason}"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hang,rank=0", "a launch"),
        ("hang,rank=0,call=4", "its [4]th launch after that"),
        ("bitflip,rank=0", "a launch, or one that changes anything,"),
    ],
)
def test_a_gpu_that_was_told_had_too_few_launches(text: str, what: str) -> None:
    assert why(told(text, Seen(0, 1, 9))) == [
        f"the GPU of server [1] of rank [0] was told, and {what} did not come before the server ended"
    ]


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_server_that_ended_first(cuts: int) -> None:
    requests = account(f"hang,rank=0,step={cuts}")
    requests.saw(7, Seen(0, 1, cuts))
    made = "[1] cut" if cuts == 1 else "[2] cuts"
    assert why(requests) == [
        "server [1] of rank [0] ended, or was replaced, before it came to that place: its rank had "
        f"[1] servers and made {made}"
    ]


def test_a_server_looks_for_one_place_at_a_time() -> None:
    requests = account("server-kill,rank=0,step=5", "server-kill,rank=0,step=9")
    assert requests.of_server(0, 1) == requests.all[:1]
    requests.all[0].tell(7, 1)
    requests.saw(7, Seen(0, 1, 20, (20, 0, 0)))
    assert why(requests)[1] == "server [1] of rank [0] looks for another fault's place"
    requests.look(7, noted(0), [1])
    assert requests.of_server(0, 1) == requests.all[1:]


def test_a_rank_came_as_far_as_its_last_server() -> None:
    requests = account("hang,rank=1,step=30")
    requests.saw(6, Seen(1, 2, 4))
    requests.saw(7, Seen(1, 1, 20))
    requests.saw(8, Seen(0, 3, 25))
    assert why(requests) == [f"rank [1] made [4] cuts{HINT}"]
    requests.saw(9, Seen(1, 2, 5))
    assert why(requests) == [f"rank [1] made [5] cuts{HINT}"]


def test_who_came_furthest_is_known_however_many_follow() -> None:
    requests = account("hang,rank=1,step=60")
    requests.saw(7, Seen(1, 1, 40))
    for member in range(8, 8 + MOST_SEEN):
        requests.saw(member, Seen(1, 1, 3))
    assert why(requests) == [f"rank [1] made [40] cuts{HINT}"]


def test_faults_that_have_happened_keep_nobody_known() -> None:
    requests = account("hang,rank=1,step=60", *["slow,rank=0"] * -(-MOST_SEEN // MOST_TOLD))
    requests.saw(7, Seen(1, 1, 40))
    for number in range(MOST_SEEN):
        one = requests.all[1 + number // MOST_TOLD]
        one.tell(8 + number, 1)
        one.done = True
        requests.saw(8 + number, Seen(0, 1, 3))
    assert why(requests) == [f"rank [1] made [40] cuts{HINT}"]


def test_what_waits_for_its_place_is_bounded() -> None:
    requests = account(*["hang,rank=0"] * NUMBERS)
    with pytest.raises(UsageError, match=r"\[256\] faults that were asked for have not happened"):
        requests.add(parse("hang,rank=0"), by_agent=True)
    assert len(requests.all) == NUMBERS


def test_one_that_is_refused_leaves_its_number_to_the_next() -> None:
    requests = account("hang,rank=0", "hang,rank=1", "hang,rank=2")
    requests.drop(requests.all[1])
    assert [str(one.injection) for one in requests.all] == [f"hang,rank={n}" for n in range(3)]
    assert requests.happened() == [1], "the numbers of those behind it stay"
    requests.drop(requests.all[2])
    assert len(requests.all) == 2
    assert requests.add(parse("ecc,rank=0"), by_agent=True).number == 1


def test_the_agent_looks_for_those_of_which_no_server_knows() -> None:
    requests = account("hang,rank=0", "server-kill,rank=0,step=3", "ecc,rank=0", "slow,rank=0")
    requests.all[2].tell(7, 1)
    requests.all[3].done = True
    assert requests.waiting() == requests.all[:1]


def test_a_fault_that_was_noted_may_come_before_its_server_ends() -> None:
    for kind, ended, happened in (
        ("slow", [], [0]),
        ("hang", [], []),
        ("hang", [1], [0]),
        ("hang", [2], []),
    ):
        requests = told(f"{kind},rank=0", Seen(0, 1))
        requests.look(7, noted(0), ended)
        assert requests.happened() == happened, (kind, ended)
        requests.look(7, noted(), [])
        assert requests.happened() == happened, "what has happened stays so"


def test_as_many_faults_may_be_asked_for_as_have_a_number() -> None:
    check([parse("slow,rank=0")] * NUMBERS, "snapshot")


def test_without_protection_a_fault_may_come_before_any_cut() -> None:
    check([parse("sticky,rank=0,step=0"), parse("sticky,rank=1,call=3")], "none")
    with pytest.raises(UsageError, match="only server-kill has a step"):
        check([parse("sticky,rank=0,step=1")], "none")
