"""What a member of etcd answers is checked, and one that does not answer is left for the next."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pyft.hosts.etcd import gateway
from pyft.hosts.etcd.gateway import Gateway, Put
from pyft.hosts.head.elected import Refused, Unanswered

SECONDS = 20.0


class Member(ThreadingHTTPServer):
    """Something that answers what it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.status, self.data = 200, b"{}"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def where(self) -> tuple[str, int]:
        """Return its address."""
        return "127.0.0.1", self.server_address[1]


class Answers(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Member

    def do_POST(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()
        self.wfile.write(self.server.data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def member() -> Iterator[Member]:
    """One member."""
    made = Member()
    yield made
    made.shutdown()
    made.server_close()


def test_what_is_asked_is_what_etcd_takes(member: Member) -> None:
    member.data = b'{"succeeded": true, "responses": [{}, {"response_range": {}}]}'
    made = Gateway([member.where])
    done = made.transact({"k": 7}, [Put("k", b"\0v", 5)], "k", SECONDS)
    assert done == (True, None)
    put = {"request_put": {"key": "aw==", "value": "AHY=", "lease": 5}}
    look = {"request_range": {"key": "aw=="}}
    holds = {"key": "aw==", "target": "CREATE", "result": "EQUAL", "create_revision": 7}
    asked = {"compare": [holds], "success": [put, look], "failure": [look]}
    assert member.asked == [("/v3/kv/txn", asked)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"succeeded": 5, "responses": [{}]}',
        b'{"succeeded": true}',
        b'{"succeeded": true, "responses": []}',
        b'{"succeeded": true, "responses": [5]}',
        b'{"succeeded": true, "responses": [{"response_range": 5}]}',
        b'{"succeeded": true, "responses": [{"response_range": {"kvs": [5]}}]}',
        b'{"succeeded": true, "responses": [{"response_range": {"kvs": [{"value": "AA=="}]}}]}',
        b'{"succeeded": true, "responses": [{"response_range": {"kvs": [{"key": "!"}]}}]}',
        b'{"succeeded": true, "responses": [{"response_range": {"kvs": [{"key": "/w=="}]}}]}',
        b'{"succeeded": true, "responses": [{"response_range": '
        b'{"kvs": [{"key": "aw==", "create_revision": "x"}]}}]}',
        b'{"error": "etcdserver: permission denied"}',
    ],
)
def test_nonsense_is_refused(member: Member, data: bytes) -> None:
    member.data = data
    with pytest.raises(Refused):
        Gateway([member.where]).transact({}, [], "k", SECONDS)


@pytest.mark.parametrize(("status", "error"), [(400, Refused), (302, Refused), (503, Unanswered)])
def test_an_answer_that_is_an_error(member: Member, status: int, error: type[Exception]) -> None:
    """503: the members have no leader now."""
    member.status, member.data = status, b'{"error": "why"}'
    with pytest.raises(error, match="why"):
        Gateway([member.where]).grant(5, SECONDS)


def test_an_endless_answer_is_not_read(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LARGEST", 100)
    member.data = b"{" + b" " * 200 + b"}"
    with pytest.raises(Unanswered, match="more than"):
        Gateway([member.where]).grant(5, SECONDS)


def test_the_next_member_is_asked(member: Member) -> None:
    member.data = b'{"ID": "77", "TTL": "5"}'
    gone = Member()
    gone.shutdown()
    gone.server_close()
    made = Gateway([gone.where, member.where])
    with pytest.raises(Unanswered):
        made.grant(5, SECONDS)
    assert made.grant(5, SECONDS) == (77, 5)
    assert made.grant(5, SECONDS) == (77, 5)


def test_a_lease_that_has_ended(member: Member) -> None:
    """etcd leaves a number out that is 0."""
    member.data = b'{"result": {"ID": "77"}}'
    assert Gateway([member.where]).keep(77, SECONDS) == 0


def test_all_pages_are_read(member: Member) -> None:
    made = Gateway([member.where])
    pages = [
        {"kvs": [{"key": "L2Ew", "create_revision": "3"}], "more": True},
        {"kvs": [{"key": "L2Ex", "create_revision": "4"}]},
    ]
    said = iter(pages)

    def post(path: str, body: str, seconds: float) -> tuple[int, bytes]:
        del path, seconds
        member.asked.append(("", json.loads(body)))
        return 200, json.dumps(next(said)).encode()

    made._post = post  # type: ignore[method-assign]
    assert [one.key for one in made.read("/a", SECONDS)] == ["/a0", "/a1"]
    assert [body["key"] for _, body in member.asked] == ["L2E=", "L2EwAA=="]


@pytest.mark.parametrize(
    ("status", "data", "error"),
    [
        (429, b'{"error": "etcdserver: too many requests", "code": 8}', Unanswered),
        (429, b'{"error": "etcdserver: mvcc: database space exceeded", "code": 8}', Refused),
        (429, b"<html>", Refused),
        (502, b"<html>bad gateway</html>", Unanswered),
        (503, b"", Unanswered),
    ],
)
def test_an_etcd_that_has_too_much_to_do_is_asked_again(
    member: Member, status: int, data: bytes, error: type[Exception]
) -> None:
    """A head that is refused something ends."""
    member.status, member.data = status, data
    with pytest.raises(error):
        Gateway([member.where]).grant(5, SECONDS)
