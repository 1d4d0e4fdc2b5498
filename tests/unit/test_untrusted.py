"""Whatever a client writes into its memory, the agent goes on, and loses no more than its rank."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent import metrics, page, protocol, untrusted
from pyft.agent.channel import Channel, save_log
from pyft.agent.incidents import Incidents
from pyft.agent.member import Member
from pyft.agent.protocol import AttachRequest
from pyft.agent.watch import Watch
from pyft.errors import AttachError, ConfigError
from pyft.recovery import classify, events
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.trace import live

KNOBS = {f"PYFT_{part}_MB": "1" for part in ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")}
EXTREMES = (0, 1, 7, 63, 64, 4096, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
NAMED = [*protocol.LOG_FIELDS.values()]
CONTROL = sorted({at for at, _ in page.FIELDS.values()} | {0, 8, 16, 32, 40, 560})


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


class Coordinator:
    """What a watch, metrics and incidents see of the agent."""

    def __init__(self, member: Member) -> None:
        self.members = {0: member}
        self.plan = Plan(Gpus(2, 0))
        self.plan.handle(events.Attached(0, 0, 0))
        self.plan.handle(events.Attached(1, 1, 1))
        self.incidents = Incidents(json.dumps)
        self.requests = SimpleNamespace(waiting=list)  # for faults
        self.said: list[Any] = []

    def event(self, event: events.Event) -> None:
        self.said.append(event)

    def ask_nvml(self) -> None:
        pass

    def heartbeat_timeout(self, _: Member) -> float:
        return 1e9

    def hang_timeout(self) -> float:
        return 0.0  # each look asks whether a communicator is made

    def report(self) -> dict[str, Any]:
        return self.incidents.summary()


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
    good = [(fd, os.pread(fd, untrusted.PAGE, 0)) for fd in fds]
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
    mark = struct.pack("<IHHQ", 64, untrusted.GOODBYE, 0, 1).ljust(64, b"\0")
    os.pwrite(channel.log_fd, mark, areas.ring_offset)
    os.pwrite(channel.log_fd, struct.pack("<Q", 64), protocol.LOG_FIELDS["appended"])
    os.pwrite(channel.log_fd, struct.pack("<Q", 2), protocol.LOG_FIELDS["next_seq"])
    assert member.said_goodbye()
    for name, value in asdict(areas).items():
        for wrong in (0, 2**63, 2**64 - 1, value + 4096):
            os.pwrite(channel.log_fd, struct.pack("<Q", wrong), protocol.LOG_FIELDS[name])
            assert member.said_goodbye()
            assert f"{name} of the log is [{wrong}], not [{value}]" in channel.damage()
        os.pwrite(channel.log_fd, struct.pack("<Q", value), protocol.LOG_FIELDS[name])
    assert channel.damage() == ""
    adopted = Channel.adopt(json.loads(json.dumps(channel.note())), channel.fds())
    assert adopted.areas == areas


@pytest.mark.parametrize(
    ("at", "form", "value", "what"),
    [
        (0, "<I", 0, "begins with"),
        (8, "<Q", 2**64 - 1, "parts of the control page"),
        (16, "<Q", 1, "parts of the control page"),
        (32, "<I", 77, r"status in the control page is \[77\]"),
        (768, "<I", 77, r"phase in the control page is \[77\]"),
    ],
)
def test_damage_of_a_control_page_ends_its_rank(
    member: Member, at: int, form: str, value: int, what: str
) -> None:
    servers = Coordinator(member)
    os.pwrite(member.channel.control_fd, struct.pack(form, value), at)
    Watch(servers).look()  # type: ignore[arg-type]
    (suspected,) = servers.said
    assert suspected.fault.row.do is classify.Do.GIVE_UP
    with pytest.raises(AssertionError, match=what):
        raise AssertionError(suspected.fault.evidence)


def test_no_attach_request_ends_an_agent() -> None:
    dice = random.Random(3)
    good = protocol.REQUEST.pack(protocol.ATTACH_MAGIC, protocol.ATTACH_VERSION, 5, 0, 12, 0)
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


def test_text_of_a_client_moves_no_cursor() -> None:
    assert untrusted.text(b"a\x1b[2J\nb\xff\0c") == "a?[2J?b\N{REPLACEMENT CHARACTER}"
