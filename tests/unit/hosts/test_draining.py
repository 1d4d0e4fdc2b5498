"""A host is drained: whatever is lost at whichever step, its place is on one host, and goes on."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_drains import LEASE, Job  # noqa: E402

from pyft.cli import hosts  # noqa: E402
from pyft.hosts.head import status  # noqa: E402
from pyft.hosts.head.decisions import Phase  # noqa: E402

CLAIM = 5  # its number among the entries of a drain


def ordered(spares: int = 1, line: bool = False, to: str = "", copies: int = 1) -> Job:
    """Return a job of which a host is to be drained. `to`: by moving one of its ranks to that host."""
    job = Job(spares, copies)
    if line:
        job.settle(10)
        while not job.head.facts.line:
            job.settle(10)
    if to:
        job.pass_time()  # places say which ranks they run
    assert (job.head.move(job.now, 2, to) if to else job.head.drain(job.now, "h1")) == ""
    job.perform()
    return job


def one(job: Job) -> bool:
    """Let one thing happen; say whether there is more."""
    if not job.step():
        job.pass_time()
    return not job.is_settled()


def test_the_place_goes_to_the_spare_and_its_host_ends() -> None:
    job = ordered()
    job.settle()
    assert job.all_run()
    assert job.head.facts.places[1].host == "s0"
    assert job.head.facts.drains["h1"] == (True, "place [1] is on host [s0]")
    while job.step():
        pass
    assert job.hosts["h1"].over == 0
    kinds = [entry["kind"] for entry in job.ledger]
    first = kinds.index("line")
    moved = ["line", "back", "leave", "chosen", "claim", "onward"]
    assert kinds[first : first + len(moved)] == moved
    back = job.ledger[first + 1]
    assert back["steps"] <= job.ledger[first]["step"]  # nothing is repeated


@pytest.mark.parametrize("to", ["s0", "s1", "s2"])
@pytest.mark.parametrize("copies", [1, 2])
def test_the_place_of_a_rank_goes_to_the_spare_that_was_named(to: str, copies: int) -> None:
    job = ordered(spares=3, to=to, copies=copies)
    job.settle()
    assert job.all_run()
    assert job.head.facts.places[1].host == to
    assert job.head.facts.drains["h1"] == (True, f"place [1] is on host [{to}]")
    line = next(entry for entry in job.ledger if entry["kind"] == "line")
    assert line["holders"]["1"][0] == to
    assert to not in line["holders"]["0"]  # its copies would be lost with the move
    assert [len(names) for names in line["holders"].values()] == [copies, copies]


def steps() -> int:
    """Return how many things happen in a drain."""
    job, count = ordered(), 1
    while one(job):
        count += 1
    return count


STEPS = range(steps() + 1)
FAULTS = (
    *("head", "h0's link", "h1's link", "s0's link", "h1", "s0", "s0 cannot restore", "cancel"),
    *("h0 cut off", "h1 cut off", "s0 cut off"),
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", STEPS)
def test_one_fault_at_each_step(at: int, fault: str) -> None:
    """All go on, with the old placement or the new one."""
    job = ordered(spares=2 if fault.startswith(("h0", "h1")) else 1, line=True)
    for _ in range(at):
        one(job)
    happen(job, fault)
    job.settle()
    facts = job.head.facts
    if fault in ("s0", "s0 cut off") and facts.places[1].host == "s0":  # it was over already
        assert facts.drains["h1"][0]
        return
    assert job.all_run(), (facts.failed, job.ledger)
    owner = facts.places[1].host
    stays = {"s0": ["h1"], "s0 cannot restore": ["h1", "s0"], "s0 cut off": ["h1", "s0"]}
    stays |= {"cancel": ["h1", "s0"], "h1 cut off": ["h1", "s0", "s1"]}
    assert owner in stays.get(fault, ["s0", "s1"])
    assert facts.drain is None
    if fault != "cancel":
        assert facts.drains["h1"][0] or owner == "h1" or fault in ("h1", "h1 cut off")


NAMED = (
    *("head", "h0's link", "h1's link", "s0's link", "s1's link", "h0", "h1", "s0", "s1"),
    *("s1 cannot restore", "cancel", "h0 cut off", "h1 cut off", "s0 cut off", "s1 cut off"),
)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("fault", NAMED)
@pytest.mark.parametrize("at", STEPS)
def test_one_fault_at_each_step_of_a_move(at: int, fault: str, copies: int) -> None:
    """The place goes to the host that was named, or stays: to no other one, but for its host's loss."""
    job = ordered(spares=2, line=True, to="s1", copies=copies)
    for _ in range(at):
        one(job)
    was_over = not job.head.facts.drain
    happen(job, fault)
    job.settle()
    facts = job.head.facts
    if was_over and fault.startswith("s1"):  # a loss like any other
        assert facts.drains["h1"][0]
        return
    assert job.all_run(), (facts.failed, job.ledger)
    owner = facts.places[1].host
    stays = dict.fromkeys(("s1", "s1 cannot restore", "s1 cut off", "cancel"), ["h1", "s1"])
    stays |= {"h1": ["s0", "s1"], "h1 cut off": ["h1", "s0", "s1"], "h0": ["s1", "h1"]}
    assert owner in stays.get(fault, ["s1"]), (owner, job.ledger)
    assert facts.drain is None
    assert facts.drains["h1"][0] == (owner == "s1") or fault.startswith("h1")


