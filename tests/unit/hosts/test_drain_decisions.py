"""What the head decides of a drain, one thing at a time: orders, undoing, who may end, who is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_drains import LEASE, Job  # noqa: E402

from pyft.cli import hosts  # noqa: E402
from pyft.hosts.head.decisions import ABSENT_S, Phase, Say  # noqa: E402
from pyft.hosts.head.drains import Drains  # noqa: E402
from pyft.hosts.head.places import Facts  # noqa: E402
from pyft.hosts.head.told import told  # noqa: E402


def ordered(spares: int = 1) -> Job:
    """Return a job of which host h1 is to be drained."""
    job = Job(spares)
    assert job.head.drain(job.now, "h1") == ""
    job.perform()
    return job


def until(job: Job, kind: str) -> Job:
    """Let things happen until an entry of this kind is in the ledger."""
    for _ in range(500):
        if kind in kinds(job):
            return job
        if not job.step():
            job.pass_time()
    raise AssertionError(f"no [{kind}] in {job.ledger}")


def kinds(job: Job) -> list[str]:
    """Return the kinds of its entries."""
    return [entry["kind"] for entry in job.ledger]


def standing(copied: int = 2, spares: int = 1) -> Job:
    """Return a job whose places stand at the line to be; so many have their image whole."""
    job = until(ordered(spares), "image")
    for _ in range(500):
        if sum(place.copied for place in job.head.facts.places.values()) == copied:
            assert job.head.phase is Phase.DUMP
            return job
        job.step()
    raise AssertionError(job.ledger)


def says(head: Drains) -> list[tuple[tuple[str, int | str], str, dict[str, Any]]]:
    """Return what the head says now."""
    return [(one.to, one.kind, one.values) for one in head.taken() if isinstance(one, Say)]


def to_agents(kind: str, **values: Any) -> list[tuple[tuple[str, int | str], str, dict[str, Any]]]:
    """Return a message to all agents."""
    return [(("agent", place), kind, values) for place in range(2)]


# ---- a drain that is called off ------------------------------------------------------------------


def test_a_cancelled_drain_leaves_all_where_they_are() -> None:
    job = ordered()
    assert job.head.cancel(job.now, "h1") == ""
    assert job.head.facts.drains["h1"] == (False, "it was cancelled")
    job.perform()
    until(job, "line")
    job.settle()
    assert [place.host for place in job.head.facts.places.values()] == ["h0", "h1"]
    assert "back" not in kinds(job)
    assert job.hosts["h1"].over is None


def test_all_go_on_at_once_when_they_stand_for_a_drain_that_is_called_off() -> None:
    """Else they would stand until the copies have arrived, for nothing."""
    job = standing()
    assert job.head.cancel(job.now, "h1") == ""
    assert says(job.head) == to_agents("release", why="", number=0)
    assert job.head.phase is Phase.RUN
    until(job, "line")  # the image counts all the same
    assert "leave" not in kinds(job)


def test_a_place_leaves_after_a_copy_that_a_host_names_when_it_calls_again() -> None:
    """Else all stand still until the deadline."""
    job = standing()
    number = job.head.facts.number
    job.head.facts.spares["s0"].images = {(0, number), (1, number)}  # of its hello
    job.head.tick(job.now)
    assert job.head.facts.line == number
    assert job.head.facts.places[1].leaving


def test_nobody_goes_on_before_the_images_are_whole() -> None:
    job = standing(copied=1)
    assert job.head.cancel(job.now, "h1") == ""
    assert says(job.head) == []
    assert job.head.phase is Phase.DUMP
    job.head.copied(job.now, 1, job.head.facts.number)
    assert says(job.head) == to_agents("release", why="", number=0)


def test_a_drain_that_is_called_off_in_a_hold_does_not_end_the_hold() -> None:
    job = ordered()
    while job.head.phase is not Phase.HOLD:
        job.pass_time()
    assert job.head.cancel(job.now, "h1") == ""
    assert says(job.head) == []
    assert job.head.phase is Phase.HOLD


def test_who_stands_at_a_line_goes_on_when_a_place_has_ended_meanwhile() -> None:
    """It cannot come back to that line, so nothing may leave."""
    job = standing()
    job.head.done(0, 0)
    job.perform()
    job.head.have("s0", 0, job.head.facts.number)
    job.head.have("s0", 1, job.head.facts.number)
    assert job.head.facts.line == job.head.facts.number
    assert [said for said in says(job.head) if said[0][0] == "agent" and said[1] == "release"]
    assert job.head.phase is Phase.RUN
    assert not job.head.facts.places[1].leaving


# ---- what cannot be drained -----------------------------------------------------------------------


def test_a_host_with_two_places_is_not_drained() -> None:
    head = Drains(Facts(2), LEASE)
    for place in range(2):
        assert head.claim(0.0, place, "h0", 0) == ""
    head.spare(0.0, "s0", "10.0.0.9", 1000)
    assert head.drain(0.0, "h0") == "host [h0] has places [0, 1]: one can be moved only"


def test_a_host_that_takes_a_place_is_not_drained_yet() -> None:
    job = Job(spares=2)
    until(job, "line")
    job.lose(job.hosts["h1"])
    for host in ("s0", "s1"):
        job.hosts[host].hears.clear()
    while "chosen" not in kinds(job):
        job.pass_time()
    taker = job.head.facts.places[1].host
    why = f"host [{taker}] is taking place [1]: try again after that"
    assert job.head.drain(job.now, taker) == why
    assert job.head.facts.drain is None


def test_hosts_that_have_not_come_are_not_named() -> None:
    head = Drains(Facts(2), LEASE)
    head.claim(0.0, 1, "h1", 0)
    assert head.drain(0.0, "h9") == "host [h9] is none of this job: places are on ['h1']"


def test_a_job_that_fails_drains_nobody_and_says_why() -> None:
    job = Job()
    job.head.done(0, 7)
    why = "the job has ended: the command of place [0] has ended with [7]"
    assert job.head.drain(job.now, "h1") == why


def test_a_spare_host_whose_lease_has_ended_is_none() -> None:
    job = Job()
    assert "no spare host is there" in job.head.drain(job.now + LEASE, "h1")
    assert job.head.drain(job.now + LEASE - 0.1, "h1") == ""


# ---- waiting for a spare host ---------------------------------------------------------------------


def keep(head: Drains, now: float) -> None:
    """Have both hosts renew their leases, and look."""
    for place in range(2):
        head.renew(now, place, f"h{place}", 1)
    head.tick(now)


def test_a_spare_host_may_be_away_for_a_while() -> None:
    """From when it was there last: also where that was when the drain was asked for."""
    job = Job()
    head = job.head
    head.facts.spares["s0"].lease = 1000.5
    assert head.drain(1000.0, "h1") == ""
    for now in (1001.0, 1000.0 + LEASE + ABSENT_S):
        keep(head, now)
        assert head.facts.drain
    keep(head, 1000.1 + LEASE + ABSENT_S)
    why = "no spare host is there any more to take its place"
    assert head.facts.drains["h1"] == (False, why)


def test_the_wait_begins_again_whenever_one_is_there() -> None:
    job = Job()
    head = job.head
    assert head.drain(0.0, "h1") == ""
    for now in (0.5 * LEASE, 5.0 * LEASE):
        head.spare(now, "s0", "10.0.0.9", 1000)
        keep(head, now)
    keep(head, 5.0 * LEASE + LEASE + ABSENT_S)
    assert head.facts.drain


def test_another_head_waits_for_spare_hosts_as_long() -> None:
    """They have not called yet."""
    job = ordered()
    facts = Facts(2)
    for entry in job.ledger:
        facts.apply(entry)
    head = Drains(facts, LEASE, now=1000.0)
    keep(head, 1000.1)
    assert facts.drain
    keep(head, 1000.1 + LEASE + ABSENT_S)
    assert facts.drain is None


# ---- a place that leaves --------------------------------------------------------------------------


def test_only_its_owner_says_that_a_place_has_left() -> None:
    job = until(ordered(), "leave")
    head = job.head
    head.left(1, 2)
    head.left(0, 1)
    head.tick(job.now)
    assert "chosen" not in [getattr(one, "entry", {}).get("kind") for one in head.taken()]
    head.left(1, 1)
    head.tick(job.now)
    assert head.facts.places[1].host == "s0"
    told_now = [(to, kind) for to, kind, _ in says(head)]
    assert (("spare", "s0"), "take") in told_now  # it does not wait for its next call


def test_what_left_once_does_not_count_for_the_next_time() -> None:
    """The new owner is not taken for a host that has left it."""
    job = until(ordered(), "chosen")
    job.head.left(1, 1)
    job.head.tick(job.now)
    job.perform()
    job.settle()
    assert kinds(job).count("chosen") == 1


def test_a_host_that_has_left_without_saying_so_calls_as_a_spare_one() -> None:
    job = until(ordered(), "leave")
    job.head.spare(job.now, "h1", "10.0.0.2", 0)
    job.head.tick(job.now)
    assert job.head.facts.places[1].host == "s0"


def test_no_other_host_says_so_by_its_call() -> None:
    """One that has left its own place calls in the same way; the place still runs at its owner."""
    job = until(ordered(), "leave")
    job.head.spare(job.now, "h9", "10.0.0.7", 0)
    job.head.tick(job.now)
    assert job.head.facts.places[1].leaving
    assert job.head.facts.places[1].host == "h1"


def test_a_host_that_cannot_restore_it_gives_it_back() -> None:
    """That is in the ledger, and the host that has left it goes on from its image."""
    job = ordered()
    job.hosts["s0"].cannot_restore = True
    job.settle()
    at = kinds(job).index("unrestored")
    entry = job.ledger[at]
    assert (entry["place"], entry["host"]) == (1, "s0")
    assert told(entry) == "host [s0] cannot restore place [1]"
    following = [(e["kind"], e.get("host"), e.get("life")) for e in job.ledger[at + 1 :]]
    assert following[:2] == [("chosen", "h1", 3), ("claim", "h1", 3)]
    done, how = job.head.facts.drains["h1"]
    assert not done
    assert "cannot restore it: it goes on itself" in how
    assert job.all_run()
    assert (job.hosts["h1"].over, job.hosts["s0"].over) == (None, 1)


def test_it_is_given_back_at_once() -> None:
    """The host that could not restore it has ended: there is no lease to wait for."""
    job = ordered()
    job.hosts["s0"].cannot_restore = True
    until(job, "unrestored")
    job.head.tick(job.now)
    assert job.head.facts.places[1].host == "h1"


def test_a_place_that_ends_instead_of_leaving_goes_on_elsewhere_at_once() -> None:
    """Its agent could not leave; all stand at a line, so it is no end of the command."""
    job = until(ordered(), "leave")
    job.head.done(1, 1)
    job.head.tick(job.now)
    place = job.head.facts.places[1]
    assert (place.host, place.code) == ("s0", None)


def test_a_job_that_has_ended_decides_nothing_more() -> None:
    job = ordered()
    for place in range(2):
        job.head.done(place, 0)
    job.head.taken()
    job.head.tick(job.now)
    assert job.head.taken() == []


@pytest.mark.parametrize(("failed", "phase"), [("place [0] is lost", "back"), ("", "over")])
def test_who_waits_for_a_drain_hears_of_the_jobs_end(
    failed: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head ends with its job: nobody will say how the drain has ended."""
    said = {"drain": {"host": "h1"}, "drains": {}, "passed_why": "", "failed": failed}
    monkeypatch.setattr(hosts, "ask", lambda *_: said | {"phase": phase})
    assert hosts.wait_for_drain("head:1", "h1") == (False, failed or "the job has ended")


