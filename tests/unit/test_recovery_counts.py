"""How the end-to-end tests count recoveries: one more or one fewer than was asked for is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from recovery_run import check_deaths

Fault = dict[str, Any]


def killed(rank: int, outcome: str = "recovered", **other: str) -> Fault:
    evidence = "killed by signal [9 SIGKILL]"
    found = {"rank": rank, "fault": "server-killed", "evidence": evidence, "outcome": outcome}
    return found | other


def ended(rank: int) -> Fault:
    return killed(rank, fault="peer-failed", evidence="rank [0] has failed")


def report(*faults: Fault) -> dict:
    recovered = sum(fault["outcome"] == "recovered" for fault in faults)
    return {"faults": list(faults), "recovered": recovered, "given_up": 0}


@pytest.mark.parametrize(
    ("faults", "deaths", "others"),
    [
        ([killed(0), killed(1)], [1, 0], 0),
        ([killed(0, "failed again"), killed(0)], [0, 0], 0),
        ([killed(1), ended(0)], [1], 1),
    ],
)
def test_as_many_as_were_asked_for(faults: list[Fault], deaths: list[int], others: int) -> None:
    check_deaths(report(*faults), deaths, others=others)


@pytest.mark.parametrize(
    ("faults", "deaths", "others"),
    [
        ([killed(0), killed(0)], [0], 0),  # one recovery too many
        ([killed(0)], [0, 0], 0),
        ([killed(0), killed(1)], [0, 0], 0),
        ([killed(0), ended(1)], [0], 0),  # ended, though nobody goes back with others
        ([killed(1), ended(0), ended(0)], [1], 1),
        ([killed(0, fault="hang")], [0], 0),
        ([killed(0, evidence="exit code [70]")], [0], 0),
        ([killed(0), killed(0, "failed again")], [0, 0], 0),  # the last one was not recovered
        ([killed(0, "given up: why"), killed(0)], [0, 0], 0),
    ],
)
def test_anything_else_is_a_failure(faults: list[Fault], deaths: list[int], others: int) -> None:
    with pytest.raises(AssertionError):
        check_deaths(report(*faults), deaths, others=others)


def test_one_of_several_may_have_come_first() -> None:
    for found in ([killed(0)], [killed(1)], [killed(0), killed(1)]):
        check_deaths(report(*found), [0], [1], [0, 1])
    with pytest.raises(AssertionError):
        check_deaths(report(killed(1), killed(1)), [0], [1], [0, 1])


def test_the_report_counts_alike() -> None:
    with pytest.raises(AssertionError):
        check_deaths(report(killed(0)) | {"recovered": 2}, [0])
    with pytest.raises(AssertionError):
        check_deaths(report(killed(0)) | {"given_up": 1}, [0])


def test_replicas_seem_to_differ_only_where_that_may_be() -> None:
    doubted = [killed(rank, fault="replica", evidence="other contents") for rank in (0, 1)]
    check_deaths(report(killed(0), *doubted), [0], compared=False)
    with pytest.raises(AssertionError):
        check_deaths(report(killed(0), *doubted), [0])
    with pytest.raises(AssertionError):
        check_deaths(report(killed(0), *doubted, *doubted), [0], compared=False)
