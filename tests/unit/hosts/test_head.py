"""The head as it is called: who has the token and says what can be is heard, and nobody else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyft.cli import hosts
from pyft.errors import PyftError, UsageError
from pyft.hosts.head.head import Head
from pyft.hosts.head.holders import Topology
from pyft.hosts.head.ledger import FileLedger
from pyft.hosts.wire.link import Link, LinkError

SECRET = b"0123456789abcdef"
MOST = 12  # connections
Where = tuple[str, int]


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Where]:
    """A head for two places, which waits for nobody's goodbye."""
    monkeypatch.setattr("pyft.hosts.head.head.END_S", 0.1)
    monkeypatch.setattr("pyft.hosts.head.head.MOST_CONNECTIONS", MOST)
    listener = socket.create_server(("127.0.0.1", 0))
    where = listener.getsockname()
    made = Head(listener, SECRET, 2, FileLedger(tmp_path / "ledger"), lease=20.0, every=0.0)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(made.run()))
    thread.start()
    yield where
    for place in range(2):  # it ends when all places have
        link, said = called(where, role="host", place=place, host=f"h{place}", life=0)
        if said["kind"] == "refused":
            link.close()
            link, _ = called(where, role="host", place=place, host=f"h{place}", life=1)
        link.send("done", code=0, life=1)
    thread.join(30)
    assert codes == [0]


def called(where: Where, **hello: Any) -> tuple[Link, dict[str, Any]]:
    """Call the head; return the link and its answer."""
    link = Link.to(where, SECRET)
    link.send("hello", **hello)
    return link, link.receive(5) or {}


def test_a_place_is_claimed_and_its_lease_renewed(head: Where) -> None:
    link, said = called(head, role="host", place=0, host="h0", life=0)
    assert (said["kind"], said["life"], said["lease_s"]) == ("welcome", 1, 20.0)
    link.send("renew", number=5, host="h0", life=1)
    assert link.receive(5) == {"kind": "renewed", "number": 5}
    _, other = called(head, role="host", place=0, host="h9", life=0)
    assert other["kind"] == "refused"
    assert "is that of host [h0]" in other["why"]


