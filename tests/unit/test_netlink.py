"""Messages of netlink: what is sent, how answers end, and that the kernel understands it."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from pyft.images import netlink, sockets

DATA = 20  # a kind of a message of some family


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return a link, and what stands for the kernel."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernel:
        ours.settimeout(0.2)
        yield ours, kernel


def code(number: int) -> bytes:
    return netlink.request(netlink.ERROR, 0, struct.pack("=i", number))


def test_a_request_has_its_length_before_it() -> None:
    message = netlink.request(DATA, netlink.DUMP, b"about")
    assert struct.unpack_from("=I", message) == (len(message),)
    assert message.endswith(b"about")


def test_attributes_begin_at_multiples_of_four_bytes() -> None:
    written = [(1, b""), (2, b"a"), (3, b"abc"), (4, b"abcd"), (5, b"abcde")]
    data = b"".join(netlink.attribute(*one) for one in written)
    assert len(data) == 4 + 8 + 8 + 8 + 12
    assert list(netlink.attributes(data)) == written


def test_flags_are_no_part_of_an_attributes_number() -> None:
    """The kernel marks what has attributes in it, and numbers of the network's order."""
    assert list(netlink.attributes(netlink.attribute(0xC003, b"in"))) == [(3, b"in")]


@pytest.mark.parametrize("data", [b"", b"\1", bytes(8), b"\3\0\1\0abcd"])
def test_attributes_without_length_are_none(data: bytes) -> None:
    assert list(netlink.attributes(data)) == []


def test_an_answer_of_several_packets_ends_where_it_says(
    link: tuple[socket.socket, socket.socket],
) -> None:
    ours, kernel = link
    one, two, three = (netlink.request(DATA, 0, text) for text in (b"one!", b"two", b"three"))
    kernel.send(one + two + b"\0")
    kernel.send(three)
    kernel.send(netlink.request(netlink.DONE, 0, bytes(4)))
    kernel.send(netlink.request(DATA, 0, b"of the next request"))
    assert list(netlink.answers(ours)) == [(DATA, b"one!"), (DATA, b"two"), (DATA, b"three")]


def test_an_acknowledgement_is_an_answer_and_the_last_one(
    link: tuple[socket.socket, socket.socket],
) -> None:
    ours, kernel = link
    kernel.send(code(0) + netlink.request(DATA, 0, b"of the next request"))
    assert list(netlink.answers(ours)) == [(netlink.ERROR, bytes(4))]


def test_what_the_kernel_refuses_is_raised(link: tuple[socket.socket, socket.socket]) -> None:
    ours, kernel = link
    kernel.send(code(-errno.EPERM))
    with pytest.raises(PermissionError, match="not permitted"):
        next(netlink.answers(ours))


def test_an_answer_that_never_ends_is_not_waited_for(
    link: tuple[socket.socket, socket.socket],
) -> None:
    """A message without length would be read for ever."""
    ours, kernel = link
    kernel.send(netlink.request(DATA, 0, b"last") + bytes(64))
    answers = netlink.answers(ours)
    assert next(answers) == (DATA, b"last")
    with pytest.raises(TimeoutError):
        next(answers)


def test_links_to_the_kernel_have_a_deadline() -> None:
    with netlink.connect(netlink.SOCK_DIAG) as link:
        assert link.gettimeout()


def test_the_kernel_names_the_other_end_of_a_socket() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert sockets.peer_of(one.fileno()) == sockets.inode_of(other.fileno())
    with socket.socket(socket.AF_UNIX) as alone, pytest.raises(OSError, match="no other end"):
        sockets.peer_of(alone.fileno())


def test_the_kernel_refuses_what_is_no_socket() -> None:
    with open("/dev/null") as file, pytest.raises(FileNotFoundError):
        sockets.peer_of(file.fileno())
