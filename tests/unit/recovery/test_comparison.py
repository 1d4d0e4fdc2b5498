"""From tables in stores to what servers are told."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.replicas import comparison
from pyft.agent.replicas.comparison import Comparison
from pyft.agent.replicas.sharing import Sharing
from pyft.agent.replicas.spilling import Spilling
from pyft.recovery import events as ev
from pyft.recovery.replicas import Judged
from pyft.wire import messages as wire
from pyft.wire.layout import MANIFEST, MANIFEST_BLOCK, STORE_HEADER

AT = 8192


class Server(SimpleNamespace):
    """Remembers what it was told."""

    def send(self, message: wire.Message) -> bool:
        self.told.append((type(message), message.step))
        return True


def member(id: int) -> SimpleNamespace:
    fd = os.memfd_create("store")
    os.ftruncate(fd, 1 << 20)
    channel = SimpleNamespace(store_fd=fd, device=id, rank=10 + id)
    server = Server(told=[], alive=True, epoch=5 + id, gpu=id)
    return SimpleNamespace(id=id, channel=channel, server=server, given_up="")


def write(one: SimpleNamespace, cut: int, content: bytes, since: int = 0) -> None:
    """Put the table of a cut into a store."""
    base = page.window_base(one.id)
    outside = MANIFEST_BLOCK.pack(4096, 8, b"x" * 16, 0, 0)
    rows = MANIFEST_BLOCK.pack(base + 512, 100, content.ljust(16), 0, since) + outside
    os.pwrite(one.channel.store_fd, MANIFEST.pack(cut, 10 * cut, 2, 2, 0, 108, cut, b"") + rows, AT)


@pytest.fixture
def members() -> Iterator[dict[int, SimpleNamespace]]:
    made = {id: member(id) for id in (0, 1)}
    yield made
    for one in made.values():
        os.close(one.channel.store_fd)


def test_a_table_is_read_only_when_it_is_whole(members: dict) -> None:
    write(members[1], 3, b"same")
    fd = members[1].channel.store_fd
    assert comparison.read_table(fd, AT, 1, 30) == ({(512, 100): b"same".ljust(16)}, {}, {})
    assert comparison.read_table(fd, 1 << 20, 1, 30) is None
    assert comparison.read_table(fd, AT, 1, 20) is None, "that cut was dropped"
    os.pwrite(fd, MANIFEST.pack(3, 30, 2, 1 << 60, 0, 0, 0, b""), AT)
    assert comparison.read_table(fd, AT, 1, 30) is None


def agent(members: dict, suspected: list[ev.Suspected], notes: list[dict]) -> Comparison:
    """Return what an agent has; what it keeps for the next one can be read again."""

    def keep(note: dict, fds: Sequence[int] = ()) -> None:
        notes.append(json.loads(json.dumps(note)))

    sharing = Sharing(members, keep)
    return Comparison(
        members,
        lambda event: suspected.append(event) or [],
        lambda name, note: keep(note),
        sharing,
        Spilling(members, sharing, lambda seconds, action: None),
    )


def test_servers_are_ended_when_others_have_what_they_need(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison.messages, "say", lambda text: None)
    suspected: list[ev.Suspected] = []
    asked: list[tuple[list[int], Callable[[], None]]] = []
    compared = Comparison(
        members,
        lambda event: suspected.append(event) or [],
        lambda name, note: None,
        Sharing(members, lambda note, fds: None),
        SimpleNamespace(before=lambda ids, then: asked.append((ids, then))),
    )
    for one in members.values():
        compared.joined(one)
    for cut, (id, one) in itertools.product((1, 2, 3), members.items()):
        snapshotted(compared, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    [(ids, then)] = asked
    assert (ids, suspected) == (list(members), [])
    then()
    assert [event.id for event in suspected] == list(members)


def snapshotted(
    compared: Comparison, one: SimpleNamespace, cut: int, content: bytes, since: int = 0
) -> None:
    write(one, cut, content, since)
    epoch = one.server.epoch
    compared.received(one, ev.Received(one.id, epoch, wire.Staged(cut, AT, 10 * cut)))


def test_a_place_that_another_tensor_has_got_is_not_compared(members: dict) -> None:
    suspected: list[ev.Suspected] = []
    compared = agent(members, suspected, [])
    for one in members.values():
        compared.joined(one)
    for cut, (id, one) in itertools.product((1, 2, 3), members.items()):
        content = b"own%d" % id if cut == 3 else b"same"
        snapshotted(compared, one, cut, content, since=30 if cut == 3 else 10)
    for one in members.values():
        assert one.server.told == [(wire.Commit, cut) for cut in (1, 2, 3)]
    assert suspected == []


def test_the_next_agent_goes_on(members: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(comparison.messages, "say", said.append)
    suspected: list[ev.Suspected] = []
    notes: list[dict] = []
    first = agent(members, suspected, notes)
    for one in members.values():
        first.joined(one)
    for cut, (id, one) in itertools.product((1, 2, 3), members.items()):
        snapshotted(first, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    first.restarted(members[0])
    suspected.clear()
    second = agent(members, suspected, notes)
    second.adopt(notes[-1], (None, ()), list(members.values()))
    assert [second.arbitrates(id) for id in members] == [3, 3]
    second.resume()
    assert [one.id for one in suspected] == [1], "rank 0 has a new server already"
    snapshotted(second, members[0], 3, b"same")
    second.restarted(members[1])
    third = agent(members, suspected, notes)
    third.adopt(notes[-1], (None, ()), list(members.values()))
    assert [third.arbitrates(id) for id in members] == [0, 3]
    snapshotted(third, members[1], 3, b"same")
    assert "rank [11] on GPU [1] had something else in" in said[-1]
    fourth = agent(members, suspected, notes)
    fourth.adopt(notes[-1], (None, ()), list(members.values()))
    assert [one["rank"] for one in fourth.found] == [11], "in the report of every later agent"
    suspected.clear()
    fourth.resume()
    assert suspected == []


def test_a_suspect_may_have_ended_when_it_is_decided(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(comparison.messages, "say", said.append)
    notes: list[dict] = []
    first = agent(members, [], notes)
    for one in members.values():
        first.joined(one)
    for cut, (id, one) in itertools.product((1, 2, 3), members.items()):
        snapshotted(first, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    first.restarted(members[0])
    first.gone(members[1])
    gone = members.pop(1)  # its trace is saved
    try:
        (*_, note) = (note for note in notes if "suspects" in note)
        second = agent(members, [], [])
        second.adopt(note, (None, ()), list(members.values()))
        for one in (first, second):
            one.resume()
            snapshotted(one, members[0], 3, b"same")
            assert "ranks [10, 11]: " in said.pop()
    finally:
        members[1] = gone


def test_a_cut_of_which_no_agent_knows_any_more(members: dict) -> None:
    first = agent(members, [], [])
    for one in members.values():
        first.joined(one)
    for cut, one in itertools.product((1, 2), members.values()):
        snapshotted(first, one, cut, b"same")
    snapshotted(first, members[0], 3, b"same")  # waits for the other
    assert members[0].server.told[-1] == (wire.Commit, 2)
    second = agent(members, [], [])
    second.adopt(None, (None, ()), list(members.values()))
    second.received(members[0], ev.Received(0, 5, wire.Staged(4, 0)))
    assert members[0].server.told[-1] == (wire.Commit, 4), "cut 3 need not wait"


def test_a_suspect_that_the_next_agent_meets_is_not_settled(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server says again which cut it holds, before it is replaced."""
    monkeypatch.setattr(comparison.messages, "say", lambda text: None)
    notes: list[dict] = []
    first = agent(members, [], notes)
    for one in members.values():
        first.joined(one)
    for cut, (id, one) in itertools.product((1, 2, 3), members.items()):
        snapshotted(first, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    suspected: list[ev.Suspected] = []
    second = agent(members, suspected, notes)
    second.adopt(notes[-1], (None, ()), list(members.values()))
    snapshotted(second, members[1], 3, b"bad")
    second.received(members[1], ev.Received(1, 6, wire.Staged(4, 0)))
    assert (wire.Commit, 3) not in members[1].server.told
    assert (wire.Commit, 4) not in members[1].server.told
    second.resume()
    assert sorted(one.id for one in suspected) == [0, 1]
    for one in members.values():
        second.restarted(one)
    for one in members.values():
        snapshotted(second, one, 3, b"same")
    assert [one["rank"] for one in second.found] == [11]
    assert all(one.server.told[-1] == (wire.Commit, 3) for one in members.values())


def test_servers_compare_while_an_agent_is_adopting(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut that a server takes just then must not count without a comparison."""
    told: list[tuple[int, int]] = []
    write_store = page.write_store

    def watched(fd: int, **settings: int) -> None:
        if "compares" in settings:
            told.append((fd, settings["compares"]))
        write_store(fd, **settings)

    monkeypatch.setattr(page, "write_store", watched)
    agent(members, [], []).adopt(None, (None, ()), list(members.values()))
    assert sorted(told) == sorted((one.channel.store_fd, 1) for one in members.values())


def test_digests_of_two_kinds_are_not_compared(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(comparison.messages, "say", said.append)
    suspected: list[ev.Suspected] = []
    compared = agent(members, suspected, [])
    for one in members.values():
        compared.joined(one)
    os.pwrite(members[1].channel.store_fd, b"\1", STORE_HEADER["digest_kind"].offset)
    for cut in (1, 2, 3):
        for id, one in members.items():
            snapshotted(compared, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    for one in members.values():
        assert one.server.told == [(wire.Commit, cut) for cut in (1, 2, 3)]
    assert suspected == []
    (sentence,) = said
    assert "digests are of kinds [0, 1]" in sentence


def test_servers_are_told_suspected_and_named(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(comparison.messages, "say", said.append)
    suspected: list[ev.Suspected] = []
    notes: list[dict] = []
    compared = agent(members, suspected, notes)

    compared.joined(members[0])
    fd = members[0].channel.store_fd
    offset = STORE_HEADER["compares"].offset
    assert os.pread(fd, 1, offset) == b"\0", "there is nobody else"
    compared.joined(members[1])
    assert os.pread(fd, 1, offset) == b"\1"
    for cut in (1, 2, 3):
        for id, one in members.items():
            snapshotted(compared, one, cut, b"bad" if (cut, id) == (3, 1) else b"same")
    for one in members.values():
        assert one.server.told == [(wire.Commit, 1), (wire.Commit, 2)]
    assert [(s.id, s.epoch, s.fault.name) for s in suspected] == [
        (0, 5, "replica"),
        (1, 6, "replica"),
    ]
    for one in members.values():
        compared.restarted(one)
        assert compared.arbitrates(one.id) == 3
    snapshotted(compared, members[0], 3, b"same")
    assert compared.arbitrates(0) == 0
    snapshotted(compared, members[1], 3, b"same")
    assert "rank [11] on GPU [1] had something else in" in said[-1]
    assert compared.found == [{"rank": 11, "gpu": 1, "offset": 512, "bytes": 100, "cut": 3}]
    assert compared.earlier == 0
    compared.gone(members[1])
    snapshotted(compared, members[0], 3, b"same")
    assert members[0].server.told[-1] == (wire.Commit, 3), "nobody is left to wait for"
    assert os.pread(fd, 1, offset) == b"\0"


def test_of_old_corruptions_only_the_number_is_kept(
    members: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST", 2)
    monkeypatch.setattr(comparison.messages, "say", lambda text: None)
    notes: list[dict] = []
    compared = agent(members, [], notes)
    for one in members.values():
        compared.joined(one)
    for cut in range(1, 4):
        compared._judge(Judged(cut, (512, 100), (1,), (0, 1)))
    assert [one["cut"] for one in compared.found] == [2, 3]
    compared = agent(members, [], [])
    compared.adopt(notes[-1], (None, ()), [])
    assert ([one["cut"] for one in compared.found], compared.earlier) == ([2, 3], 1)
