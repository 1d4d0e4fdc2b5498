"""A GPU is lost on a host that has no other one: its place goes to a spare host, or waits."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_drains import LEASE, Job  # noqa: E402

from pyft.agent.host_images import HostImages  # noqa: E402
from pyft.hosts.head import status  # noqa: E402
from pyft.hosts.head.decisions import Phase, Say, Tell  # noqa: E402
from pyft.hosts.head.lines import MIRROR_S  # noqa: E402
from pyft.hosts.head.moves import Moves  # noqa: E402
from pyft.hosts.head.told import told  # noqa: E402
from pyft.hosts.place.actions import Fail, Mirror  # noqa: E402
from pyft.hosts.place.mirror import Stored  # noqa: E402
from pyft.hosts.place.remote import RemoteImages  # noqa: E402
from pyft.hosts.spare.spare import Spare  # noqa: E402


def kinds(job: Job, since: int = 0) -> list[str]:
    """Return the kinds of its entries."""
    return [entry["kind"] for entry in job.ledger[since:]]


def until(job: Job, kind: str, count: int = 1) -> Job:
    """Let things happen until so many entries of this kind are in the ledger."""
    for _ in range(500):
        if kinds(job).count(kind) >= count:
            return job
        if not job.step():
            job.pass_time()
    raise AssertionError(f"no [{kind}] in {job.ledger}")


def with_line(spares: int = 1, copies: int = 1) -> Job:
    """Return a job that has a line, and no image under way."""
    job = until(Job(spares, copies), "line")
    while job.step():
        pass
    return job


def waits(job: Job) -> Job:
    """Let the GPU of host h1 be lost; its agent says so."""
    job.hosts["h1"].lacks_gpu = True
    job.pass_time()
    while job.head.phase is Phase.HOLD:  # it never comes to the step
        job.pass_time()
    return job


def one(job: Job) -> None:
    """Let one thing happen."""
    if not job.step():
        job.pass_time()


# ---- a spare host is there ------------------------------------------------------------------------


def test_the_place_goes_to_the_spare_host_and_nobody_waits_for_a_lease() -> None:
    job = with_line()
    since, began = len(job.ledger), job.now
    waits(job).settle()
    moved = ["back", "leave", "chosen", "claim", "onward"]
    assert kinds(job, since)[: len(moved)] == moved
    assert job.now - began < LEASE
    assert job.all_run()
    place = job.head.facts.places[1]
    assert (place.host, place.life, place.lacks_gpu) == ("s0", 2, "")
    back = job.ledger[since]
    assert (back["counts"], back["why"]) == (0, "place [1]: no GPU")
    assert told(back) == f"place [1]: no GPU: all go back to image [{job.head.facts.line}]"
    while job.step():
        pass
    assert job.hosts["h1"].over == 0  # all have gone on: nothing needs its image
    assert job.head.facts.drains["h1"] == (True, "place [1] is on host [s0]")


def test_without_a_line_it_waits() -> None:
    job = Job()
    job.hosts["h1"].lacks_gpu = True
    for _ in range(60):
        job.pass_time()
    assert "back" not in kinds(job)
    assert job.hosts["h1"].runs
    said = status.describe(job.head, status.Faults(), job.now)
    assert [one["state"] for one in said["places"]] == ["runs", "waits for a GPU"]


def test_an_image_whose_copies_travel_is_waited_for() -> None:
    """It may be the line in a moment, and fewer steps are repeated, or the job has one at all."""
    job = until(Job(), "image")
    while not all(place.copied for place in job.head.facts.places.values()):
        job.step()
    job.head.lacks_gpu(1, "no GPU", [0, 2])
    job.head.tick(job.now)
    job.perform()
    assert "back" not in kinds(job)
    until(job, "leave")
    assert kinds(job)[-3:] == ["line", "back", "leave"]
    assert job.ledger[-1]["happened"] == [0, 2]  # after that image, too


def test_a_place_cannot_go_back_when_another_one_has_ended() -> None:
    job = with_line()
    job.head.done(0, 0)
    waits(job)
    for _ in range(20):
        one(job)
    assert "back" not in kinds(job)
    assert not job.head.facts.failed


def test_a_gpu_that_is_brought_ends_the_wait() -> None:
    job = with_line(spares=0)
    waits(job)
    assert job.head.facts.places[1].lacks_gpu == "no GPU"
    job.hosts["h1"].lacks_gpu = False
    job.pass_time()
    job.head.spare(job.now, "s0", "10.0.0.9", 1000)
    job.head.tick(job.now)
    assert sent(job.head) == []
    assert "back" not in kinds(job)


def test_who_calls_again_says_it_again() -> None:
    """Another agent may have a GPU; another head does not know of it."""
    job = waits(with_line(spares=0))
    job.head.gone(job.now, 1)
    assert job.head.facts.places[1].lacks_gpu == ""
    job.head.lacks_gpu(1, "no GPU", [])
    job.head.agent(job.now, 1, 0)
    assert job.head.facts.places[1].lacks_gpu == ""


# ---- a spare host comes later ---------------------------------------------------------------------


def waiting(spares: int = 2) -> Job:
    """Return a job that waits, whose spare hosts have no image."""
    job = with_line(spares=0)
    waits(job)
    for number in range(spares):
        job.head.spare(job.now, f"s{number}", "10.0.0.9", 1000)
    job.perform()
    return job


def sent(head: Moves) -> list[tuple[int, str]]:
    """Return where images are sent now: of which place, to which host."""
    found = []
    for one in head.taken():
        if isinstance(one, Say) and one.kind == "mirror":
            assert one.values["number"] == head.facts.line
            found += [(int(one.to[1]), where[0]) for where in one.values["mirrors"]]
    return found


def test_a_spare_host_that_joins_gets_the_image_and_takes_the_place() -> None:
    job = with_line(spares=0)
    waits(job)
    for _ in range(30):
        job.pass_time()
    assert "back" not in kinds(job)
    job = with_spare(job)
    job.settle()
    assert job.all_run()
    assert job.head.facts.places[1].host == "s0"
    assert kinds(job).count("back") == 1


def with_spare(job: Job) -> Job:
    """Let a spare host join."""
    other = Job()
    job.hosts["s0"] = other.hosts["s0"]
    job.hosts["s0"].images.clear()
    job.call_as_spare(job.hosts["s0"])
    job.perform()
    return job


def test_it_is_sent_once_and_what_does_not_take_it_is_left_for_the_next_one() -> None:
    job = waiting()
    head = job.head
    head.tick(job.now)
    assert sent(head) == [(1, "s0")]
    head.tick(job.now)
    assert sent(head) == []
    head.unmirrored(1, head.facts.line + 1, "s0", "of another image")
    head.unmirrored(0, head.facts.line, "s0", "of another place")
    head.tick(job.now)
    assert sent(head) == []
    head.unmirrored(1, head.facts.line, "s0", "no room")
    told_now = [a.sentence for a in head._actions if isinstance(a, Tell)]
    assert told_now == ["host [s0] has no copy of place [1]: no room"]
    head.tick(job.now)
    assert sent(head) == [(1, "s1")]
    head.unmirrored(1, head.facts.line, "s1", "no room")
    head.tick(job.now)
    assert sent(head) == [(1, "s0")]  # all are tried again


def test_one_that_is_silent_is_left_after_a_while_and_one_that_comes_on_is_not() -> None:
    job = waiting()
    head, began = job.head, job.now
    for host in ("s0", "s1"):
        head.facts.spares[host].lease = began + 10 * MIRROR_S
    for place in head.facts.places.values():
        place.lease = began + 10 * MIRROR_S
    head.tick(began)
    assert sent(head) == [(1, "s0")]
    head.sending(began + MIRROR_S - 1, head.facts.line)
    head.tick(began + MIRROR_S + 1)
    assert sent(head) == []
    head.tick(began + 2 * MIRROR_S)
    assert sent(head) == [(1, "s1")]


def test_one_that_is_lost_is_left_at_once() -> None:
    job = waiting()
    job.head.tick(job.now)
    assert sent(job.head) == [(1, "s0")]
    job.head.facts.spares["s0"].lease = job.now
    job.head.tick(job.now)
    assert sent(job.head) == [(1, "s1")]


def test_a_host_that_has_left_its_place_gets_no_image() -> None:
    job = waiting(spares=0)
    job.head.spare(job.now, "h9", "10.0.0.7", 0)
    job.head.taken()
    job.head.tick(job.now)
    assert sent(job.head) == []


# ---- beside a drain -------------------------------------------------------------------------------


def test_a_drain_of_another_host_is_called_off() -> None:
    """No line can be made for it as long as a rank waits."""
    job = with_line(spares=2)
    assert job.head.drain(job.now, "h0") == ""
    waits(job).settle()
    done, how = job.head.facts.drains["h0"]
    assert (done, how) == (False, "place [1]: no GPU: it goes to a spare host at once")
    assert job.head.facts.places[0].host == "h0"
    assert job.head.facts.drains["h1"][0]
    assert job.all_run()


def test_a_drain_of_this_host_is_done_by_it() -> None:
    job = with_line()
    assert job.head.drain(job.now, "h1") == ""
    waits(job).settle()
    assert "undrain" not in kinds(job)
    assert job.head.facts.drains["h1"] == (True, "place [1] is on host [s0]")


def test_a_host_that_was_named_need_not_have_the_image() -> None:
    """It goes where it can go on."""
    job = with_line(spares=2)
    (keeps,) = job.head.facts.holders[1]
    other = "s0" if keeps == "s1" else "s1"
    job.pass_time()
    assert job.head.move(job.now, 2, other) == ""
    waits(job).settle()
    assert job.head.facts.places[1].host == keeps
    assert job.all_run()


# ---- whatever is lost -----------------------------------------------------------------------------

FAULTS = (
    *("head", "h0's link", "h1's link", "s0's link", "h0", "h1", "s0", "s0 cannot restore"),
    *("h0 cut off", "h1 cut off", "s0 cut off", "the GPU of h0"),
)


def happen(job: Job, fault: str) -> None:
    """Let a fault happen now."""
    name = fault.split("'")[0].split(" ")[-1 if fault.startswith("the") else 0]
    if fault == "head":
        job.another_head()
    elif "cannot restore" in fault:
        job.hosts[name].cannot_restore = True
    elif "cut off" in fault:
        job.hosts[name].cut_until = job.now + 3 * LEASE
    elif "link" in fault:
        job.lose_link(job.hosts[name])
    elif "GPU" in fault:
        job.hosts[name].lacks_gpu = True
    else:
        job.lose(job.hosts[name])
    job.perform()


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(16))
def test_one_more_fault_at_each_step(at: int, fault: str, copies: int) -> None:
    """The place is on one host at a time; all go on, or it is said why not."""
    job = with_line(spares=3, copies=copies)
    job.hosts["h1"].lacks_gpu = True
    for _ in range(at):
        one(job)
    happen(job, fault)
    job.settle()
    facts = job.head.facts
    ends = ("no other host has its image", "has ended with [1]")
    assert job.all_run() or any(end in facts.failed for end in ends), facts.failed
    assert not facts.drain or facts.failed
    if fault in ("head", "h0's link", "h1's link", "s0's link"):
        assert facts.places[1].host.startswith("s")
        assert not facts.failed


@pytest.mark.parametrize("entries", range(1, 8))
def test_the_head_dies_before_each_entry(entries: int) -> None:
    """Between `back` and `leave` all go back in place, the host that waits too; then it leaves."""
    job = with_line()
    job.writes_left = entries
    waits(job).settle()
    assert job.all_run()
    assert job.head.facts.places[1].host == "s0" or entries == 3  # the head dies as s0 claims it


@pytest.mark.parametrize("seed", range(100))
def test_several_faults_in_any_order(seed: int) -> None:
    dice = random.Random(seed)
    job = with_line(spares=dice.randrange(1, 4), copies=dice.randrange(1, 3))
    job.hosts["h1"].lacks_gpu = True
    for fault in dice.sample(FAULTS, 3):
        for _ in range(dice.randrange(8)):
            one(job)
        happen(job, fault)
        if dice.random() < 0.3:
            job.writes_left = dice.randrange(3)
    job.settle()
    assert job.is_settled(), job.ledger


# ---- faults that were asked for -------------------------------------------------------------------


def test_a_fault_that_has_happened_does_not_happen_to_the_next_owner() -> None:
    """Nor to the one after it, from the same line; that of the next line knows it itself."""
    job = until(waits(with_line(spares=2, copies=2)), "leave")
    assert job.ledger[-1]["happened"] == [0]
    until(job, "chosen")
    told_it = job.hosts[job.head.facts.places[1].host].hears
    assert [values["happened"] for kind, values in told_it if kind == "take"] == [[0]]
    job.another_head()
    assert job.head.facts.places[1].happened == [0]
    job.settle()
    until(job, "line", 2)
    assert job.head.facts.places[1].happened == []


def test_a_spare_host_marks_what_has_happened(tmp_path: Path) -> None:
    requests = [{"injection": "gpu-lost,rank=1", "done": done} for done in (False, False, True)]
    record = {"number": 3, "step": 7, "clients": {}, "clocks": [], "servers": {}}
    record["servers"] = {"requests": {"all": requests}}
    image = Stored(1, 3, tmp_path, record, {}, "n")
    spare: Any = Spare.__new__(Spare)
    spare._folder, spare._head, spare._name, spare._address = tmp_path, "head:1", "s0", "10.0.0.9"
    note, _ = spare._note(image, 2, 1, [1, 9])
    found = note["kept"]["restoring"][0]["servers"]["requests"]["all"]
    assert [one["done"] for one in found] == [False, True, True]


# ---- the agent ------------------------------------------------------------------------------------


class Link:
    """What an agent says to the head, and hears."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self.orders, self.told = list(said), []

    def heard(self) -> dict[str, Any] | None:
        """Return the next message."""
        return self.orders.pop(0) if self.orders else None

    def say(self, kind: str, **values: Any) -> bool:
        """Take what the agent says."""
        self.told.append((kind, values))
        return True


