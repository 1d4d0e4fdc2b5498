"""`/metrics` in Prometheus' text format, on the loopback interface, answered by the agent's loop."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pyft.agent import channel as channels
from pyft.agent import page

if TYPE_CHECKING:
    from pyft.agent.servers import Loop, Servers

READ_S = 2.0
_LARGEST_REQUEST = 8192


def serve(port: int, loop: Loop, text: Callable[[], str]) -> socket.socket:
    """Listen on 127.0.0.1; raise OSError when the port is taken."""
    listener = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        loop.watch(connection, lambda: answer(connection))
        loop.after(READ_S, lambda: end(connection))  # of a peer that asks nothing

    def end(connection: socket.socket) -> None:
        if connection.fileno() >= 0:
            loop.forget(connection)
            connection.close()

    def answer(connection: socket.socket) -> None:
        try:
            request = connection.recv(_LARGEST_REQUEST)
            if request:
                connection.send(respond(request, text))
        except OSError:
            pass  # it has gone
        end(connection)

    loop.watch(listener, accept)
    return listener


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
    found = servers.report()
    lines = []
    faults = Counter((i["fault"], str(i["rank"])) for i in found["faults"])
    lines += meter("pyft_faults_total", "counter", "Faults noticed.", [
        ({"class": name, "rank": rank}, count) for (name, rank), count in sorted(faults.items())
    ])  # fmt: skip
    totals = (
        ("pyft_recoveries_total", "counter", "Faults repaired.", found["recovered"]),
        ("pyft_given_up_total", "counter", "Faults the client was told of.", found["given_up"]),
        ("pyft_lost_seconds_total", "counter", "Time without progress.", found["lost_seconds"]),
        ("pyft_goodput", "gauge", "Share of the time with progress.", found["goodput"]),
        ("pyft_epoch", "gauge", "Epoch of the newest server.", servers.plan.epoch),
        ("pyft_gpus_lost", "gauge", "GPUs that are not used any more.", len(servers.gpus.lost)),
    )
    for name, kind, meaning, value in totals:
        lines += meter(name, kind, meaning, [({}, value)])
    return "\n".join([*lines, *_ranks(servers)]) + "\n"


def _ranks(servers: Servers) -> list[str]:
    rows: dict[str, list[tuple[dict[str, str], float]]] = {}
    for member in servers.members.values():
        if member.saved:
            continue
        labels = {"rank": str(member.channel.rank), "device": str(member.channel.device)}
        state = page.read(member.channel.control_fd)
        header = channels.log_header(member.channel.log_fd)
        values = {
            "pyft_ring_position_bytes": header["appended"],
            "pyft_ring_lag_bytes": max(0, header["appended"] - state.consumed),
            "pyft_captured_cut": state.captured_cut,
            "pyft_unprotected_cuts": state.unprotected,
            "pyft_server_alive": int(member.server_alive),
        }
        figures = page.store_figures(member.channel.store_fd)
        values |= {f"pyft_store_{name}": value for name, value in figures.items()}
        for name, value in values.items():
            rows.setdefault(name, []).append((labels, value))
    return [line for name, row in rows.items() for line in meter(name, "gauge", "", row)]


def meter(
    name: str, kind: str, meaning: str, rows: Iterable[tuple[dict[str, str], float]]
) -> list[str]:
    """Return the lines of one meter."""
    lines = [f"# HELP {name} {meaning}"] if meaning else []
    lines.append(f"# TYPE {name} {kind}")
    for labels, value in rows:
        inside = ",".join(f'{key}="{label}"' for key, label in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return lines
