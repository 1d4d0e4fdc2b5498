"""Messages between our own processes: what comes in, and what their children inherit of it."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator

import pytest

from pyft.agent.process import messages
from pyft.agent.process.notes import make_note
from pyft.agent.supervisor.link import SupervisorLink


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_child_inherits_a_received_descriptor(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    assert messages.send(theirs, "two", (0, 1), name="x")
    got = messages.receive(ours)
    assert got is not None
    message, fds = got
    assert message == {"kind": "two", "name": "x"}
    assert [os.get_inheritable(fd) for fd in fds] == [False, False]
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize(
    "data",
    [b"{", b"\xff\xfe", b"[]", b"7", b"null", b"{}", b'{"kind":1}', b"[" * 60000, b"x" * 65536],
)
def test_damage_is_an_error_and_keeps_no_descriptor(
    ends: tuple[socket.socket, socket.socket], data: bytes
) -> None:
    ours, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    gc.collect()  # or what other tests have left goes meanwhile
    before = descriptors()
    socket.send_fds(theirs, [data], [0, 1])
    with pytest.raises(ValueError, match="is damaged"):
        messages.receive(ours)
    assert descriptors() == before


def test_more_descriptors_than_expected_are_closed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    before = descriptors()
    assert messages.send(theirs, "many", (0,) * 100)
    with pytest.raises(ValueError, match="cut off"):
        messages.receive(ours)
    assert descriptors() == before


def test_an_agent_keeps_as_many_descriptors_as_a_message_can_have(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """Of stores of ranks that have ended, in one note for its supervisor."""
    ours, theirs = ends
    before = descriptors()
    assert messages.send(theirs, "keep", (0,) * messages.MOST_DESCRIPTORS)
    got = messages.receive(ours, messages.MOST_DESCRIPTORS)
    assert got is not None
    assert len(got[1]) == messages.MOST_DESCRIPTORS
    for fd in got[1]:
        os.close(fd)
    assert descriptors() == before


def test_the_next_agent_is_given_as_many_descriptors_as_were_kept(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """Stores of ranks that have ended go with one note: more than a message has elsewhere."""
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    note = make_note("shares", {"kept": kept})
    messages.send(ends[0], "kept", (note, *kept), name="shares")
    messages.send(ends[0], "all")
    found = SupervisorLink(ends[1]).take_over()
    assert found.notes["shares"] == {"kept": kept}
    assert len(found.fds["shares"]) == len(kept)
    for fd in (note, *kept, *found.fds["shares"]):
        os.close(fd)


def test_the_other_side_has_ended(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    assert messages.receive(ours) is None


def test_the_last_words_of_one_that_had_not_read_all(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """As an agent that ends while its supervisor tells it of a child: else it is started again."""
    ours, theirs = ends
    messages.send(ours, "ended", pid=7)
    messages.send(theirs, "over")
    theirs.close()
    assert messages.receive(ours) == ({"kind": "over"}, [])
    assert messages.receive(ours) is None