def test_a_host_says_in_which_failure_domain_it_is(
    head: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(Topology, "note", lambda _, host, domain: noted.append((host, domain)))
    hello = {"role": "host", "place": 0, "host": "h0", "life": 0}
    _, said = called(head, **hello, domain="top.r1")
    assert said["kind"] == "welcome"
    link = Link.to(head, SECRET)
    link.send("hello", **hello | {"domain": "../r1"})
    with pytest.raises(LinkError):
        link.receive(5)
    assert noted == [("h0", "top.r1")]


def test_an_agent_without_its_place_is_refused(head: Where) -> None:
    _, said = called(head, role="agent", place=0, life=1, restored=0, address="h0")
    assert said["kind"] == "refused"
    called(head, role="host", place=0, host="h0", life=0)
    _, said = called(head, role="agent", place=0, life=1, restored=0, address="h0")
    assert said["kind"] == "welcome"


def test_an_operator_is_told_how_the_job_is(head: Where) -> None:
    called(head, role="host", place=0, host="h0", life=0)
    _, said = called(head, role="operator", order="status")
    assert said["kind"] == "answer"
    places = [(p["place"], p["host"], p["state"]) for p in said["places"]]
    assert places == [(0, "h0", "has no agent"), (1, "", "has not started")]
    assert "place 1: has not started" in "\n".join(hosts.lines(said))


def test_an_order_that_cannot_be_is_refused_with_its_reason(
    head: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_TOKEN", SECRET.decode())
    called(head, role="host", place=0, host="h0", life=0)
    where = f"{head[0]}:{head[1]}"
    for order, host, why in (
        ("drain", "h7", "is none of this job"),
        ("drain", "h0", "no spare host is there"),
        ("cancel", "h0", "is not being drained"),
    ):
        with pytest.raises(UsageError, match=why):
            hosts.ask(where, order, host=host)
    monkeypatch.setenv("PYFT_TOKEN", "fedcba9876543210")
    with pytest.raises(UsageError, match="see PYFT_TOKEN"):
        hosts.ask(where, "status")


def test_a_drain_is_in_the_ledger_and_its_end_is_told(
    head: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_TOKEN", SECRET.decode())
    where = f"{head[0]}:{head[1]}"
    called(head, role="host", place=0, host="h0", life=0)
    spare, _ = called(head, role="spare", host="s0", address="10.0.0.9", port=1000, images=[])
    assert hosts.ask(where, "drain", host="h0")["drain"]["place"] == 0
    assert '"kind": "drain"' in (tmp_path / "ledger").read_text()
    assert hosts.ask(where, "cancel", host="h0")["drain"] is None
    assert hosts.wait_for_drain(where, "h0") == (False, "it was cancelled")
    spare.close()


def test_a_rank_is_moved_that_an_agent_has_named(
    head: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFT_TOKEN", SECRET.decode())
    where = f"{head[0]}:{head[1]}"
    host, _ = called(head, role="host", place=0, host="h0", life=0)
    agent, _ = called(head, role="agent", place=0, life=1, restored=0, address="h0")
    spare, _ = called(head, role="spare", host="s0", address="10.0.0.9", port=1000, images=[])
    agent.send("ranks", ranks=[4, 5])
    wait_for(lambda: hosts.ask(where, "status")["places"][0]["ranks"] == [4, 5])
    assert hosts.ask(where, "move", rank=5, to="s0")["drain"]["to"] == "s0"
    assert '"to": "s0"' in (tmp_path / "ledger").read_text()
    with pytest.raises(UsageError, match="rank \\[0\\] is none of this job"):
        hosts.ask(where, "cancel", rank=0)
    assert hosts.ask(where, "cancel", rank=4)["drain"] is None
    assert hosts.wait_for_drain(where, "h0") == (False, "it was cancelled")
    for link in (host, agent, spare):
        link.close()


def test_a_wrong_token_is_refused_and_nobody_else_notices(
    head: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pyft.hosts.head.head.messages.say", said.append)
    link, _ = called(head, role="host", place=0, host="h0", life=0)
    with pytest.raises(LinkError, match="token"):
        Link.to(head, b"fedcba9876543210")
    link.send("renew", number=1, host="h0", life=1)
    assert link.receive(5) == {"kind": "renewed", "number": 1}
    wait_for(lambda: "is refused: its token is not the job's" in "".join(said))


def test_the_end_of_a_place_is_in_the_ledger_before_it_is_noted(
    head: Where, tmp_path: Path
) -> None:
    link, _ = called(head, role="host", place=0, host="h0", life=0)
    link.send("done", code=0, life=1)
    assert link.receive(5) == {"kind": "noted"}
    assert '"kind": "done"' in (tmp_path / "ledger").read_text()


@pytest.mark.parametrize(
    "hello",
    [
        {"role": "host", "place": 2, "host": "h", "life": 0},
        {"role": "host", "place": -1, "host": "h", "life": 0},
        {"role": "host", "place": True, "host": "h", "life": 0},
        {"role": "host", "place": 0, "host": "../h", "life": 0},
        {"role": "host", "place": 0, "host": "h", "life": "1"},
        {"role": "king", "place": 0, "host": "h", "life": 0},
        {"role": "operator", "order": "abdicate"},
        {"role": "operator", "order": "drain", "host": "../h"},
        {"role": "operator", "order": "drain", "host": "h", "to": "../h"},
        {"role": "operator", "order": "cancel", "host": 7},
        {"role": "operator", "order": "cancel", "rank": "1"},
        {"role": "operator", "order": "move", "rank": -1, "to": "s0"},
        {"role": "operator", "order": "move", "rank": 0},
        {"role": "spare", "host": "s", "address": "a b", "port": 1, "images": []},
        {"role": "spare", "host": "s", "address": "a", "port": 70000, "images": []},
        {"role": "spare", "host": "s", "address": "a", "port": 1, "images": [[1]]},
        {"role": "spare", "host": "s", "address": "a", "port": 1, "images": [[1, "x"]]},
    ],
)
def test_what_cannot_be_ends_the_connection(head: Where, hello: dict[str, Any]) -> None:
    link = Link.to(head, SECRET)
    link.send("hello", **hello)
    with pytest.raises(LinkError):
        link.receive(5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("status", {"steps": -1, "step_us": 1}),
        ("ranks", {"ranks": [0, -1]}),
        ("ranks", {"ranks": [0] * 1025}),
        ("ranks", {"ranks": 3}),
        ("lacks_gpu", {"round": 0, "why": 3, "happened": []}),
        ("lacks_gpu", {"round": 0, "why": "", "happened": [-1]}),
        ("lacks_gpu", {"why": "", "happened": []}),
        ("held", {"step": 1, "lines": [[1, 2, 3]]}),
        ("held", {"step": 1, "lines": "x"}),
        ("want_id", {"round": 0, "client": 0, "key": 1, "made_as": "xyz"}),
        ("want_id", {"round": 0, "client": 0, "key": 1, "made_as": "ab" * 999}),
        ("want_id", {"round": 0, "client": 0, "key": 1 << 70, "made_as": ""}),
        ("lost", {"why": 5}),
        ("relay", {"round": 0, "to": 2, "data": "YWJj"}),
        ("relay", {"round": -1, "to": 1, "data": "YWJj"}),
    ],
)
def test_an_agent_that_says_what_cannot_be_is_cut_off(
    head: Where, kind: str, values: dict[str, Any]
) -> None:
    host, _ = called(head, role="host", place=0, host="h0", life=0)
    link, _ = called(head, role="agent", place=0, life=1, restored=0, address="h0")
    link.receive(5)  # nothing is under way
    link.send(kind, **values)
    with pytest.raises(LinkError):
        link.receive(5)
    host.send("renew", number=1, host="h0", life=1)
    assert host.receive(5) == {"kind": "renewed", "number": 1}


def test_what_programs_of_two_places_say_is_passed_on(head: Where) -> None:
    """When all places are there, and of this round; what is none of that is dropped."""
    agents = []
    for place in range(2):
        called(head, role="host", place=place, host=f"h{place}", life=0)
        hello = {"role": "agent", "place": place, "life": 1, "restored": 0}
        agents.append(called(head, **hello, address=f"10.0.0.{place}")[0])
    for agent in agents:
        heard = [agent.receive(5) for _ in range(2)]
        places = {"kind": "places", "addresses": ["10.0.0.0", "10.0.0.1"]}
        assert places in heard
    agents[0].send("relay", round=1, to=1, data="b2xk")  # of a round that has not begun
    agents[0].send("relay", round=0, to=0, data="b3du")  # to itself
    agents[0].send("relay", round=0, to=1, data="YWJj")
    assert agents[1].receive(5) == {"kind": "relay", "round": 0, "data": "YWJj"}
    agents[0].send("relay", round=0, to=1, data="no data?")
    with pytest.raises(LinkError):
        agents[0].receive(5)


def test_a_caller_that_is_gone_before_its_welcome_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the head would ask a connection that it has closed whether there is room for a word."""
    ledger = FileLedger(None)
    monkeypatch.setattr(ledger, "is_shared", True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Head(listener, SECRET, 1, ledger, lease=20.0, every=0.0)
    where = {"role": "host", "place": 0, "host": "h0"}
    for hello in (where | {"life": 0}, where | {"life": 1}, AGENT):
        sock, other = socket.socketpair()
        with other:
            link = Gone(sock)
            with pytest.raises(OSError, match="gone"):
                made._introduced(link, {"kind": "hello", **hello})  # type: ignore[arg-type]
            assert link.is_closed
            assert made._links == {}
            made._say_here()
    assert not made._coordinator.facts.places[0].present


def test_a_flood_of_connections_is_bounded_and_the_job_goes_on(
    head: Where,
) -> None:
    """Strangers fill all places for connections; who is connected stays so, and they are let go."""
    host, _ = called(head, role="host", place=0, host="h0", life=0)
    strangers = [socket.create_connection(head) for _ in range(MOST + 20)]
    ended = 0
    for one in strangers:
        one.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while one.recv(4096):  # the greeting; then the end, for who is one too many
                pass
            ended += 1
    assert ended >= 20
    host.send("renew", number=1, host="h0", life=1)
    assert host.receive(5) == {"kind": "renewed", "number": 1}
    for one in strangers:
        one.close()
    wait_for(lambda: answers(head))


def answers(head: Where) -> bool:
    """Say whether the head takes a connection."""
    try:
        return called(head, role="host", place=1, host="h1", life=0)[1]["kind"] == "welcome"
    except LinkError:
        return False


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes about within seconds."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_next_head_does_not_take_places_earlier(tmp_path: Path) -> None:
    """Hosts stop themselves by the lease that the first head has told them."""
    for lease in (20.0, 2.0):
        ledger = FileLedger(tmp_path / "ledger")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            made = Head(listener, SECRET, 2, ledger, lease=lease, every=0.0)
        assert made._coordinator.lease == 20.0
        ledger.close()


AGENT = {"role": "agent", "place": 0, "life": 1, "restored": 0, "address": "h0"}


class Gone(Link):
    """A connection whose other end is gone when it is to be welcomed."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self._writer = sock, sock.dup()

    def send(self, kind: str, **values: Any) -> None:
        """Raise."""
        raise ConnectionResetError("gone")

    @property
    def is_closed(self) -> bool:
        """Say whether it was closed here."""
        return self.socket.fileno() < 0


class Full(FileLedger):
    """A ledger whose disk is full after the first entry."""

    def write(self, entry: dict[str, Any]) -> None:
        """Write the first one."""
        if self.entries:
            raise OSError(28, "No space left on device")
        self.entries.append(entry)


def test_a_decision_that_is_not_on_disk_is_told_to_nobody() -> None:
    """The head ends, so that another one reads what has been decided."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Head(listener, SECRET, 1, Full(None), lease=20.0, every=0.0)
    ended: list[str] = []

    def run() -> None:
        try:
            made.run()
        except PyftError as error:
            ended.append(str(error))

    threading.Thread(target=run, daemon=True).start()
    link = Link.to(listener.getsockname(), SECRET)
    link.send("hello", role="host", place=0, host="h0", life=0)
    with pytest.raises(LinkError):
        link.receive(5)
    for _ in range(600):
        if ended:
            break
        threading.Event().wait(0.05)
    assert "No space left on device" in ended[0]
