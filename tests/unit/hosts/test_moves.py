"""A rank is moved to a spare host that an operator names: what is refused, and what becomes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_drains import LEASE, Job  # noqa: E402

from pyft.cli import hosts, orders  # noqa: E402
from pyft.errors import UsageError  # noqa: E402
from pyft.hosts.head import holders, status  # noqa: E402
from pyft.hosts.head.decisions import ABSENT_S, Phase  # noqa: E402
from pyft.hosts.head.holders import Topology  # noqa: E402
from pyft.hosts.head.told import told  # noqa: E402
from pyft.hosts.place.remote import RemoteImages  # noqa: E402
from pyft.recovery.images import ClientState  # noqa: E402


def known(spares: int = 2, copies: int = 1) -> Job:
    """Return a job whose places have said which ranks they run: 0 and 1, 2 and 3."""
    job = Job(spares, copies)
    job.pass_time()
    return job


def moved(spares: int = 2, copies: int = 1, to: str = "s1") -> Job:
    """Return a job whose rank 2, which is on host h1, is to be moved."""
    job = known(spares, copies)
    assert job.head.move(job.now, 2, to) == ""
    job.perform()
    return job


def until(job: Job, kind: str) -> Job:
    """Let things happen until an entry of this kind is in the ledger."""
    for _ in range(500):
        if any(entry["kind"] == kind for entry in job.ledger):
            return job
        if not job.step():
            job.pass_time()
    raise AssertionError(f"no [{kind}] in {job.ledger}")


# ---- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "to", "why"),
    [
        (9, "s1", "rank [9] is none of this job: those known are [0] to [3]"),
        (2, "h1", "host [h1] has rank [2] already"),
        (2, "h0", "host [h0] is no spare host: it has place [0]"),
        (2, "s7", "host [s7] is none of this job's spare hosts: these are ['s0', 's1']"),
        (2, "s9", "host [s9] takes no images: it has only that of the place which it has left"),
    ],
)
def test_what_cannot_be_is_refused(rank: int, to: str, why: str) -> None:
    job = known()
    job.head.spare(job.now, "s9", "10.0.0.9", 0)
    job.head.taken()
    assert job.head.move(job.now, rank, to) == why
    assert job.head.facts.drain is None
    assert job.head.taken() == []


def test_a_spare_host_that_is_away_is_none() -> None:
    job = known()
    job.head.facts.spares["s1"].lease = job.now
    assert "none of this job's spare hosts: these are ['s0']" in job.head.move(job.now, 2, "s1")
    assert "no spare host is there" in job.head.move(job.now + 2 * LEASE, 2, "s1")


def test_ranks_are_not_known_before_places_say_so() -> None:
    assert Job().head.move(0.0, 0, "s0") == "rank [0] is none of this job: none is known yet"


def test_a_rank_of_two_places_is_none() -> None:
    """Programs that do not say which rank they are may count from 0 on each host."""
    job = known()
    job.head.ranks(1, [0])
    why = "places [0, 1] say that they run rank [0]: name a host to drain"
    assert job.head.move(job.now, 0, "s1") == why


def test_a_spare_host_that_has_no_image_yet_gets_one_first() -> None:
    job = moved()
    assert not job.head.facts.spares["s1"].images
    job.settle()
    assert job.head.facts.places[1].host == "s1"


def test_what_is_under_way_may_be_asked_for_again_and_nothing_else() -> None:
    job = moved()
    while job.head.facts.drain:
        for asked in (job.head.move(job.now, 2, "s1"), job.head.move(job.now, 3, "s1")):
            assert asked == ""
        assert job.head.drain(job.now, "h1") == job.head.drain(job.now, "h1", "s1") == ""
        other = "place [1] goes to host [s1] already: call that off by --cancel first"
        assert job.head.move(job.now, 2, "s0") == job.head.drain(job.now, "h1", "s0") == other
        assert "host [h1] is being drained" in job.head.move(job.now, 0, "s0")
        if not job.step():
            job.pass_time()
    assert [entry["kind"] for entry in job.ledger].count("drain") == 1
    job.settle()
    assert job.head.move(job.now, 2, "s1") == "host [s1] has rank [2] already"


def test_a_drain_without_a_name_is_no_move() -> None:
    job = known()
    assert job.head.drain(job.now, "h1") == ""
    assert "goes to a spare host that is free already" in job.head.move(job.now, 2, "s1")


def test_a_move_is_called_off_by_any_rank_of_the_place() -> None:
    job = moved()
    assert job.head.cancel_move(job.now, 0) == "rank [0] is not being moved"
    assert "is none of this job" in job.head.cancel_move(job.now, 9)
    assert job.head.cancel_move(job.now, 3) == ""
    assert job.head.facts.drains["h1"] == (False, "it was cancelled")
    job = until(moved(), "leave")
    assert "leaves place [1] already" in job.head.cancel_move(job.now, 2)


# ---- the host that was named ----------------------------------------------------------------------


def test_it_goes_there_and_nowhere_else_if_that_host_is_lost() -> None:
    """Both have copies of all; the one that was not named takes nothing."""
    job = until(moved(copies=2), "leave")
    assert (1, job.head.facts.line) in job.hosts["s0"].images
    job.lose(job.hosts["s1"])
    job.settle()
    assert job.all_run()
    assert job.head.facts.places[1].host == "h1"
    assert not job.head.facts.drains["h1"][0]


def test_the_host_that_leaves_is_waited_for_if_the_named_one_is_lost() -> None:
    """It calls as a spare host when all of the place has ended; until then nothing is chosen."""
    job = until(moved(copies=2), "leave")
    head = job.head
    head.facts.spares["s1"].lease = job.now
    head.left(1, 1)
    head.tick(job.now)
    assert head.facts.places[1].leaving
    later = head.facts.places[1].lease  # it is lost as well
    head.facts.spares["s0"].lease = later + LEASE
    assert head._taker(later, 1) == "s0"


def test_any_host_takes_it_if_both_are_lost() -> None:
    """The place goes on; that it is not where it should be is said."""
    job = until(moved(copies=2), "leave")
    while not job.hosts["h1"].stands:
        job.step()
    for name in ("s1", "h1"):
        job.lose(job.hosts[name])
    job.settle()
    assert job.all_run()
    assert job.head.facts.drains["h1"] == (False, "place [1] is on host [s0]")


def test_one_that_does_not_come_back_ends_the_move() -> None:
    """Also where another spare host is there."""
    job = moved()
    job.lose(job.hosts["s1"])
    job.settle(60)
    why = "host [s1] is not there any more to take its place"
    assert job.head.facts.drains["h1"] == (False, why)
    assert job.now >= ABSENT_S
    assert job.head.facts.places[1].host == "h1"


def test_nobody_stands_still_for_one_that_is_away() -> None:
    """The image of that step counts, and the move waits for the next one."""
    job = moved()
    job.head.facts.spares["s1"].lease = job.now
    while job.head.phase is not Phase.DUMP:
        job.hosts["s1"].cut_until = job.now + 2
        if not job.step():
            job.pass_time()
    assert not job.head._stays
    job.settle()
    assert job.head.facts.places[1].host == "s1"


def test_one_that_takes_the_place_of_a_lost_host_ends_the_move() -> None:
    job = known()
    until(job, "line")
    (keeps,) = job.head.facts.holders[0]
    assert job.head.move(job.now, 2, keeps) == ""
    job.lose(job.hosts["h0"])
    until(job, "undrain")
    assert job.head.facts.drains["h1"] == (False, f"host [{keeps}] has taken place [0]")
    job.settle()
    assert job.all_run()


def test_an_image_that_the_named_host_does_not_take_is_tried_again() -> None:
    """Also where another one has it: all would stand still for nothing, again and again."""
    job = until(moved(copies=2), "image")
    head = job.head
    while not all(place.copied for place in head.facts.places.values()):
        job.step()
    head.unmirrored(1, head.facts.number, "s1", "no room")
    assert head.phase is Phase.RUN
    assert head.passed_why == "host [s1] does not take it: no room"
    job.perform()
    job.settle()
    assert head.facts.places[1].host == "s1"
    assert [entry["kind"] for entry in job.ledger].count("back") == 1


def test_a_copy_of_another_place_may_be_left_out() -> None:
    job = until(moved(copies=2), "image")
    while not all(place.copied for place in job.head.facts.places.values()):
        job.step()
    job.head.unmirrored(0, job.head.facts.number, "s1", "no room")
    assert job.head._stays
    until(job, "leave")


# ---- where copies go ------------------------------------------------------------------------------

PLACES = {0: "h0", 1: "h1", 2: "h2"}


def test_a_named_host_has_no_others_copies_where_there_are_other_hosts() -> None:
    chosen = holders.choose(PLACES, ["s0", "s1"], Topology(), 1, {1: "s1"})
    assert chosen == {0: ["s0"], 1: ["s1"], 2: ["s0"]}
    chosen = holders.choose(PLACES, ["s1"], Topology(), 1, {1: "s1"})
    assert chosen == {0: ["s1"], 1: ["s1"], 2: ["s1"]}


def test_a_named_host_gets_the_image_in_whichever_domain_it_is() -> None:
    """In that of the place it helps the move; a second copy is in another domain than the first."""
    domains = Topology({"h1": "rack", "s1": "rack", "s2": "far", "s3": "far", "s4": "near"})
    spares = ["s1", "s2", "s3", "s4"]
    assert holders.choose({1: "h1"}, spares, domains, 2, {1: "s1"}) == {1: ["s1", "s2"]}
    assert holders.choose({1: "h1"}, spares, domains, 2, {1: "s3"}) == {1: ["s3", "s4"]}


# ---- what is said ---------------------------------------------------------------------------------


def test_what_the_head_and_its_status_say_of_a_move() -> None:
    job = moved()
    entry = next(entry for entry in job.ledger if entry["kind"] == "drain")
    assert (entry["host"], entry["place"], entry["to"]) == ("h1", 1, "s1")
    assert told(entry).endswith("place [1] goes to host [s1] at the next line")
    said = status.describe(job.head, status.Faults(), job.now)
    assert said["drain"] == {"host": "h1", "place": 1, "to": "s1", "left": False}
    assert [one["ranks"] for one in said["places"]] == [[0, 1], [2, 3]]
    text = "\n".join(hosts.lines(said))
    assert "ranks [2, 3]" in text
    assert "place 1 leaves at the next line, for host s1" in text
    until(job, "leave")
    text = "\n".join(hosts.lines(status.describe(job.head, status.Faults(), job.now)))
    assert "place 1 has ended there, and goes on at host s1" in text


class Link:
    """What an agent says to the head."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self.heard_of, self.told = list(said), []

    def heard(self) -> dict[str, Any] | None:
        """Return the next message."""
        return self.heard_of.pop(0) if self.heard_of else None

    def say(self, kind: str, **values: Any) -> bool:
        """Take what the agent says."""
        self.told.append((kind, values))
        return True