def happen(job: Job, fault: str) -> None:
    """Let a fault happen now."""
    if fault == "head":
        job.another_head()
    elif fault == "cancel":
        job.head.cancel(job.now, "h1")
    elif name := fault.partition(" cannot restore")[0] if "cannot" in fault else "":
        job.hosts[name].cannot_restore = True
    elif name := fault.partition(" cut off")[0] if "cut off" in fault else "":
        job.hosts[name].cut_until = job.now + 3 * LEASE
    elif name := fault.partition("'s link")[0] if "link" in fault else "":
        job.lose_link(job.hosts[name])
    else:
        job.lose(job.hosts[fault])
    job.perform()


@pytest.mark.parametrize("to", ["", "s0"])
@pytest.mark.parametrize("entries", range(1, 10))
def test_the_head_dies_before_each_entry(entries: int, to: str) -> None:
    """Also between two that belong together; the next one reads the first of them only."""
    job = ordered(to=to)
    job.writes_left = entries
    job.settle()
    assert job.all_run()
    owner = job.head.facts.places[1].host  # who loses the head while it claims has no place
    assert owner == ("h1" if entries == CLAIM else "s0")
    assert job.head.facts.drains["h1"][0] == (owner == "s0")


@pytest.mark.parametrize("to", ["", "s1"])
@pytest.mark.parametrize("seed", range(150))
def test_several_faults_in_any_order(seed: int, to: str) -> None:
    """A place is never on two hosts; the job goes on, or ends and says why. No drain stays for ever."""
    dice = random.Random(seed)
    job = ordered(spares=3, line=True, to=to)
    faults = [*FAULTS, "h0", "s1", "s1's link", "s1 cut off", "head"]
    chosen = dice.sample(faults, 3)
    for fault in chosen:
        for _ in range(dice.randrange(8)):
            one(job)
        happen(job, fault)
        if dice.random() < 0.3:
            job.writes_left = dice.randrange(3)
    job.settle()
    facts = job.head.facts
    assert job.is_settled(), job.ledger
    ends = ["no other host has its image"]
    if "s0 cannot restore" in chosen:  # what it has taken from a host that is lost
        ends.append("has ended with [1]")
    assert not facts.failed or any(end in facts.failed for end in ends), facts.failed
    before = (facts.line, facts.round, [(p.host, p.life) for p in facts.places.values()])
    job.another_head()  # knows the same
    facts = job.head.facts
    assert before == (facts.line, facts.round, [(p.host, p.life) for p in facts.places.values()])


def test_the_orders_are_those_that_matter() -> None:
    """In a whole drain there are so many steps, and each fault hits it at each of them."""
    assert len(STEPS) >= 10


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("h7", r"host [h7] is none of this job: places are on ['h0', 'h1']"),
        ("s0", "host [s0] has no place: there is nothing to move"),
    ],
)
def test_who_has_no_place_is_not_drained(host: str, why: str) -> None:
    assert Job().head.drain(0.0, host) == why


def test_without_a_spare_nothing_is_drained() -> None:
    job = Job(spares=0)
    assert "no spare host is there" in job.head.drain(job.now, "h1")
    assert not job.head.taken()


