"""Whatever a client writes into its memory, the agent goes on, and loses no more than its rank."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.channel import page, untrusted
from pyft.agent.channel.channel import Channel, save_log
from pyft.agent.channel.protocol import AttachRequest
from pyft.agent.client_states import client_state_of
from pyft.agent.lifecycle.audits import Audits
from pyft.agent.lifecycle.protected import why_bare
from pyft.agent.lifecycle.router import Router
from pyft.agent.lifecycle.watch import Watch
from pyft.agent.members.member import Member
from pyft.agent.operators import metrics
from pyft.agent.replicas.comparison import read_table
from pyft.errors import AttachError, ConfigError
from pyft.recovery import classify, events
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.trace import live
from pyft.wire import layout
from pyft.wire import messages as wire
from pyft.wire.layout import ATTACH_REQUEST, CONTROL_PAGE, ENTRY_HEADER, LOG_HEADER, STORE_HEADER

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
from agent_inputs import KNOBS, Agent  # noqa: E402

EXTREMES = (0, 1, 7, 63, 64, 4096, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
NAMED = [LOG_HEADER[name].offset for name in untrusted.LOG_COUNTERS]
CONTROL = sorted(field.offset for field in CONTROL_PAGE.fields.values())


class Server(SimpleNamespace):
    """A server of which nothing is said, or that cannot be spoken to."""


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    """A member with memory of its own, which starts out as a client finds it."""
    request = AttachRequest(os.getpid(), 0, KNOBS)
    channel = Channel.create(request, 1, KNOBS)
    server = Server(pid=1, epoch=1, gpu=0, alive=True, status=75 << 8)
    made = Member(0, channel, None, KNOBS, tmp_path, server, servers=1)  # type: ignore[arg-type]
    yield made
    channel.close()


class Coordinator(Agent):
    """What a watch, metrics and incidents see of the agent; the plan hears of nothing."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.members = {0: member}

    def event(self, event: events.Event) -> list[str]:
        self.said.append(event)
        return []


def scribble(dice: random.Random, member: Member) -> None:
    """Change a field, or some bytes, of a page, as a client could."""
    fd, places = dice.choice([(member.channel.log_fd, NAMED), (member.channel.control_fd, CONTROL)])
    if dice.random() < 0.8:
        value = dice.choice([*EXTREMES, dice.getrandbits(64), dice.getrandbits(20)])
        os.pwrite(fd, struct.pack("<Q", value), dice.choice(places))
    else:
        os.pwrite(fd, dice.randbytes(dice.randrange(1, 300)), dice.randrange(4096))


def look(member: Member, servers: Coordinator, watch: Watch) -> None:
    """Do all that an agent does often."""
    watch.look()
    servers.protected.look(
        {0: (member, why_bare(member, given_up=False))}, float(len(servers.said))
    )
    answers = (member.said_goodbye(), member.is_main(), member.drained(), member.channel.status())
    json.dumps([answers, member.describe(), member.channel.header(), member.death_sentence()])
    rank = servers.plan.ranks[0]
    fault = classify.of_exit(75 << 8)
    servers.incidents.died(member, rank, fault)
    servers.incidents.started(member, rank)
    servers.incidents.live(member)
    servers.incidents.recount(member)
    assert all(c.isprintable() for c in page.read(member.channel.control_fd).fault_text)
    assert all(c.isprintable() for c in member.channel.status()[1])
    del servers.incidents.all[:], servers.incidents._members[:]


def test_no_value_ends_an_agent(member: Member) -> None:
    dice, servers = random.Random(1), Coordinator(member)
    watch = Watch(servers)  # type: ignore[arg-type]
    others = asdict(servers.plan.ranks[1])
    fds = (member.channel.log_fd, member.channel.control_fd)
    good = [(fd, os.pread(fd, layout.PAGE_BYTES, 0)) for fd in fds]
    for number in range(10_000):
        if number % 5 == 0:  # or all would be too damaged to be looked at twice
            for fd, page_before in good:
                os.pwrite(fd, page_before, 0)
        scribble(dice, member)
        look(member, servers, watch)
    assert {event.id for event in servers.said} == {0}, "nobody else is suspected"
    rows = {event.fault.row.name for event in servers.said if isinstance(event, events.Suspected)}
    assert rows >= {"ring-broken"}
    assert asdict(servers.plan.ranks[1]) == others