def test_a_head_that_dies_when_it_was_not_restored_is_followed_by_one_that_knows() -> None:
    """The next one waits for the lease of the host that has failed, and gives the place back."""
    job = ordered()
    job.hosts["s0"].cannot_restore = True
    until(job, "unrestored")
    job.another_head()
    assert job.head.facts.places[1].leaving
    job.settle()
    assert job.head.facts.places[1].host == "h1"
    assert job.all_run()


def test_a_place_that_has_come_back_fails_as_ever() -> None:
    """It was restored: what its command ends with is the job's."""
    job = until(ordered(), "chosen")
    head, now = job.head, job.now
    head.facts.places[0].restored = 0  # the other one is not there yet
    assert head.claim(now, 1, "s0", 2) == ""
    head.agent(now, 1, head.facts.round)
    head.done(1, 3)
    assert head.facts.places[1].code == 3
    assert head.facts.failed == "the command of place [1] has ended with [3]"


# ---- who has left ---------------------------------------------------------------------------------


def overs(head: Drains, name: str) -> list[dict[str, Any]]:
    """Return with which words a host may end."""
    return [values for to, kind, values in says(head) if (to, kind) == (("spare", name), "over")]


def test_a_host_of_which_the_head_knows_nothing_may_end() -> None:
    """It has left a place of another job, or of a ledger that is gone."""
    job = Job()
    job.head.spare(job.now, "h9", "10.0.0.7", 0)
    why = "the head knows of no place that it left"
    assert overs(job.head, "h9") == [{"code": 1, "why": why}]


