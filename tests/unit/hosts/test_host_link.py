"""Connections between hosts: only who has the token is heard, and nothing damaged or too large is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from pyft.hosts.wire import link
from pyft.hosts.wire.link import Link, LinkError

SECRET = b"0123456789abcdef"


def pair(first: bytes = SECRET, second: bytes = SECRET) -> tuple[Link, Link]:
    """Return both ends of a connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    found: list[Link] = []
    thread = threading.Thread(target=lambda: found.append(_made(theirs, second, False)))
    thread.start()
    called = _made(ours, first, True)
    thread.join()
    return called, found[0]


def _made(sock: socket.socket, secret: bytes, calls: bool) -> Link:
    """Make a link of a socket that is none of TCP."""

    class Plain(socket.socket):
        def setsockopt(self, *_: object) -> None:
            """There is nothing to set."""

    return Link(Plain(fileno=sock.detach()), secret, calls=calls)


def test_messages_arrive_in_order_both_ways() -> None:
    here, there = pair()
    for number in range(3):
        here.send("one", number=number)
        there.send("two", number=number)
    for number in range(3):
        assert there.receive(1) == {"kind": "one", "number": number}
        assert here.receive(1) == {"kind": "two", "number": number}
    assert here.receive(0.01) is None


def test_another_token_is_refused_before_anything_is_read() -> None:
    """Else strangers fill the memory with frames of which the end never comes."""
    ours, theirs = socket.socketpair()
    refused: list[str] = []

    def called() -> None:
        try:
            _made(theirs, SECRET, False)
        except LinkError as error:
            refused.append(str(error))

    thread = threading.Thread(target=called)
    thread.start()
    with pytest.raises(LinkError, match="token"):
        _made(ours, b"fedcba9876543210", True)
    thread.join(20)
    assert "token is not the job's" in refused[0]


def test_who_proves_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting is no secret."""
    monkeypatch.setattr(link, "CONNECT_S", 0.2)
    ours, theirs = socket.socketpair()
    theirs.sendall(link.GREETING + bytes(32))
    with pytest.raises(LinkError, match="it says nothing"):
        _made(ours, SECRET, False)


def test_a_proof_that_is_sent_back_is_none() -> None:
    ours, theirs = socket.socketpair()

    def echo() -> None:
        for _ in range(2):
            theirs.sendall(theirs.recv(4096))

    threading.Thread(target=echo, daemon=True).start()
    with pytest.raises(LinkError, match="token"):
        _made(ours, SECRET, False)


def test_a_message_of_an_earlier_connection_is_refused() -> None:
    here, _ = pair()
    sent: list[bytes] = []
    here._writer.sendall = sent.append  # type: ignore[method-assign]
    here.send("claim", place=0)
    again, there = pair()
    again._writer.sendall(sent[0])
    with pytest.raises(LinkError, match="token"):
        there.receive(1)


def test_a_message_sent_twice_is_refused() -> None:
    here, there = pair()
    sent: list[bytes] = []
    plain = here._writer.sendall
    here._writer.sendall = sent.append  # type: ignore[method-assign]
    here.send("claim", place=0)
    plain(sent[0] * 2)
    assert there.receive(1)
    with pytest.raises(LinkError, match="token"):
        there.receive(1)


def _flip(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def _huge(data: bytes) -> bytes:
    return (link.LARGEST + 1).to_bytes(4, "big") + data[4:]


@pytest.mark.parametrize("change", [_flip, _huge])
def test_an_altered_frame_is_refused(change: Callable[[bytes], bytes]) -> None:
    here, there = pair()
    sent: list[bytes] = []
    plain = here._writer.sendall
    here._writer.sendall = sent.append  # type: ignore[method-assign]
    here.send("status", steps=1)
    plain(change(sent[0]))
    with pytest.raises(LinkError):
        there.receive(1)


@pytest.mark.parametrize("payload", [b"[]", b"{", b'{"kind": 1}', b'{"no": "kind"}', b"[" * 9999])
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    here, there = pair()
    mac = link._mac(here._out, 0, payload)
    here.send_bytes(link._length(payload) + mac + payload)
    with pytest.raises(LinkError, match="damaged"):
        there.receive(1)


def test_bytes_follow_a_message() -> None:
    here, there = pair()
    here.send("image")
    here.send_bytes(b"x" * 20_000)
    here.send("end")
    assert there.receive(1) == {"kind": "image"}
    taken = bytearray(20_000)
    there.receive_into(memoryview(taken), 1)
    assert taken == b"x" * 20_000
    assert there.receive(1) == {"kind": "end"}


def test_who_does_not_greet_is_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: everything at all\r\n\r\n" + b" " * 99)
    with pytest.raises(LinkError, match="protocol"):
        _made(ours, SECRET, False)


def test_a_connection_on_which_nothing_is_confirmed_ends() -> None:
    """The other host has lost its power, or its network: TCP would try for a quarter of an hour."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        found: list[Link] = []

        def called() -> None:
            found.append(Link(listener.accept()[0], SECRET, calls=False))

        thread = threading.Thread(target=called)
        thread.start()
        here = Link.to(listener.getsockname(), SECRET, send_s=0.5)
        thread.join(20)
        here._writer.setblocking(False)
        here._writer.send(b"x" * (1 << 20))  # more than the other end has room for
        with pytest.raises(LinkError):
            here.receive(60)
