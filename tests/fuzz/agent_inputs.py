"""What comes to the agent from outside, as functions of bytes: none of these may end it.

Each target takes any bytes and lets the agent's own code deal with them. An exception that leaves
`run` would have ended an agent. Notes are no target: nobody can write into one (test_notes.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyft.agent.channel import page, untrusted
from pyft.agent.channel.channel import Channel, save_log
from pyft.agent.channel.protocol import AttachRequest
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.lifecycle.protected import Protected
from pyft.agent.lifecycle.router import Router
from pyft.agent.lifecycle.watch import Watch
from pyft.agent.members.member import Member
from pyft.agent.members.server import Server
from pyft.agent.operators import metrics
from pyft.agent.operators.orders import Orders
from pyft.agent.process import messages
from pyft.agent.replicas.comparison import Comparison
from pyft.agent.replicas.peers import Peers
from pyft.agent.replicas.sharing import Sharing
from pyft.agent.replicas.spilling import Spilling
from pyft.agent.standby.room import Room
from pyft.errors import AttachError, ConfigError
from pyft.recovery import classify, events
from pyft.recovery.disputes import Disputes
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.trace import live
from pyft.wire import layout, packet
from pyft.wire import messages as wire
from pyft.wire.layout import ATTACH_REQUEST, CONTROL_PAGE, LOG_HEADER, STORE_HEADER

KNOBS = {f"PYFT_{part}_MB": "1" for part in ("RING", "OBJECT_LOG", "ARENA", "BOUNCE")}
MARKS = 16  # bytes in front of each write of `Memory`: where it goes
RANKS = 3


class Target:
    """One way in. Keeps its state from input to input, as an agent does."""

    name = ""
    words: tuple[bytes, ...] = ()  # for the mutations

    def seeds(self) -> list[bytes]:
        """Return inputs as they should be."""
        raise NotImplementedError

    def run(self, data: bytes) -> None:
        """Take one input."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what it holds."""


class Agent:
    """As much of an agent as watch, metrics, orders and the router see."""

    def __init__(self) -> None:
        self.plan = Plan(Gpus(RANKS, 1))
        self.elsewhere = None  # it has no head
        self.members: dict[int, Any] = {}
        self.incidents = Incidents(json.dumps)
        self.protected = Protected(lambda name, note: None, lambda text: None)
        self.requests = SimpleNamespace(waiting=list)
        self.injector = SimpleNamespace(inject=lambda _: "")
        self.said: list[events.Event] = []
        self.deaths = SimpleNamespace(ask_nvml=_nothing)
        self.loop = SimpleNamespace(watch=_nothing, forget=_nothing, after=_nothing)
        for id in range(RANKS):
            self.plan.handle(events.Attached(id, id, id))

    def event(self, event: events.Event) -> list[str]:
        self.said.append(event)
        actions = self.plan.handle(event)
        for action in actions:
            if isinstance(action, events.Send):
                packet.pack(action.message)
        return [action.text for action in actions if isinstance(action, events.Refuse)]

    def changed(self) -> None:
        """It has no meta.json."""

    def cannot_add(self, gpu: int) -> str:
        return "" if 0 <= gpu < 8 else "no such GPU"

    def heartbeat_timeout(self, _: Member) -> float:
        return 1e9

    def collective_timeout(self) -> float:
        return 0.2

    def hang_timeout(self) -> float:
        return 0.0  # each look asks whether a communicator is made

    def report(self) -> dict[str, Any]:
        return self.incidents.summary()

    def keep(self) -> None:
        pass


def _nothing(*_: object) -> None:
    pass


