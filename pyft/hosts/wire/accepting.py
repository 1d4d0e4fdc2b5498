"""Takes connections, each in a thread of its own, and goes on when there is no room for one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

AGAIN_S = 0.1


def accept_all(
    listener: socket.socket, most: int, serve: Callable[[socket.socket, str], object]
) -> None:
    """Serve at most so many at once, from a thread, until the listener is closed.

    A descriptor or a thread that is missing is missing for a while only: what calls calls again.
    """
    room = threading.BoundedSemaphore(most)

    def one(sock: socket.socket, peer: str) -> None:
        try:
            serve(sock, peer)
        finally:
            sock.close()
            room.release()

    def run() -> None:
        while listener.fileno() >= 0:
            try:
                sock, peer = listener.accept()
            except OSError:
                time.sleep(AGAIN_S)
                continue
            if not room.acquire(blocking=False):
                sock.close()
                continue
            try:
                threading.Thread(target=one, args=(sock, peer[0]), daemon=True).start()
            except RuntimeError:  # no room for another thread
                room.release()
                with contextlib.suppress(OSError):
                    sock.close()

    threading.Thread(target=run, daemon=True).start()