def test_a_host_is_drained_once_and_one_at_a_time() -> None:
    job = ordered(spares=2)
    after = "host [h1] is being drained: try again when that is over"
    assert job.head.drain(job.now, "h0") == after
    while job.head.facts.drain:  # an operator may ask again, and wait, until it is over
        assert job.head.drain(job.now, "h1") == ""
        one(job)
    assert [entry["kind"] for entry in job.ledger].count("drain") == 1
    job.settle()
    assert "has no place" in job.head.drain(job.now, "h1")
    assert job.head.drain(job.now, "h0") == ""
    job.settle()
    assert {p.host for p in job.head.facts.places.values()} == {"s0", "s1"}


def test_a_job_that_has_ended_drains_nobody() -> None:
    job = Job()
    job.head.done(0, 0)
    assert "places [0] have ended" in job.head.drain(job.now, "h1")
    job.head.done(1, 0)
    assert job.head.drain(job.now, "h1") == "the job has ended"


def test_a_place_that_ends_before_the_line_ends_the_drain() -> None:
    """All others would have to go back; the job goes on to its end instead."""
    job = ordered()
    job.head.done(0, 0)
    job.settle(3)
    assert "places [0] have ended" in job.head.facts.drains["h1"][1]
    assert not job.head.facts.failed


def test_what_cannot_be_cancelled() -> None:
    job = Job()
    assert job.head.cancel(job.now, "h1") == "host [h1] is not being drained"
    job = ordered()
    assert "is not being drained" in job.head.cancel(job.now, "h0")
    while not job.head.facts.drain or not job.head.facts.drain.left:
        one(job)
    assert "leaves place [1] already" in job.head.cancel(job.now, "h1")


def test_a_drain_waits_for_a_line_that_can_be_made() -> None:
    """Here a program has a file open; it is tried again, and what is in the way is told."""
    job = ordered()
    job.pass_time()
    assert job.head.phase is Phase.HOLD
    for host in job.hosts.values():
        host.hears.clear()
    job.head.passed_over(job.now, 0, "a file is open")
    job.perform()
    assert job.head.passed_why == "place [0]: a file is open"
    job.settle()
    assert job.head.facts.drains["h1"][0]


def test_a_spare_that_does_not_come_back_ends_the_drain() -> None:
    job = ordered()
    job.lose(job.hosts["s0"])
    job.settle(60)
    assert "no spare host is there any more" in job.head.facts.drains["h1"][1]
    assert job.all_run()
    assert job.head.facts.places[1].host == "h1"


def test_others_images_go_to_another_spare() -> None:
    """Else they are lost with the move: who takes a place keeps no other one's image."""
    job = ordered(spares=2)
    while not job.head.facts.line:
        one(job)
    line = job.head.facts.line
    holders = job.head.facts.holders
    assert sorted(holders[0] + holders[1]) == ["s0", "s1"]
    assert all((p, line) in job.hosts[holders[p][0]].images for p in range(2))


def test_what_an_operator_is_told() -> None:
    job = ordered()
    told = status.Faults()
    for at, entry in enumerate(job.ledger):
        told.take(entry | {"at": float(at)}, job.head.facts)
    said = status.describe(job.head, told, job.now)
    assert [(p["place"], p["host"], p["state"]) for p in said["places"]] == [
        (0, "h0", "runs"),
        (1, "h1", "runs"),
    ]
    assert said["drain"] == {"host": "h1", "place": 1, "to": "", "left": False}
    assert said["spares"] == [{"host": "s0", "images": []}]
    job.settle()
    told.take({"kind": "back", "why": "w", "steps": 20, "at": 5.0}, job.head.facts)
    told.take({"kind": "onward", "at": 7.5}, job.head.facts)
    said = status.describe(job.head, told, job.now)
    assert said["places"][1]["host"] == "s0"
    fault = said["faults"]["last"][-1]
    assert (fault["seconds"], fault["repeated"]) == (2.5, 20 - job.head.facts.line_step)
    assert json.loads(json.dumps(said)) == said
    text = "\n".join(hosts.lines(said))
    assert "place 1 on host s0, life 2: runs" in text
    assert "no spare host: the loss of a host ends the job" in text
    assert "2.5 s" in text
