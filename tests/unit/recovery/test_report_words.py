"""What a report says of faults: numbers, words, and the table at the end of a job."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pyft.recovery import report
from pyft.recovery.report import Incident


def fault(began: float = 1.0, **more: object) -> Incident:
    fields = {"rank": 3, "device": 0, "fault": "gpu-lost", "evidence": "", "gpu_from": 0}
    return Incident(**(fields | {"began": began, "noticed": began} | more))


def recovered(began: float, ended: float, **more: object) -> Incident:
    found = fault(began, **more)
    found.finish("recovered", ended)
    return found


# ---- numbers -------------------------------------------------------------------------------------


def test_of_a_new_fault_nothing_is_known_yet() -> None:
    new = Incident(3, 1, "gpu-lost", "it fell off", 1.5, 2.0)
    numbers = {name: value for name, value in vars(new).items() if value not in ("", {})}
    assert numbers.pop("fault") == "gpu-lost"
    assert numbers.pop("evidence") == "it fell off"
    for name, value in (("rank", 3), ("device", 1), ("began", 1.5), ("noticed", 2.0)):
        assert numbers.pop(name) == value
    assert (numbers.pop("gpu_from"), numbers.pop("gpu_to")) == (-1, -1), "0 is a GPU"
    assert (numbers.pop("mode"), numbers.pop("outcome")) == ("normal", "under way")
    assert set(numbers.values()) == {0}


def test_the_user_has_waited_since_all_was_well() -> None:
    assert recovered(1.5, 3.25).total_ms == 1750
    assert recovered(1.0, 1.0123456).total_ms == 12.346


def test_a_phase_that_began_before_its_time_takes_none() -> None:
    """Servers that stood by have started before the fault, and a phase may end after all."""
    ns = 1_000_000_000
    phases = report.phases_of(1.0, 2.0, 3.0, 9.0, (12 * ns, ns, 4 * ns, 0, 0, 5 * ns, 0, 0))
    assert phases == {
        "detect": 1000,
        "fence": 1000,
        "wait": 0,
        "spawn": 1000,
        "restore": 1000,
        "communicator": 0,
        "replay": 4000,
        "join": 0,
    }
    assert report.phases_of(1.0, 1.0123456, 2.0, 2.0, (0,) * 8)["detect"] == 12.346
    late = report.phases_of(1.0, 1.0, 1.0, 9.0, (0, 5 * ns, 2 * ns, 0, 0, 0, 0, 0))
    assert (late["spawn"], late["restore"]) == (5000, 3000), "it starts after it has restored"


def test_what_is_lost_is_the_time_in_which_one_at_least_did_not_work() -> None:
    inside = [recovered(1, 9), recovered(2, 3), recovered(4, 5)]
    assert report.lost_seconds(inside, 20.0) == 8
    apart = [recovered(6, 7), recovered(1, 2)]
    assert report.lost_seconds(apart, 20.0) == 2
    assert report.lost_seconds([fault(15)], 20.0) == 5, "it is not over yet"
    assert report.lost_seconds([], 20.0) == 0


def test_sums_of_a_job() -> None:
    given_up = fault(3, outcome="given up: no GPU")
    given_up.ended = 4.0
    delivered = recovered(5, 6, own_error=True)
    delivered.outcome = report.DELIVERED
    again = [recovered(6, 6 + 1 / 3, own_error=True) for _ in range(2)]
    found = report.summary([recovered(1, 2), given_up, delivered, *again], 10.0, restarts=2)
    sums = {name: value for name, value in found.items() if name != "faults"}
    assert sums == {
        "recovered": 1,
        "own_errors": 1,
        "came_again": 2,
        "given_up": 1,
        "lost_seconds": 3.333333,
        "goodput": 0.666667,
        "seconds": 10.0,
        "verdict": "",
        "agent_restarts": 2,
    }
    assert [one["rank"] for one in found["faults"]] == [3] * 5
    assert report.summary([], 0.0)["goodput"] == 1.0, "it has not begun"
    assert report.summary([], 0.0)["agent_restarts"] == 0
    assert report.summary([], 0.5)["goodput"] == 1.0
    assert report.summary([recovered(0, 0.25)], 0.5)["goodput"] == 0.5


def test_what_is_counted_in_parts_is_lost_once() -> None:
    sums = report.Sums()
    sums.take([recovered(1, 4), recovered(2, 3)], 10.0)
    assert (sums.lost_seconds, sums.until) == (3.0, 4.0)
    sums.take([recovered(3, 6)], 10.0)
    assert (sums.lost_seconds, sums.until) == (5.0, 6.0)
    sums.take([recovered(4, 5)], 10.0)
    assert (sums.lost_seconds, sums.until) == (5.0, 6.0), "it was over before"
    sums.take([fault(7)], 8.0)
    assert (sums.lost_seconds, sums.until) == (6.0, 8.0), "it is not over yet"


def test_a_fault_is_known_by_when_and_where_it_was() -> None:
    one = asdict(fault(1.0, epoch_from=2))
    assert report.key_of(one) == report.key_of({**one, "outcome": "recovered", "ended": 3.0})
    for other in ({"noticed": 1.5}, {"rank": 4}, {"device": 1}, {"epoch_from": 3}):
        assert report.key_of(one) != report.key_of({**one, **other})


def test_shares_are_rounded_to_microseconds() -> None:
    assert report.shares(1 / 3, 2 / 3) == {
        "lost_seconds": 0.333333,
        "goodput": 0.5,
        "seconds": 0.666667,
    }


@pytest.mark.parametrize(
    ("ends", "lost"), [([2.0, 4.0], 2.0), ([2.0, 0.0], 7.0)], ids=["all work", "one waits"]
)
def test_what_was_found_is_brought_up_to_now(ends: list[float], lost: float) -> None:
    faults = [recovered(1, 2), fault(3)]
    for one, end in zip(faults, ends, strict=True):
        one.ended = end
    found = report.summary(faults, 4.0)
    assert found["lost_seconds"] == 2.0
    now = report.later(found, 5.0)
    assert (now["lost_seconds"], now["seconds"]) == (lost, 9.0)
    assert now["goodput"] == round(1 - lost / 9, 6)
    assert now["faults"] == found["faults"]


def test_faults_before_those_that_are_listed_are_counted() -> None:
    earlier = [
        {"fault": "gpu-lost", "rank": 0, "count": 5, "own_errors": 2},
        {"fault": "server-killed", "rank": 1, "count": 4, "own_errors": 0},
    ]
    found = report.summary([recovered(1, 2)], 10.0) | {"earlier": earlier}
    assert report.number_of_faults(found) == 5 + 4 - 2 + 1
    head, note, row, *_ = report.table(found)
    assert head.split()[:3] == ["at", "s", "rank"]
    assert note == "[9] faults before these are only counted"
    assert row.split()[:3] == ["1.00", "3", "gpu-lost"]


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        (["exact", ""], "exact"),
        (["exact", "equivalent"], "equivalent"),
        (["corrected", "equivalent"], "corrected"),
        (["unknown", "corrected"], "unknown"),
        (["unknown", "diverged"], "diverged"),
    ],
)
def test_the_worst_verdict_is_the_jobs(verdicts: list[str], worst: str) -> None:
    faults = [recovered(1, 2, verdict=verdict) for verdict in verdicts]
    assert report.summary(faults, 10.0)["verdict"] == worst


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0004, "0 ms"), (0.999, "999 ms"), (1, "1.0 s"), (1.5, "1.5 s")]
)
def test_a_length_of_time_in_words(seconds: float, words: str) -> None:
    assert report.span(seconds) == words


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"differed": 0}, "exact"),
        ({"differed": 2}, "equivalent"),
        ({"differed": 2, "corrected": 1}, "corrected"),
        ({"differed": 2, "corrected": 1, "shared": 1}, "unknown"),
        ({"differed": 0, "shared": 1}, "unknown"),
    ],
)
def test_how_a_replay_compared(numbers: dict[str, int], verdict: str) -> None:
    assert report.verdict(**numbers) == verdict


def test_what_a_verdict_rests_on() -> None:
    shares = fault(verdict="unknown", compared=9)
    assert report.in_words(shares) == (
        "unknown: it shares memory with other processes, and what they write is in no log; "
        "[0] of [9] values differ"
    )
    right = fault(verdict="corrected", differed=1, corrected=1, corrected_text="entry [5] gives 7")
    assert report.in_words(right) == (
        "corrected: the program was told [1] wrong value before the fault, by silent corruption or "
        "from memory that it had not written, and goes on with what is right: entry [5] gives 7"
    )
    same = fault(verdict="equivalent", compared=9, differed=2, differed_seq=7)
    assert report.in_words(same) == (
        "equivalent: valid, not bit-identical, [2] of [9] values differ, the first at entry [7]"
    )


# ---- the end of a job ----------------------------------------------------------------------------


def rows(*faults: Incident, restarts: int = 0) -> list[list[str]]:
    """Return the cells of the table, and its last line as one."""
    *lines, last = report.table(report.summary(list(faults), 10.0, restarts))
    return [*(line.split() for line in lines[1:]), [last]]


def test_a_row_tells_what_was_done() -> None:
    moved = recovered(
        1.0,
        1.25,
        gpu_from=1,
        gpu_to=2,
        epoch_from=3,
        epoch_to=4,
        phases_ms=dict.fromkeys(report.PHASES, 2.0),
        restored_bytes=1_500_000,
        replayed_entries=7,
        verdict="exact",
    )
    assert rows(moved)[0] == [
        *("1.00", "3", "gpu-lost", "1>2", "3>4", "250", "ms"),
        *("1.5", "7", "recovered,", "exact"),
    ]
    title, head, phases = rows(moved)[1:-1]
    assert title == ["their", "phases", "in", "ms:"]
    assert head == ["at", "s", "rank", *report.PHASES]
    assert phases == ["1.00", "3", *["2.0"] * len(report.PHASES)]


def test_a_row_leaves_out_what_is_not_known() -> None:
    for gpu_to in (-1, 0):
        (row, _) = rows(fault(2.0, gpu_to=gpu_to))
        assert row == ["2.00", "3", "gpu-lost", "0", "-", "0.0", "0", "under", "way"]
    (*_, phases, _) = rows(fault(2.0), recovered(3.0, 4.0, phases_ms={"wait": 500.0}))
    assert phases == ["3.00", "3", "-", "-", "500.0", *["-"] * 5]
    (row, _) = rows(fault(2.0, gpu_from=0, gpu_to=1, outcome="given up: no GPU is left"))
    assert (row[3], row[-2:]) == ("0>1", ["given", "up"])


def test_an_error_of_the_program_that_came_again_was_not_recovered() -> None:
    again, delivered = recovered(1, 2, own_error=True), recovered(2, 3, own_error=True)
    delivered.outcome = report.DELIVERED
    first, second, _, last = rows(again, delivered, recovered(4, 5))
    assert first[-2:] == ["came", "again"]
    assert second[-2:] == ["error", "delivered"]
    assert last[0].startswith("1 of 1 recovered, errors of the program itself: 1, goodput 0.7000")


def test_a_terminal_has_room_for_the_table() -> None:
    long = {"fault": "memory-contained", "epoch_from": 1234, "epoch_to": 1235}
    long |= {"gpu_to": 1, "restored_bytes": 10**11, "replayed_entries": 10**7}
    phases = dict.fromkeys(report.PHASES, 21_112.7)
    slow = recovered(90_000.5, 90_999.5, verdict="equivalent", phases_ms=phases, **long)
    table = report.table(report.summary([slow], 99_999.0))
    assert len(table) == 6
    assert max(map(len, table)) <= 120


def test_the_columns_stand_below_each_other() -> None:
    table = report.table(report.summary([recovered(1, 2), recovered(3000, 3001)], 9000.0))
    assert len({len(line) for line in table[:3]}) == 1


def ended(*faults: Incident, restarts: int = 0, missed: int = 0) -> list[str]:
    found = report.summary(list(faults), 10.0, restarts)
    found["not_injected"] = [{"fault": f"hang,rank={n}", "why": "why"} for n in range(missed)]
    return report.at_end(found)


def test_a_job_without_faults_ends_without_words() -> None:
    assert ended() == []


def test_what_is_said_when_a_job_ends() -> None:
    (said,) = ended(recovered(1, 2))
    head, *table = said.split("\n")
    assert head == "faults of this job:"
    assert table[-1] == "1 of 1 recovered, goodput 0.9000, 1.000 s lost"
    assert ended(restarts=2) == [
        "0 of 0 recovered, goodput 1.0000, 0.000 s lost, agent restarted [2] times"
    ]
    assert ended(missed=2) == [f"the fault [hang,rank={n}] did not happen: why" for n in (0, 1)]
    assert len(ended(recovered(1, 2), restarts=1, missed=1)) == 2


def test_what_counts_as_a_fault() -> None:
    assert report.number_of_faults({}) == report.number_of_faults({"faults": None}) == 0
    faults = [{}, {"own_error": False}, {"own_error": True}]
    assert report.number_of_faults({"faults": faults}) == 2
    assert report.counts({"faults": [], "recovered": 0}) == "0 of 0 recovered"


def test_tries_before_it_was_known_for_the_programs_own() -> None:
    """All that follow one another, back to the first that came from another place."""
    tries = [recovered(n, n + 1, cut=cut) for n, cut in enumerate((7, 6, 7, 3, 7))]
    tries[3].outcome = "failed again"
    report.mark_own_error(tries)
    assert [one.own_error for one in tries] == [False, False, True, True, True]