class Memory(Target):
    """Log header, ring and control page, which a client can write: records of place and bytes."""

    name = "memory"
    words = tuple(value.to_bytes(8, "little") for value in (1, 64, layout.LOG_MAGIC, 1 << 63))

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        channel = Channel.create(AttachRequest(os.getpid(), 0, KNOBS), 1, KNOBS)
        server: Any = SimpleNamespace(pid=1, epoch=1, gpu=0, alive=True, status=75 << 8)
        connection: Any = None
        where = (channel, connection, KNOBS, Path(self.folder.name), server)
        self.member = Member(0, *where, servers=1)
        self.fds = (channel.log_fd, channel.control_fd)
        places = [(fd, at) for fd in self.fds for at in (0, layout.PAGE_BYTES)]
        ring = channel.areas.ring_offset
        places += [(channel.log_fd, ring), (channel.log_fd, ring + layout.PAGE_BYTES)]
        # All that a record can reach: an input does the same whatever came before it.
        self.fresh = [(fd, at, os.pread(fd, layout.PAGE_BYTES, at)) for fd, at in places]

    def seeds(self) -> list[bytes]:
        fields = [(0, f.offset) for f in LOG_HEADER.fields.values()]
        fields += [(1, f.offset) for f in CONTROL_PAGE.fields.values()]
        fields += [(2, at) for at in (0, 64, 4096)]
        entry = (64).to_bytes(8, "little")
        return [bytes([fd]) + at.to_bytes(7, "little") + entry for fd, at in fields]

    def run(self, data: bytes) -> None:
        for fd, at, before in self.fresh:
            os.pwrite(fd, before, at)
        for at in range(0, len(data) - 7, MARKS):
            which, place = data[at] % 3, int.from_bytes(data[at + 1 : at + 8], "little") % 4096
            place += self.member.channel.areas.ring_offset if which == 2 else 0
            os.pwrite(self.fds[which % 2], data[at + 8 : at + MARKS], place)
        agent = Agent()
        agent.members = {0: self.member}
        others = [repr(agent.plan.ranks[id]) for id in range(1, RANKS)]
        self._look(agent, ends=zlib.crc32(data) % 50 == 0)
        assert {event.id for event in agent.said} <= {0}, "nobody else is suspected"
        assert [repr(agent.plan.ranks[id]) for id in range(1, RANKS)] == others

    def _look(self, agent: Any, ends: bool) -> None:
        """Do all that an agent does often, and with some inputs what it does at the end."""
        member = self.member
        Watch(agent).look()
        answers = (member.said_goodbye(), member.is_main(), member.drained(), member.claim().place)
        json.dumps([answers, member.describe(), member.channel.header(), member.death_sentence()])
        agent.incidents.died(member, agent.plan.ranks[0], classify.of_exit(75 << 8))
        agent.incidents.started(member, agent.plan.ranks[0])
        agent.incidents.live(member)
        agent.incidents.recount(member)
        state = page.read(member.channel.control_fd)
        texts = (state.fault_text, state.corrected_text, member.channel.status()[1])
        assert all(text.isprintable() for text in texts)
        member.channel.call_counts(Path(self.folder.name))
        if ends:
            copy = Path(self.folder.name) / "copy.ring"
            json.dumps(asdict(live.look({"agent_pid": os.getpid()}, member.describe())))
            save_log(member.channel.log_fd, copy, member.channel.areas)
            live.recent_entries(copy)
            assert metrics.text(agent)

    def close(self) -> None:
        self.member.channel.close()
        self.folder.cleanup()