def test_no_two_processes_have_the_same_labels(member: Member) -> None:
    """Prometheus refuses a text with two values of one name, and with that all others."""
    child = Member(1, member.channel, None, KNOBS, Path(), member.server)  # type: ignore[arg-type]
    child.channel = Channel.create(AttachRequest(9, 0, KNOBS), 1, KNOBS, 2)
    servers = Coordinator(member)
    servers.members[1] = child
    names = []
    for steps in (0, 5):
        CONTROL_PAGE["steps"].put(child.channel.control_fd, steps)
        lines = metrics.text(servers).splitlines()  # type: ignore[arg-type]
        names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
        assert len(set(names)) == len(names)
        pid = f"{os.getpid()}" if steps else "9-2"
        assert f'pyft_server_alive{{device="0",pid="{pid}",rank="0"}}' in names
        assert 'pyft_server_alive{device="0",rank="0"}' in names
    child.channel.close()


def test_no_value_keeps_a_trace_from_being_saved(member: Member, tmp_path: Path) -> None:
    dice, servers = random.Random(2), Coordinator(member)
    meta, copy = {"agent_pid": os.getpid()}, tmp_path / "copy.ring"
    for _ in range(200):
        for _ in range(5):
            scribble(dice, member)
        state = live.look(meta, member.describe())
        json.dumps(asdict(state))
        assert metrics.text(servers)  # type: ignore[arg-type]
        save_log(member.channel.log_fd, copy, member.channel.areas)
        live.recent_entries(copy)
        member.channel.call_counts(tmp_path)


def test_geometry_is_remembered(member: Member) -> None:
    """Where the goodbye is looked for the client does not say."""
    channel, areas = member.channel, member.channel.areas
    assert channel.damage() == ""
    mark = ENTRY_HEADER.pack(64, layout.Mark.GOODBYE, 0, 1).ljust(64, b"\0")
    os.pwrite(channel.log_fd, mark, areas.ring_offset)
    LOG_HEADER["appended"].put(channel.log_fd, 64)
    LOG_HEADER["next_seq"].put(channel.log_fd, 2)
    assert member.said_goodbye()
    for name, value in asdict(areas).items():
        for wrong in (0, 2**63, 2**64 - 1, value + 4096):
            LOG_HEADER[name].put(channel.log_fd, wrong)
            assert member.said_goodbye()
            assert f"{name} of the log is [{wrong}], not [{value}]" in channel.damage()
        LOG_HEADER[name].put(channel.log_fd, value)
    assert channel.damage() == ""
    adopted = Channel.adopt(json.loads(json.dumps(channel.note())), channel.fds())
    assert adopted.areas == areas


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("magic", 0, "begins with"),
        ("reply_offset", 2**64 - 1, "parts of the control page"),
        ("completion_offset", 1, "parts of the control page"),
        ("status", 77, r"status in the control page is \[77\]"),
        ("phase", 77, r"phase in the control page is \[77\]"),
    ],
)
def test_damage_of_a_control_page_ends_its_rank(
    member: Member, name: str, value: int, what: str
) -> None:
    servers = Coordinator(member)
    CONTROL_PAGE[name].put(member.channel.control_fd, value)
    Watch(servers).look()  # type: ignore[arg-type]
    (suspected,) = servers.said
    assert suspected.fault.row.do is classify.Do.GIVE_UP
    with pytest.raises(AssertionError, match=what):
        raise AssertionError(suspected.fault.evidence)


