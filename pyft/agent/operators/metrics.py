"""`/metrics` in Prometheus' text format, on the loopback interface, answered by the agent's loop.

Every user of the machine may read them, as Prometheus' own has to.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyft.agent.channel import page
from pyft.agent.process.door import Door, Listener, More
from pyft.agent.process.loop import Loop
from pyft.recovery import redundancy

if TYPE_CHECKING:
    from prometheus_client import Metric

    from pyft.agent.lifecycle.servers import Servers
    from pyft.agent.members.member import Member

READ_S = 2.0
MOST_READERS = 32
KEEP_S = 0.25
_LARGEST_REQUEST = 8192
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")


def serve(port: int, loop: Loop, text: Callable[[], str]) -> socket.socket:
    """Listen on 127.0.0.1; raise OSError when the port is taken."""
    listener = socket.create_server(("127.0.0.1", port))
    text = kept(text)
    begun: WeakKeyDictionary[socket.socket, bytes] = WeakKeyDictionary()
    unsent: WeakKeyDictionary[socket.socket, memoryview] = WeakKeyDictionary()

    def answer(connection: socket.socket) -> More | None:
        rest = unsent.pop(connection, None)
        with contextlib.suppress(OSError):  # it has gone
            if rest is None:
                request = begun.pop(connection, b"")
                piece = connection.recv(_LARGEST_REQUEST - len(request), socket.MSG_DONTWAIT)
                request += piece
                if piece and len(request) < _LARGEST_REQUEST and not _BLANK_LINE.search(request):
                    begun[connection] = request
                    return More.TEXT
                rest = memoryview(respond(request, text) if request else b"")
            if rest := rest[connection.send(rest, socket.MSG_DONTWAIT) :]:
                unsent[connection] = rest
                return More.ROOM
        return None

    Door(loop, Listener(listener), answer, most=MOST_READERS, seconds=READ_S)
    return listener


def kept(make: Callable[[], str]) -> Callable[[], str]:
    """Return what makes a text anew only if the last one is older than KEEP_S.

    Any user may ask as often as it likes, and each text takes the agent's time.
    """
    last, made = "", float("-inf")

    def get() -> str:
        nonlocal last, made
        now = time.monotonic()
        if now - made >= KEEP_S:
            last, made = make(), now
        return last

    return get


def respond(request: bytes, text: Callable[[], str]) -> bytes:
    """Return the answer to one HTTP request."""
    known = request.startswith((b"GET /metrics ", b"GET /metrics?"))
    status = "200 OK" if known else "404 Not Found"
    body = text().encode() if known else b"see /metrics\n"
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def text(servers: Servers) -> str:
    """Return all meters of a job."""
    # Here, since agents without --metrics-port need not wait for it (0.1 s).
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Meters(servers))
    return generate_latest(registry).decode()


class Meters:
    """What prometheus_client calls a collector: all meters of a job, as they are now."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def describe(self) -> list[Metric]:
        """Return nothing: meters have no names before there are ranks."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all meters."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found, plan = self._servers.report(), self._servers.plan
        faults = CounterMetricFamily("pyft_faults", "Faults noticed.", labels=["class", "rank"])
        counts = Counter((i["fault"], str(i["rank"])) for i in found["faults"])
        for row in found["earlier"]:
            counts[row["fault"], str(row["rank"])] += row["count"]
        for labels, count in counts.items():
            faults.add_metric(labels, count)
        yield faults
        repaired = found["recovered"] + found["came_again"]  # a counter never falls
        counters = (
            ("pyft_recoveries", "Faults repaired.", repaired),
            ("pyft_given_up", "Faults the client was told of.", found["given_up"]),
            ("pyft_lost_seconds", "Time without progress.", found["lost_seconds"]),
            ("pyft_agent_restarts", "Agents that have died.", found["agent_restarts"]),
        )
        for name, meaning, value in counters:
            yield CounterMetricFamily(name, meaning, value)
        gauges = (
            ("pyft_goodput", "Share of the time with progress.", found["goodput"]),
            (
                "pyft_epoch",
                "Incarnation of the newest server: its number in the job.",
                plan.starting.epoch,
            ),
            ("pyft_gpus_lost", "GPUs that are not used any more.", len(plan.gpus.lost)),
        )
        for name, meaning, value in gauges:
            yield GaugeMetricFamily(name, meaning, value)
        strikes = GaugeMetricFamily(
            "pyft_gpu_strikes", "What a GPU has computed wrongly, lately.", labels=["gpu"]
        )
        for gpu, steps in sorted(plan.gpus.strikes.of.items()):
            strikes.add_metric([str(gpu)], len(steps))
        yield strikes
        families: dict[str, Metric] = {}
        for member, labels in _labels([m for m in self._servers.members.values() if not m.saved]):
            values = _of_rank(member)
            if plan.protect:
                values["pyft_protected_share"] = self._servers.protected.share_of(member.id)
            for name, value in values.items():
                new = GaugeMetricFamily(name, _MEANINGS.get(name, ""))
                families.setdefault(name, new).add_sample(name, labels, value)
        yield from families.values()


_MEANINGS = {
    "pyft_ring_position_bytes": "Written into the ring so far.",
    "pyft_ring_lag_bytes": "Written into the ring and not taken out yet.",
    "pyft_snapshot_cut": "The last snapshot.",
    "pyft_unprotected_cuts": "Cuts at which the log was freed without a snapshot.",
    "pyft_protected_share": "Share of the time in which a fault would have been repaired.",
    "pyft_server_alive": "1: the rank has a server.",
    "pyft_journal_lost": "1: a copy's source found no room since the last snapshot.",
    "pyft_objects_missing": "Objects that live and found no room in the object log.",
    "pyft_dmr_products": "Products that were looked at.",
    "pyft_dmr_covered": "Products that were executed twice, by the program or the server.",
    "pyft_dmr_kernels": "Launches of kernels that were executed once.",
    "pyft_dmr_kernels_again": "Launches of kernels that were executed twice by the device.",
    "pyft_dmr_mismatches": "Two executions with different results.",
    "pyft_dmr_period": "In so many steps all products were covered once; 0: not known.",
    "pyft_audited_entries": "Calls that another GPU has replayed, with the same result.",
    "pyft_unaudited_entries": "Calls before the last snapshot that no other GPU has replayed.",
}


def _labels(members: list[Member]) -> Iterator[tuple[Member, dict[str, str]]]:
    """Yield each with labels that no other one has: a child of a rank inherits its number.

    The one with most steps is taken for the rank, the others have their process as well.
    """

    def steps(member: Member) -> tuple[int, int]:
        return page.read(member.channel.control_fd).steps, -member.id

    places: dict[tuple[int, int], list[Member]] = {}
    for member in members:
        places.setdefault((member.channel.rank, member.channel.device), []).append(member)
    for (rank, device), same in places.items():
        labels = {"rank": str(rank), "device": str(device)}
        first = max(same, key=steps)
        yield first, labels
        for member in same:
            if member is not first:
                channel = member.channel
                pid = f"{channel.client_pid}{f'-{channel.process}' if channel.process > 1 else ''}"
                yield member, labels | {"pid": pid}


def _of_rank(member: Member) -> dict[str, float]:
    """Return the meters of a rank."""
    state = page.read(member.channel.control_fd)
    header = member.channel.header()
    values: dict[str, float] = {
        "pyft_ring_position_bytes": header["appended"],
        "pyft_ring_lag_bytes": max(0, header["appended"] - state.consumed),
        "pyft_snapshot_cut": state.snapshot_cut,
        "pyft_unprotected_cuts": state.unprotected,
        "pyft_server_alive": int(member.server_alive),
        "pyft_journal_lost": int(bool(state.journal_lost)),
        "pyft_objects_missing": header["objects_missing"],
    }
    if twice := redundancy.figures(lambda name: getattr(state, name)):
        for name in ("products", "covered", "kernels", "kernels_again", "mismatches", "period"):
            values[f"pyft_dmr_{name}"] = twice[name]
    if audited := redundancy.audit_figures(member.audited.__getitem__, 0):
        values["pyft_audited_entries"] = audited["entries"]
        values["pyft_unaudited_entries"] = sum(audited[name] for name in redundancy.REASONS)
    figures = page.store_figures(member.channel.store_fd)
    return values | {f"pyft_store_{name}": value for name, value in figures.items()}