@pytest.mark.parametrize(("code", "why"), [(0, ""), (3, ": the command of place [0] has ended")])
def test_a_host_that_has_left_hears_of_the_jobs_end(code: int, why: str) -> None:
    """With words that it takes: else it would wait for the head until that has been silent long."""
    job = until(ordered(), "chosen")
    job.head.spare(job.now, "h1", "10.0.0.2", 0)
    if not code:
        job.head.facts.places[1].code = 0
        job.head.facts.drain = None
    job.head.done(0, code)
    (said,) = overs(job.head, "h1")[-1:]
    assert said["why"].startswith(f"the job has ended{why}")
    assert said["code"] == (1 if code else 0)


def test_a_host_that_has_left_stays_until_all_go_on() -> None:
    job = until(ordered(), "chosen")
    job.head.spare(job.now, "h1", "10.0.0.2", 0)
    assert overs(job.head, "h1") == []
    until(job, "onward")
    job.head.spare(job.now, "h1", "10.0.0.2", 0)
    how = "place [1] is on host [s0]"
    assert overs(job.head, "h1")[-1:] == [{"code": 0, "why": how}]


def test_a_host_that_has_left_gets_no_copies_and_takes_no_other_place() -> None:
    job = until(ordered(), "leave")
    while not job.hosts["h1"].stands:
        job.step()
    job.call_as_spare(job.hosts["h1"])
    head = job.head
    assert head.facts.spares["h1"].port == 0
    assert all("h1" not in names for names in head._chosen(job.now).values())
    assert head._taker(job.now, 1) == "s0"
    del head.facts.spares["s0"]
    assert head._taker(job.now, 1) == "h1"  # when no other one can
    assert head._taker(job.now, 0) == ""
    assert head._taker(job.now + LEASE, 1) == ""  # its lease has ended
