"""Shared snapshots between stores and servers: what the agent writes, says and keeps."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.replicas.comparison import Comparison
from pyft.agent.replicas.sharing import Sharing
from pyft.agent.replicas.spilling import Spilling
from pyft.recovery import events as ev
from pyft.wire import messages as wire
from pyft.wire.layout import (
    ELSEWHERE,
    MANIFEST,
    MANIFEST_BLOCK,
    SHARED_BLOCK,
    STORE_HEADER,
)

TABLE_AT, SHARES_AT, ROOM = 8192, 16384, 2  # room for so many rows
KEYS = [(0, 1 << 20), (1 << 20, 1 << 19), (1 << 21, 1 << 18), (1 << 22, 100)]


class Server(SimpleNamespace):
    def send(self, message: wire.Message) -> bool:
        final = isinstance(message, wire.Commit) and message.final
        self.told.append((type(message), message.step, int(final)))
        return True


def member(id: int) -> SimpleNamespace:
    fd = os.memfd_create("store")
    os.ftruncate(fd, 1 << 20)
    page.write_store(fd, shares_offset=SHARES_AT, shares_bytes=ROOM * SHARED_BLOCK.size)
    channel = SimpleNamespace(store_fd=fd, device=id, rank=10 + id)
    server = Server(told=[], alive=True, epoch=5, gpu=id)
    return SimpleNamespace(id=id, channel=channel, server=server, given_up="")


@pytest.fixture
def members() -> Iterator[dict[int, SimpleNamespace]]:
    made = {id: member(id) for id in (0, 1)}
    yield made
    for one in made.values():
        os.close(one.channel.store_fd)


@pytest.fixture
def notes() -> dict[str, dict]:
    return {}


@pytest.fixture
def agent(members: dict, notes: dict) -> Comparison:
    made = next_agent(members, notes)
    for one in members.values():
        made.joined(one)
    for step, one in itertools.product((1, 2), members.values()):
        snapshot(made, one, step)
    return made


def next_agent(members: dict, notes: dict) -> Comparison:
    def keep(name: str, note: dict, fds: Sequence[int] = ()) -> None:
        notes[name] = json.loads(json.dumps(note))
        notes["fds"] = [os.dup(fd) for fd in fds]  # as the supervisor does

    sharing = Sharing(members, lambda note, fds: keep("shares", note, fds))
    spilling = Spilling(members, sharing, lambda seconds, action: None)
    return Comparison(members, lambda event: [], keep, sharing, spilling)


def rows(one: SimpleNamespace) -> dict[tuple[int, int], int]:
    """Return what a server reads."""
    header = os.pread(one.channel.store_fd, 4096, 0)
    names = ("shares_version", "shares_rows", "shares")
    version, count, shares = STORE_HEADER.read(header, *names).values()
    assert version % 2 == 0
    assert shares == bool(version)
    data = os.pread(one.channel.store_fd, count * SHARED_BLOCK.size, SHARES_AT)
    base = page.window_base(one.channel.device)
    return {(at - base, size): by for at, size, by in SHARED_BLOCK.each(data)}


def snapshot(agent: Comparison, one: SimpleNamespace, step: int, keys: list = KEYS) -> None:
    """Let a server take a cut as it is told to, and say so."""
    base, others = page.window_base(one.channel.device), rows(one)
    table = b"".join(
        MANIFEST_BLOCK.pack(
            base + at,
            size,
            b"%d" % (at + step),
            ELSEWHERE + others.get((at, size), -ELSEWHERE),
            0,
        )
        for at, size in keys
    )
    head = MANIFEST.pack(step, 10 * step, 2, len(keys), 0, 0, step, b"")
    os.pwrite(one.channel.store_fd, head + table, TABLE_AT)
    agent.received(one, ev.Received(one.id, 5, wire.Staged(step, TABLE_AT, 10 * step)))


def hold(agent: Comparison, one: SimpleNamespace, step: int) -> None:
    agent.received(one, ev.Received(one.id, 5, wire.Prepared(step, True, 10 * step)))


def test_what_is_the_same_twice_is_kept_once(members: dict, agent: Comparison) -> None:
    assert rows(members[1]) == {KEYS[0]: 0}
    assert rows(members[0]) == {KEYS[1]: 1, KEYS[2]: 1}, "and the smallest by both"
    assert members[0].server.told == [(wire.Commit, 1, 1), (wire.Commit, 2, 1)]


def test_what_has_no_room_is_snapshotted_by_each(members: dict) -> None:
    fd = members[0].channel.store_fd
    page.write_shares(fd, [(page.window_base(0) + at, size, 1) for at, size in reversed(KEYS)])
    page.write_store(fd, shares=1)
    assert rows(members[0]) == dict.fromkeys(KEYS[:ROOM], 1), "the largest ones"


def test_a_cut_counts_when_all_parts_are_there(
    members: dict, agent: Comparison, notes: dict
) -> None:
    for one in members.values():
        snapshot(agent, one, 3)
        assert one.server.told[-1] == (wire.Commit, 3 if one.id else 2, int(not one.id))
    assert members[0].server.told[-1] == (wire.Commit, 3, 0), "compared"
    hold(agent, members[0], 3)
    assert agent.sharing.entry(0) == 0
    hold(agent, members[1], 3)
    assert all(one.server.told[-1] == (wire.Commit, 3, 1) for one in members.values())
    assert agent.sharing.entry(0) == 30
    assert [row[3] for row in notes["shares"]["ranks"]] == [30, 30]


def test_a_cut_that_must_not_wait(members: dict, agent: Comparison) -> None:
    snapshot(agent, members[0], 3)
    agent.received(members[0], ev.Received(0, 5, wire.DecisionRequest(3)))
    assert members[0].server.told[-1] == (wire.Abort, 3, 0)


def test_the_next_agent_repeats_what_was_decided(
    members: dict, agent: Comparison, notes: dict
) -> None:
    for one in members.values():
        snapshot(agent, one, 3)
        hold(agent, one, 3)
    snapshot(agent, members[0], 4)
    for one in members.values():
        one.server.told.clear()
    second = next_agent(members, notes)
    second.adopt(notes.get("comparison"), (notes["shares"], notes["fds"]), list(members.values()))
    assert all(one.server.told == [(wire.Commit, 3, 1)] for one in members.values())
    hold(second, members[0], 4)
    assert members[0].server.told[-1] == (wire.Abort, 4, 0), "it has not heard of that cut"


def test_a_block_that_its_owner_has_freed_is_not_left_to_it_again(
    members: dict, agent: Comparison
) -> None:
    owner, other = members[1], members[0]
    for step, keys in ((3, [KEYS[0], KEYS[2]]), (4, KEYS)):
        snapshot(agent, other, step)
        hold(agent, other, step)
        snapshot(agent, owner, step, keys)
        hold(agent, owner, step)
        kind = wire.Abort if step == 3 else wire.Commit
        assert other.server.told[-1][:2] == (kind, step)
        assert rows(other) == {KEYS[2]: 1}
    assert other.server.told[-1] == (wire.Commit, 4, 1)


def test_the_first_plan_of_the_next_agent_reaches_everybody(
    members: dict, agent: Comparison, notes: dict
) -> None:
    second = next_agent(members, notes)
    second.adopt(notes.get("comparison"), (notes["shares"], notes["fds"]), list(members.values()))
    second.sharing.plan([(KEYS[1], {0, 1})])
    assert [rows(one) for one in members.values()] == [{}, {KEYS[1]: 0}]


def test_a_store_is_kept_for_as_long_as_it_is_named(
    members: dict, agent: Comparison, notes: dict
) -> None:
    for one in members.values():
        snapshot(agent, one, 3)
        hold(agent, one, 3)
    members[1].server.alive = False
    agent.gone(members[1])
    kept = agent.sharing.store(1)
    assert kept not in (-1, members[1].channel.store_fd)
    second = next_agent(members, notes)
    second.adopt(notes.get("comparison"), (notes["shares"], notes["fds"]), [members[0]])
    assert os.path.sameopenfile(second.sharing.store(1), kept)
    assert rows(members[0]) == {}, "nothing new is left to it"
    snapshot(agent, members[0], 4)
    hold(agent, members[0], 4)
    assert members[0].server.told[-1] == (wire.Commit, 4, 1)
    assert notes["fds"] == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(kept)
    assert agent.sharing.store(7) == -1