def client(id: int, rank: int) -> ClientState:
    """Return one of a place's clients."""
    return ClientState(id, 5, 0, 0, 0, True, rank=rank)


def test_an_agent_names_its_ranks_once_and_to_each_head() -> None:
    images, link = RemoteImages(), Link()
    images.link = link  # type: ignore[assignment]
    looks: list[list[ClientState]] = [
        *([client(0, -1)], [client(0, 3), client(1, 2)], [client(1, 2), client(0, 3)]),
        *([client(0, 3)], [client(0, 3)]),
    ]
    for at, clients in enumerate(looks):
        images.look(float(at), clients)
    assert [said["ranks"] for kind, said in link.told if kind == "ranks"] == [[2, 3], [3]]
    link.told.clear()
    link.heard_of.append({"kind": "welcome"})
    images.look(9.0, [client(0, 3)])
    assert ("ranks", {"ranks": [3]}) in link.told


# ---- the command ----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return what the head is asked, which does it."""
    found: list[tuple[Any, ...]] = []

    def ask(head: str, order: str, **values: Any) -> dict[str, Any]:
        found.append((head, order, values))
        drain = {"host": "h1", "place": 1, "to": values.get("to", ""), "left": False}
        return {"drain": drain, "places": [{"place": 1, "ranks": [1, 2, 3]}]}

    monkeypatch.setattr(hosts, "ask", ask)
    return found