class Attach(Target):
    """The first message of a client: its request and its environment, which asks for sizes."""

    name = "attach"
    words = (b"PYFT_RING_MB=1\0", b"PYFT_PINNED_GB=", b"PYFT_STORE_GB=\0", b"RANK=", b"LOCAL_RANK=",
             b"PYFT_HEARTBEAT_TIMEOUT_S=nan\0", b"=", b"\0", b"-1", b"999999999999999999999")  # fmt: skip

    def seeds(self) -> list[bytes]:
        knobs = b"".join(f"{name}={value}\0".encode() for name, value in KNOBS.items())
        return [self._request(text) for text in (b"", knobs, knobs + b"RANK=3\0LOCAL_RANK=0\0B=\0")]

    @staticmethod
    def _request(environment: bytes) -> bytes:
        head = ATTACH_REQUEST.pack(
            layout.ATTACH_MAGIC, layout.ATTACH_VERSION, 5, 0, len(environment), 0
        )
        return head + environment

    def run(self, data: bytes) -> None:
        with contextlib.suppress(AttachError):
            AttachRequest.parse(data)
        # The same text under a head that is right, or almost nothing would come so far.
        with contextlib.suppress(AttachError, ConfigError), contextlib.ExitStack() as stack:
            request = AttachRequest.parse(self._request(data[ATTACH_REQUEST.size :]))
            channel = Channel.create(request, 1, request.environment)
            stack.callback(channel.close)
            channel.add_store(request.environment)
            connection: Any = None
            member = Member(0, channel, connection, request.environment, Path())
            json.dumps([member.note() | {"main": member.is_main()}, member.claim().place])


class OrderTarget(Target):
    """The orders socket."""

    name = "orders"
    words = (b'"kind"', b'"rank"', b'"gpu"', b'"fault"', b"1e999", b"null", b"[", b"{", b'"', b"-1",
             b"replace", b"drain", b"spare", b"inject", b"sticky", b"step=", b"9" * 5000)  # fmt: skip

    def __init__(self) -> None:
        self.before = len(os.listdir("/proc/self/fd"))

    def seeds(self) -> list[bytes]:
        given: list[dict[str, Any]] = [
            {"kind": "replace", "rank": 0, "gpu": -1},
            {"kind": "drain", "gpu": 1},
            {"kind": "spare", "gpu": 7},
            {"kind": "inject", "rank": 1, "fault": "sticky,step=3,call=2"},
        ]
        return [json.dumps(order).encode() for order in given]

    def run(self, data: bytes) -> None:
        agent = Agent()
        for id in range(RANKS):
            where = SimpleNamespace(rank=id, device=id)
            member = SimpleNamespace(id=id, channel=where, client_gone=False, is_main=lambda: True)
            agent.members[id] = member
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(theirs, [data], [0] * (len(data) % 3))
            Orders(agent).answer(ours)  # type: ignore[arg-type]
            ours.close()
            got = messages.receive(theirs)
        assert got is None or set(got[0]) == {"kind", "problem"}
        if len(data) % 64 == 0:
            assert len(os.listdir("/proc/self/fd")) == self.before, "a descriptor is left"


