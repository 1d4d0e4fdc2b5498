"""Counts with another process: `counter.py serve PORT` or `counter.py ask ADDRESS PORT FILE`.

Each side counts for itself: a byte that is lost, or comes twice, ends both.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

WORD = 4


def answer(sock: socket.socket) -> None:
    """Answer one that asks."""
    count = 0
    while data := sock.recv(WORD, socket.MSG_WAITALL):
        if int.from_bytes(data, "big") != count:
            sock.close()
            return
        sock.sendall(data)
        count += 1


def serve(port: int) -> None:
    """Answer all."""
    listener = socket.create_server(("", port))
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=answer, args=(sock,), daemon=True).start()


def ask(address: str, port: int, file: str) -> None:
    """Count, and write each number down that was answered."""
    sock = connected(address, port)
    count = 0
    while True:
        word = count.to_bytes(WORD, "big")
        sock.sendall(word)
        if sock.recv(WORD, socket.MSG_WAITALL) != word:
            raise SystemExit(f"after [{count}] something else was answered")
        with open(file, "a") as out:
            out.write(f"{count}\n")
        count += 1
        time.sleep(0.001)


def connected(address: str, port: int) -> socket.socket:
    """Connect when the other one listens."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((address, port), 20)
        time.sleep(0.05)
    raise SystemExit("nobody listens")


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    ask(sys.argv[2], int(sys.argv[3]), sys.argv[4])
