"""One connection between two hosts: messages that only a holder of the job's token can make.

Each side sends a nonce. Both derive a key for each direction from token and nonces, so that nothing
of an earlier connection can be sent again. Then each proves that it has the token, before any frame
is read. A frame is its length, a keyed BLAKE2b of its number and payload, and the payload: a JSON
object. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import select
import socket
import time
from typing import Any

from pyft import config
from pyft.errors import UsageError

GREETING = b"pyft-hosts-2\n"
LARGEST = 1 << 20  # of a message
HEADER_LARGEST = 16 << 20  # of the one before an image
LEAST_TOKEN = 16
CONNECT_S = 3.0
SEND_S = 3.0
_NONCE, _MAC = 32, 16
_LENGTH = 4  # bytes of a frame's length
_PROOF = (1 << 64) - 1  # no frame has this number


class LinkError(ConnectionError):
    """The other side has ended, is silent, or sends what is none of ours."""


def token() -> bytes:
    """Return the secret of the job; raise UsageError without one."""
    text = config.get_str("PYFT_TOKEN") or ""
    if len(text) < LEAST_TOKEN:
        why = f"several hosts need a secret: set PYFT_TOKEN to at least [{LEAST_TOKEN}] characters"
        raise UsageError(f"{why}, the same on each host")
    return text.encode()


def key_for(secret: bytes, purpose: str, *more: bytes) -> bytes:
    """Return a key that is good for one purpose only."""
    return hmac.digest(secret, purpose.encode() + b"\0" + b"".join(more), "sha256")


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"[{text}] is no HOST:PORT")
    return host, int(port)


def addresses_of(text: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of HOST:PORT[,HOST:PORT…]; raise UsageError."""
    return tuple(address_of(one) for one in text.split(","))


class Link:
    """A connection whose other end has the token, or nothing is heard of it."""

    def __init__(
        self, sock: socket.socket, secret: bytes, *, calls: bool, send_s: float = SEND_S
    ) -> None:
        """Greet the other side; raise LinkError. `calls`: this side has made the connection."""
        self.socket = sock
        self._buffer = bytearray()
        self._sent = self._received = 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What is not confirmed so long never will be: calling again is quicker than TCP's next try.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * send_s))
        sock.settimeout(SEND_S)
        ours = secrets.token_bytes(_NONCE)
        try:
            sock.sendall(GREETING + ours)
            said = self._exactly(len(GREETING) + _NONCE, time.monotonic() + CONNECT_S)
        except OSError as error:
            raise LinkError(f"no greeting: {error}") from None
        if said[: len(GREETING)] != GREETING:
            raise LinkError("it does not speak pyft's protocol")
        theirs = said[len(GREETING) :]
        nonces = (ours, theirs) if calls else (theirs, ours)
        keys = [key_for(secret, f"hosts {way}", *nonces) for way in ("there", "back")]
        self._out, self._in = keys if calls else reversed(keys)
        self._prove()
        self._writer = sock.dup()  # with a deadline of its own: another thread may be receiving
        self._writer.settimeout(send_s)

    @classmethod
    def to(cls, where: tuple[str, int], secret: bytes, send_s: float = SEND_S) -> Link:
        """Connect; raise OSError."""
        sock = socket.create_connection(where, CONNECT_S)
        try:
            return cls(sock, secret, calls=True, send_s=send_s)
        except BaseException:
            sock.close()
            raise

    def send(self, kind: str, **values: Any) -> None:
        """Send one message; raise OSError."""
        payload = json.dumps({"kind": kind, **values}).encode()
        mac = _mac(self._out, self._sent, payload)
        self._sent += 1
        self._writer.sendall(_length(payload) + mac + payload)

    def has_room(self) -> bool:
        """Say whether a message can be sent without waiting for the other side."""
        poller = select.poll()
        poller.register(self._writer, select.POLLOUT)
        return bool(poller.poll(0))

    def send_bytes(self, data: bytes | memoryview) -> None:
        """Send bytes that a message has announced."""
        self._writer.sendall(data)

    def receive(self, seconds: float, largest: int = LARGEST) -> dict[str, Any] | None:
        """Return the next message, None if there is none in time; raise LinkError."""
        until = time.monotonic() + seconds
        if not self._fill(_LENGTH + _MAC, until):
            return None
        size = int.from_bytes(self._buffer[:_LENGTH], "big")
        if size > largest:
            raise LinkError(f"a message of [{size}] bytes")
        if not self._fill(_LENGTH + _MAC + size, until):
            return None
        mac = bytes(self._buffer[_LENGTH : _LENGTH + _MAC])
        payload = bytes(self._buffer[_LENGTH + _MAC : _LENGTH + _MAC + size])
        del self._buffer[: _LENGTH + _MAC + size]
        if not hmac.compare_digest(mac, _mac(self._in, self._received, payload)):
            raise LinkError("a message whose token is not the job's")
        self._received += 1
        return _parsed(payload)

    def receive_into(self, view: memoryview, seconds: float) -> None:
        """Take bytes that follow a message; what asks for them checks their digest."""
        until, at = time.monotonic() + seconds, min(len(self._buffer), len(view))
        view[:at] = self._buffer[:at]
        del self._buffer[:at]
        while at < len(view):
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                got = self.socket.recv_into(view[at:])
            except TimeoutError:
                raise LinkError("it sends nothing") from None
            if not got:
                raise LinkError("it has ended")
            at += got

    def close(self) -> None:
        """End it, also for a thread that is receiving."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._writer.close()
        self.socket.close()

    def _prove(self) -> None:
        """Show the token, and see it: a stranger gets no further, whatever it sends."""
        try:
            self.socket.settimeout(SEND_S)
            self.socket.sendall(_mac(self._out, _PROOF, b""))
            proof = self._exactly(_MAC, time.monotonic() + CONNECT_S)
        except OSError as error:
            raise LinkError(f"no proof of the token: {error}") from None
        if not hmac.compare_digest(proof, _mac(self._in, _PROOF, b"")):
            raise LinkError("its token is not the job's")

    def _exactly(self, count: int, until: float) -> bytes:
        if not self._fill(count, until):
            raise LinkError("it says nothing")
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _fill(self, count: int, until: float) -> bool:
        while len(self._buffer) < count:
            left = until - time.monotonic()
            self.socket.settimeout(max(0.001, left))
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                if left <= 0:
                    return False
                continue
            except OSError as error:
                raise LinkError(str(error)) from None
            if not data:
                raise LinkError("it has ended")
            self._buffer += data
        return True


def _length(payload: bytes) -> bytes:
    return len(payload).to_bytes(_LENGTH, "big")


def _mac(key: bytes, number: int, payload: bytes) -> bytes:
    keyed = hashlib.blake2b(number.to_bytes(8, "big"), key=key, digest_size=_MAC)
    keyed.update(payload)
    return keyed.digest()


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
        if not isinstance(message, dict) or not isinstance(message["kind"], str):
            raise ValueError("it has no kind")
    except (ValueError, KeyError, RecursionError) as error:
        raise LinkError(f"a message is damaged: {error}") from None
    return message