def test_sums_of_audits_are_the_agents_own(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFT_AUDIT_FAULT", raising=False)
    kept: list[dict] = []
    member.server.words = None  # type: ignore[union-attr]
    agent: Any = SimpleNamespace(keep=lambda: kept.append(member.server_note()))
    audits = Audits(agent)
    for value in EXTREMES:
        CONTROL_PAGE["audit_entries"].put(member.channel.control_fd, value)
        audits._count(member, audits=1, audit_entries=5)
    shown = page.read(member.channel.control_fd)
    assert (shown.audits, shown.audit_entries) == (len(EXTREMES), 5 * len(EXTREMES))
    audits._count(member, audit_bytes=2**64 - 1)  # so an auditor says
    audits._count(member, audit_bytes=2**64 - 1)
    assert page.read_one(member.channel.control_fd, "audit_bytes") == 2**64 - 1
    again = Member(0, member.channel, member.connection, KNOBS, member.native_dir)
    again.adopt_server(json.loads(json.dumps(kept[-1])), member.server)  # type: ignore[arg-type]
    assert again.audited == member.audited
    assert again.audited["audit_bytes"] == 2 * (2**64 - 1)


def test_a_cut_before_the_line_does_not_end_an_agent(
    member: Member, capfd: pytest.CaptureFixture[str]
) -> None:
    servers: Any = Coordinator(member)
    servers.plan = Plan(Gpus(1, 1), replay_all=True, audits=True)
    servers.plan.handle(events.Attached(0, 0, 0))
    servers.event = servers.plan.handle
    said = [events.Received(0, 1, wire.Prepared(*cut)) for cut in ((1, True, 100), (2, True, 3))]
    server: Any = Server(pid=1, receive=lambda _: said.pop(0), taken=lambda: None)
    router = Router(servers)
    assert router.read(member, server)
    servers.plan.handle(events.Audited(0, 1, 1))
    assert router.read(member, server)
    assert "cut [2] at entry [3], before its line at entry [100]" in capfd.readouterr().err


def test_no_image_is_made_of_a_log_that_cannot_be_read(member: Member) -> None:
    log, control = member.channel.log_fd, member.channel.control_fd
    CONTROL_PAGE["held_step"].put(control, 1)
    assert client_state_of(member, None, None).behind == ""
    os.pwrite(log, b"\xff" * 64, member.channel.areas.ring_offset)
    LOG_HEADER["appended"].put(log, 64)
    assert client_state_of(member, None, None).behind == "its log cannot be read"


def test_no_attach_request_ends_an_agent() -> None:
    dice = random.Random(3)
    good = ATTACH_REQUEST.pack(layout.ATTACH_MAGIC, layout.ATTACH_VERSION, 5, 0, 12, 0)
    good += b"PYFT_A=1\0B=\0"
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(dice.randrange(4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with contextlib.suppress(AttachError):
            AttachRequest.parse(bytes(data[: dice.choice([len(data), dice.randrange(len(data))])]))


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "1e5", "-1", "٣" * 3, "0x10", " 7 "])
@pytest.mark.parametrize("part", ["RING_MB", "ARENA_MB", "PINNED_GB", "STORE_GB", "BOUNCE_MB"])
def test_no_size_ends_an_agent(part: str, number: str) -> None:
    knobs = KNOBS | {f"PYFT_{part}": number}
    with contextlib.suppress(AttachError, ConfigError), contextlib.ExitStack() as stack:
        channel = Channel.create(AttachRequest(5, 0, knobs), 1, knobs)
        stack.callback(channel.close)
        channel.add_store(knobs)


def test_where_a_rank_runs_is_any_text(member: Member) -> None:
    for text in ("9" * 5000, "²", "-1", "", "0", "1"):
        member.environment = KNOBS | {"LOCAL_RANK": text}
        member.is_main()


def test_holes_of_a_log_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask for a terabyte, and say that it has filled it."""
    knobs = KNOBS | {"PYFT_ARENA_MB": str(1 << 20)}
    channel = Channel.create(AttachRequest(os.getpid(), 0, knobs), 1, knobs)
    fd, areas, read = channel.log_fd, channel.areas, os.pread
    sizes: list[int] = []

    def count(fd: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        assert len(sizes) < 100, "it reads all of it"
        return read(fd, size, offset)

    try:
        places = (0, areas.arena_bytes // 2 + 5, areas.arena_bytes - 3)
        for place in places:
            os.pwrite(fd, b"abc", areas.arena_offset + place)
        for value in EXTREMES:
            LOG_HEADER["arena_head"].put(fd, value)
            sizes.clear()
            with monkeypatch.context() as patched:
                patched.setattr(os, "pread", count)
                save_log(fd, tmp_path / "a.ring", areas)
            assert sum(sizes) <= 2 * untrusted.COPY_BYTES
        with (tmp_path / "a.ring").open("rb") as saved:
            for place in places:
                assert os.pread(saved.fileno(), 3, areas.arena_offset + place) == b"abc"
    finally:
        channel.close()


def test_text_of_a_client_moves_no_cursor() -> None:
    assert untrusted.text(b"a\x1b[2J\nb\xff\0c") == "a?[2J?b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "name", ["shares_offset", "shares_bytes", "shares_version", "manifest_offset", "current"]
)
@pytest.mark.parametrize("value", EXTREMES)
def test_no_store_ends_an_agent(name: str, value: int) -> None:
    """A server that has gone wild may leave anything in its store, and say that it lies anywhere."""
    fd = os.memfd_create("store")
    try:
        os.ftruncate(fd, 1 << 16)
        field = STORE_HEADER[name]
        page.write_store(fd, shares_offset=8192, shares_bytes=4096)
        page.write_store(fd, current=1)
        damaged = value & ((1 << 8 * min(field.size, 8)) - 1)
        os.pwrite(fd, damaged.to_bytes(min(field.size, 8), "little"), field.offset)
        assert page.snapshot_position(fd) >= 0
        page.write_shares(fd, [(page.window_base(0), 4096, 1)])
        assert os.fstat(fd).st_size == 1 << 16
        assert STORE_HEADER["shares_version"].get(fd) % 2 == 0 or name == "shares_version"
        assert read_table(fd, value, 0, 1) is None
    finally:
        os.close(fd)