def test_an_agent_says_it_once_and_to_each_head() -> None:
    images, link = RemoteImages(), Link()
    images.link = link  # type: ignore[assignment]
    said = [("", []), ("no GPU", []), ("no GPU", []), ("no GPU", [0]), ("", [])]
    for why, happened in said:
        images.tell_lacks_gpu(why, happened)
    changes = [{"round": 0, "why": why, "happened": which} for why, which in said]
    assert link.told == [("lacks_gpu", changes[at]) for at in (1, 3, 4)]
    images.tell_lacks_gpu("no GPU", [])
    link.told.clear()
    link.orders.append({"kind": "welcome"})
    images.look(0.0, [])
    images.tell_lacks_gpu("no GPU", [])
    assert len(link.told) == 1


def test_an_agent_sends_an_image_again() -> None:
    images = RemoteImages()
    where = [["s0", "10.0.0.9", 1000]]
    images.link = Link(  # type: ignore[assignment]
        {"kind": "mirror", "number": 3, "mirrors": where},
        {"kind": "mirror", "number": 3, "mirrors": [["../s0", "10.0.0.9", 1000]]},
    )
    first, second = images.look(0.0, [])
    assert first == Mirror(3, [("s0", "10.0.0.9", 1000)])
    assert isinstance(second, Fail)


@pytest.mark.parametrize("record", [None, {"step": 7}])
def test_an_image_that_is_not_here_is_not_sent(record: dict[str, Any] | None) -> None:
    """The head is told, and does not wait for it."""
    images: Any = HostImages.__new__(HostImages)
    link = Link()
    images._records, images._plan = {3: record} if record else {}, SimpleNamespace(link=link)
    images._mirror(Mirror(3, [("s0", "10.0.0.9", 1000)]))
    why = "its host has no such image"
    assert link.told == [("unmirrored", {"number": 3, "host": "s0", "why": why})]