def test_the_command_says_what_goes_along(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "wait_for_drain", lambda *_: (True, "place [1] is on host [s1]"))
    orders.move(rank=1, head="head:1", to="s1")
    assert asked == [("head:1", "move", {"rank": 1, "to": "s1"})]
    assert capsys.readouterr().out.splitlines() == [
        "rank 1: place 1 goes from host h1 to host s1 at the next line; ranks [2, 3] go with it",
        "rank 1 is moved: place [1] is on host [s1]",
    ]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([1], ""), ([0, 1], "; rank [0] goes with it"), ([], "")],
)
def test_one_rank_or_none_may_go_along(ranks: list[int], words: str) -> None:
    assert orders._with_it(1, ranks) == words


def test_the_command_ends_with_an_error_where_the_rank_stays(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "wait_for_drain", lambda *_: (False, "it was cancelled"))
    with pytest.raises(UsageError, match=r"rank \[1\] is not moved: it was cancelled"):
        orders.move(rank=1, head="head:1", to="s1")
    orders.move(rank=1, head="head:1", to="s1", wait=False)  # nothing is known of its end


def test_the_command_calls_it_off(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    orders.move(rank=1, head="head:1", cancel=True)
    assert asked == [("head:1", "cancel", {"rank": 1})]
    assert capsys.readouterr().out == "rank 1 is not moved\n"


@pytest.mark.parametrize("how", [{}, {"to": "s1", "cancel": True}])
def test_a_move_has_a_host_or_is_called_off(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="say either --to or --cancel"):
        orders.move(rank=1, head="head:1", **how)


def test_a_host_is_drained_to_the_one_that_was_named(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    orders.drain(host="h1", to="s1", head="head:1", wait=False)
    assert asked == [("head:1", "drain", {"host": "h1", "to": "s1"})]
    assert capsys.readouterr().out == "host h1: place 1 goes to host s1 at the next line\n"


@pytest.mark.parametrize("how", [{"gpu": 0}, {"host": "h1", "head": "head:1", "cancel": True}])
def test_a_name_is_for_hosts_that_are_to_be_drained(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--to "):
        orders.drain(to="s1", **how)
