"""Which part of its time a rank was protected, and when that is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyft.agent.channel import page
from pyft.agent.channel.channel import Channel
from pyft.agent.channel.protocol import AttachRequest
from pyft.agent.lifecycle.protected import NOTE, Protected, why_bare
from pyft.wire import layout
from pyft.wire.layout import LOG_HEADER, MANIFEST, STORE_HEADER

SIZES = {f"PYFT_{part}_MB": "1" for part in ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")}


@pytest.fixture
def member() -> Iterator[SimpleNamespace]:
    sizes = SIZES | {"PYFT_PINNED_GB": "1", "PYFT_STORE_GB": "1"}
    channel = Channel.create(AttachRequest(5, 0, sizes), 1, sizes)
    channel.add_store(sizes)
    yield SimpleNamespace(id=3, channel=channel, server=None)
    channel.close()


def free(member: SimpleNamespace, position: int) -> None:
    """As the client does with the log before this position."""
    field = LOG_HEADER["committed"]
    os.pwrite(member.channel.log_fd, field.pack(position), field.offset)


def snapshot(member: SimpleNamespace, position: int) -> None:
    """As the server makes one the committed snapshot, whose replay begins there."""
    store, at = member.channel.store_fd, layout.PAGE_BYTES
    os.pwrite(store, MANIFEST["position"].pack(position), at + MANIFEST["position"].offset)
    field = STORE_HEADER["manifest_offset"]
    os.pwrite(store, at.to_bytes(8, "little") * 2, field.offset)
    page.write_store(store, current=1)


def looks(found: Protected, member: SimpleNamespace, first: int, last: int) -> None:
    """Look each second."""
    for second in range(first, last + 1):
        found.look({3: (member, why_bare(member, given_up=False))}, float(second))


def test_a_log_that_is_gone_behind_the_last_snapshot_counts(member: SimpleNamespace) -> None:
    said: list[str] = []
    kept: dict = {}
    found = Protected(lambda name, note: kept.update({name: note}), said.append)
    looks(found, member, 1, 100)
    assert found.share() == 1.0
    snapshot(member, 4096)
    free(member, 4096)
    looks(found, member, 101, 200)
    assert (found.share(), said) == (1.0, [])
    free(member, 8192)
    looks(found, member, 201, 300)
    assert found.share() == pytest.approx(1 - 100 / 299)
    (sentence,) = said
    for words in ("rank [0] on GPU [0]", "PYFT_RING_MB", "a fault meanwhile ends the job"):
        assert words in sentence
    snapshot(member, 8192)
    looks(found, member, 301, 499)
    assert found.share_of(3) == pytest.approx(1 - 100 / 498)
    following = Protected(lambda name, note: None, said.append)
    following.restore(kept[NOTE])
    looks(following, member, 1000, 1100)
    assert 0 < 1 - following.share() < 1 - 100 / 499, "an agent goes on with what was counted"
    assert len(said) == 1, "and says nothing again"


def test_a_short_time_without_protection_is_not_said(member: SimpleNamespace) -> None:
    said: list[str] = []
    found = Protected(lambda name, note: None, said.append)
    free(member, 64)
    for second in (1.0, 1.5):
        found.look({3: (member, why_bare(member, given_up=False))}, second)
    assert (found.share(), said) == (0.0, [])


def test_a_rank_that_was_given_up_is_not_protected(member: SimpleNamespace) -> None:
    found = Protected(lambda name, note: None, lambda text: None)
    looks(found, member, 1, 11)
    found.look({3: (member, why_bare(member, given_up=True))}, 21.0)
    assert found.share() == pytest.approx(0.5)


def test_the_share_of_one_that_has_ended_still_counts(member: SimpleNamespace) -> None:
    kept: dict = {}
    found = Protected(lambda name, note: kept.update({name: note}), lambda text: None)
    for second in range(1, 12):
        ranks = {id: (SimpleNamespace(id=id, channel=member.channel, server=None), why)
                 for id, why in ((3, "why" if second > 6 else ""), (4, ""))}  # fmt: skip
        found.look(ranks, float(second))
    assert found.share() == 0.5
    found.forget(3)
    found.forget(5)  # no look has met it
    assert (found.share(), found.share_of(4)) == (0.5, 1.0)
    assert [id for id, *_ in kept[NOTE]["times"]] == [4]
    following = Protected(lambda name, note: None, lambda text: None)
    following.restore(kept[NOTE])
    assert following.share() == 0.5


def writes(member: SimpleNamespace, steps: int, ring: int, arena: int) -> None:
    """As the client does: so many bytes by the end of so many steps."""
    page.write(member.channel.control_fd, steps=steps)
    for name, value in (("appended", ring), ("arena_head", arena)):
        field = LOG_HEADER[name]
        os.pwrite(member.channel.log_fd, field.pack(value), field.offset)


@pytest.mark.parametrize(
    ("ring", "arena", "advice"),
    [
        (300 << 10, 1 << 10, ""),  # three steps have room
        (400 << 10, 1 << 10, "[0.4 MB] of calls and [0.0 MB] of data: PYFT_RING_MB=2 would"),
        (101 << 20, 0, "[101.0 MB] of calls and [0.0 MB] of data: PYFT_RING_MB=512 would"),
        (9 << 10, 5 << 20, "[0.0 MB] of calls and [5.0 MB] of data: PYFT_ARENA_MB=16 would"),
        (1 << 20, 5 << 20, "PYFT_RING_MB=4 and PYFT_ARENA_MB=16 would be enough"),
        (1 << 50, 0, ""),  # no client writes this
    ],
)
def test_the_user_hears_how_large_the_log_would_have_to_be(
    member: SimpleNamespace, ring: int, arena: int, advice: str
) -> None:
    said: list[str] = []
    found = Protected(lambda name, note: None, said.append)
    first = 77 << 20  # before the first step a program loads its model
    for step in range(1, 9):
        writes(member, step, first + step * ring, first + step * arena)
        looks(found, member, 2 * step, 2 * step + 1)
    free(member, 64)
    looks(found, member, 20, 100)
    (sentence,) = said
    assert sentence.endswith("a fault meanwhile ends the job") if not advice else advice in sentence


def test_without_steps_no_size_is_known_to_be_enough(member: SimpleNamespace) -> None:
    said: list[str] = []
    found = Protected(lambda name, note: None, said.append)
    writes(member, 0, 77 << 20, 0)
    free(member, 64)
    looks(found, member, 1, 100)
    (sentence,) = said
    assert sentence.endswith("a fault meanwhile ends the job")