class Http(Target):
    """A request to --metrics-port."""

    name = "http"
    words = (b"GET /metrics", b" HTTP/1.1\r\n", b"?", b"\r\n\r\n", b"Content-Length: 99999999\r\n")

    def seeds(self) -> list[bytes]:
        return [b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"POST /"]

    def run(self, data: bytes) -> None:
        answer = metrics.respond(data, lambda: "pyft_epoch 1.0\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        known = data.startswith((b"GET /metrics ", b"GET /metrics?"))
        assert head.startswith(b"HTTP/1.1 200 OK" if known else b"HTTP/1.1 404 Not Found")
        assert body == (b"pyft_epoch 1.0\n" if known else b"see /metrics\n")


class ServerMessages(Target):
    """What servers say, and what is in the stores that they write: messages, one after another."""

    name = "server"
    words = tuple(
        number.to_bytes(size, "little")
        for size in (4, 8)
        for number in (*range(3), wire.MAGIC, (1 << 8 * size) - 1, 1 << 8 * size - 1)
    )

    def __init__(self) -> None:
        self.stores = [os.memfd_create("store") for _ in range(RANKS)]
        for fd in self.stores:
            os.ftruncate(fd, 1 << 20)

    def seeds(self) -> list[bytes]:
        zeros = [packet.pack(kind.of((1, 0, 0), b"")) for kind in wire.KINDS.values()]
        talks = [
            (wire.Made(7, 0), wire.Made(7, 1), wire.WantExport(7, 2), wire.Exported(7, 2, 0, 1)),
            (wire.Making(7, 0), wire.WantExport(7, 0, wire.ExportReason.LOST_MEETING)),
            (wire.Staged(1, 8192, 10), wire.Prepared(1, True, 10), wire.DecisionRequest(1)),
            (wire.WantStore(1, 0), wire.WantPeer(0), wire.MemoryPressure(1), wire.GivenUp()),
        ]
        return zeros + [b"".join(map(packet.pack, talk)) for talk in talks]

    def run(self, data: bytes) -> None:
        agent: Any = Agent()
        for id, fd in enumerate(self.stores):
            os.pwrite(fd, bytes(4096), 0)
            at = STORE_HEADER["shares_offset"].offset
            os.pwrite(fd, data[id : id + 64], at)  # what a server that has gone wild leaves there
            agent.members[id] = self._member(id, fd)
        sharing = Sharing(agent.members, _nothing)
        agent.spilling = Spilling(agent.members, sharing, _nothing)
        agent.comparison = Comparison(agent.members, agent.event, _nothing, sharing, agent.spilling)
        agent.peers = Peers(agent.members, agent.comparison.replicas_of, lambda _: True)
        standby: Any = SimpleNamespace(holders=list)
        agent.room = Room(standby, ["0"] * RANKS, agent.loop)
        router = Router(agent)
        for member in agent.members.values():
            agent.comparison.joined(member)
        for number, one in enumerate(_packets(data)):
            member = agent.members[number % RANKS]
            member.server.coming = one
            router.read(member, member.server)
        for server in (member.server for member in agent.members.values()):
            assert not server.words or server.words.text.isprintable()

    def _member(self, id: int, fd: int) -> Any:
        channel = SimpleNamespace(store_fd=fd, device=id, rank=id)
        server = _StandIn(id, id + 1, id)
        common = {"disputes": Disputes(), "given_up": "", "who": "client"}
        return SimpleNamespace(id=id, channel=channel, server=server, **common)

    def close(self) -> None:
        for fd in self.stores:
            os.close(fd)


class _StandIn(Server):
    """A server whose messages are those of the input."""

    def __init__(self, pid: int, epoch: int, gpu: int) -> None:
        link: Any = None
        super().__init__(pid, link, epoch, gpu, link)
        self.coming = b""

    def receive(self, id: int) -> events.Received | None:
        return events.Received(id, self.epoch, packet.unpack(self.coming))

    def ahead(self, id: int) -> list[events.Received]:
        return []

    def taken(self) -> None:
        pass

    def send(self, message: wire.Message) -> bool:
        packet.pack(message)
        return True

    def _send_fd(self, message: wire.Message, fd: int) -> None:
        packet.pack(message)


def _packets(data: bytes) -> Iterator[bytes]:
    """Split into messages: their kind and words are the input's, the frame around them is right."""
    size = packet.HEADER.size
    for at in range(0, min(len(data), 16 * size), size):
        _, number, *words, _, _ = packet.HEADER.unpack(data[at : at + size].ljust(size, b"\0"))
        payload = data[-(number >> 8 & 0xFF) :] if number >> 8 & 0xFF else b""
        head = packet.HEADER.pack(wire.MAGIC, number & 0xFF, *words, len(payload), 0)
        yield head + payload


class Packet(Target):
    """One message of a server, as it comes."""

    name = "packet"

    def seeds(self) -> list[bytes]:
        return [packet.pack(kind.of((1, 0, 0), b"")) for kind in wire.KINDS.values()]

    def run(self, data: bytes) -> None:
        with contextlib.suppress(ValueError):
            packet.pack(packet.unpack(data))
        untrusted.text(data)


TARGETS: tuple[Callable[[], Target], ...] = (
    Memory,
    Attach,
    OrderTarget,
    Http,
    ServerMessages,
    Packet,
)
