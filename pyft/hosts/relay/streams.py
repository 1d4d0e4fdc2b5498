"""Connections that a relay carries: one end is here, the other one at the relay of another place.

Flow control is by credit, for each connection: a relay reads no more from its program than the other
relay has room for. So a program that does not read holds up its own connection, and no other one.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field

from pyft.hosts.relay.pair import (
    CHUNK,
    CREDIT,
    DATA,
    END,
    OPEN,
    OPENED,
    REFUSED,
    RESET,
    Datagram,
    Pair,
)

HERE = "127.0.0.1"
CONNECT_S = 1.0  # to a program on this host, which takes it at once or never
ACCEPT_S = 5.0  # for what has asked to come
ANSWER_S = 20.0  # for the other place to say whether a program listens there
MOST_STREAMS = 4096
MOST_WAITING = 1 << 20  # bytes for a program that does not read: the credit of a connection
CREDIT_STEP = MOST_WAITING // 4  # bytes that a program has read until the other relay is told
CREDIT_BYTES = 4
QUESTION_BYTES = 8  # place and port, four bytes each; the answer is errno and port (shim/places.cc)


@dataclass
class Stream:
    """One connection. `asker`: what waits for its port; `listener`: where it is waited for."""

    pair: Pair
    id: int
    asker: socket.socket | None = None
    listener: socket.socket | None = None
    socket: socket.socket | None = None
    until: float = 0.0
    out: bytearray = field(default_factory=bytearray)  # for the program here
    credit: int = MOST_WAITING  # bytes that may be sent before the program there has read more
    unsaid: int = 0  # bytes that the program here has taken, and the other relay was not told of
    has_read_all: bool = False  # the program here sends no more
    has_got_all: bool = False  # nor does the other one

    @property
    def may_read(self) -> bool:
        """Say whether what the program here sends can be passed on."""
        return not self.has_read_all and not self.pair.is_full and self.credit > 0


class Streams:
    """All connections of a place with others."""

    def __init__(
        self, place: int, pairs: dict[int, Pair], selector: selectors.BaseSelector
    ) -> None:
        self._place, self._pairs, self._selector = place, pairs, selector
        self._streams: dict[tuple[Pair, int], Stream] = {}
        self._opened = 0

    # ---- asked by programs of this place ------------------------------------------------------

    def ask(self, asker: socket.socket, data: bytes) -> None:
        """Take a question: at which port of this host is that of another place?"""
        place, port = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4))
        pair = self._pairs.get(place)
        if place == self._place and 0 < port < 65536:
            _answer(asker, 0, port)
        elif pair is None or not 0 < port < 65536 or len(self._streams) >= MOST_STREAMS:
            _answer(asker, errno.ENETUNREACH)
        elif pair.is_over:
            _answer(asker, errno.ECONNREFUSED)
        else:
            self._opened += 1
            stream = Stream(pair, self._place << 32 | self._opened, asker)
            stream.until = time.monotonic() + ANSWER_S
            self._streams[pair, stream.id] = stream
            pair.put(OPEN, stream.id, port.to_bytes(2, "big"))

    # ---- said by other places -----------------------------------------------------------------

    def heard(self, pair: Pair, one: Datagram) -> None:
        """Take a message."""
        stream = self._streams.get((pair, one.stream))
        if one.kind == OPEN:
            self._open(pair, one)
        elif stream is None:
            if one.kind in (OPENED, DATA):
                pair.put(RESET, one.stream)  # it has been given up here
        elif one.kind == OPENED and stream.asker:
            self._listen(stream)
        elif one.kind == REFUSED and stream.asker:
            _answer(stream.asker, errno.ECONNREFUSED)
            self._forget(stream)
        elif one.kind == RESET:
            self._end(stream)
        elif one.kind == DATA and len(stream.out) + len(one.data) > MOST_WAITING:
            self._give_up(stream)  # a relay of this job does not send what it has no credit for
        elif one.kind == DATA:
            stream.out += one.data
            self._write(stream)
        elif one.kind == CREDIT:
            more = int.from_bytes(one.data[:CREDIT_BYTES], "big")
            stream.credit = min(MOST_WAITING, stream.credit + more)
        elif one.kind == END:
            stream.has_got_all = True
            self._write(stream)

    def _open(self, pair: Pair, one: Datagram) -> None:
        try:
            if len(self._streams) >= MOST_STREAMS or (pair, one.stream) in self._streams:
                raise OSError(errno.EMFILE, "too many connections")
            port = int.from_bytes(one.data[:2], "big")
            sock = _connected(port)
        except OSError:
            pair.put(REFUSED, one.stream)
            return
        self._streams[pair, one.stream] = stream = Stream(pair, one.stream)
        pair.put(OPENED, one.stream)
        self._begin(stream, sock)

    # ---- the program's end --------------------------------------------------------------------

    def _listen(self, stream: Stream) -> None:
        """A program listens there: the program is told at which port of this host."""
        assert stream.asker
        try:
            stream.listener = socket.create_server((HERE, 0), backlog=1)
            stream.listener.setblocking(False)
            self._selector.register(
                stream.listener, selectors.EVENT_READ, lambda _: self._accept(stream)
            )
        except OSError as error:
            _answer(stream.asker, error.errno or errno.EMFILE)
            self._give_up(stream)
            return
        stream.until = time.monotonic() + ACCEPT_S
        _answer(stream.asker, 0, stream.listener.getsockname()[1])
        stream.asker = None

    def _accept(self, stream: Stream) -> None:
        assert stream.listener
        try:
            sock, _ = stream.listener.accept()
        except OSError:
            return
        self._close(stream.listener)
        stream.listener, stream.until = None, 0.0
        self._begin(stream, sock)

    def _begin(self, stream: Stream, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.socket = sock
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._ready(stream, mask))
        self._write(stream)

    def look(self, now: float) -> None:
        """Give up what has no answer, and read where there is room again."""
        for stream in list(self._streams.values()):
            if stream.until and now > stream.until:
                if stream.asker:
                    _answer(stream.asker, errno.ETIMEDOUT)
                self._give_up(stream)
            elif stream.socket:
                self._watch(stream)

    def _watch(self, stream: Stream) -> None:
        """Wait for what can be done with the program's end."""
        assert stream.socket
        mask = (selectors.EVENT_READ if stream.may_read else 0) | (
            selectors.EVENT_WRITE if stream.out else 0
        )
        known = self._selector.get_map().get(stream.socket.fileno())
        if known and not mask:
            self._selector.unregister(stream.socket)
        elif known and known.events != mask:
            self._selector.modify(stream.socket, mask, known.data)
        elif mask and not known:
            self._selector.register(stream.socket, mask, lambda mask: self._ready(stream, mask))

    def _ready(self, stream: Stream, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write(stream)
        if mask & selectors.EVENT_READ and stream.socket and stream.may_read:
            self._read(stream)

    def _read(self, stream: Stream) -> None:
        assert stream.socket
        try:
            data = stream.socket.recv(min(CHUNK, stream.credit))
        except BlockingIOError:
            return None
        except OSError:
            return self._give_up(stream)
        stream.pair.put(DATA if data else END, stream.id, data)
        stream.credit -= len(data)
        stream.has_read_all = not data
        return self._end_if_over(stream)

    def _write(self, stream: Stream) -> None:
        if stream.socket is None:
            return None  # nothing has come yet
        try:
            while stream.out:
                sent = stream.socket.send(stream.out)
                del stream.out[:sent]
                self._owe(stream, sent)
            if stream.has_got_all:
                stream.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            return self._give_up(stream)
        return self._end_if_over(stream)

    def _owe(self, stream: Stream, sent: int) -> None:
        """The program has taken so much, or the kernel for it: as much more may come."""
        stream.unsaid += sent
        if stream.unsaid >= CREDIT_STEP and not stream.has_got_all:
            stream.pair.put(CREDIT, stream.id, stream.unsaid.to_bytes(CREDIT_BYTES, "big"))
            stream.unsaid = 0

    def _end_if_over(self, stream: Stream) -> None:
        if stream.has_read_all and stream.has_got_all and not stream.out:
            self._forget(stream)

    # ---- ends ---------------------------------------------------------------------------------

    def drop(self, pair: Pair) -> None:
        """End all connections with a place that has ended."""
        for stream in [s for s in self._streams.values() if s.pair is pair]:
            if stream.asker:
                _answer(stream.asker, errno.ECONNREFUSED)
            self._end(stream)

    @property
    def is_read(self) -> bool:
        """Say whether no program here has sent what has not been read."""
        return all(s.has_read_all for s in self._streams.values())

    @property
    def wait_for_reader(self) -> bool:
        """Say whether a program of another place has to read before more is read here."""
        return any(not s.credit and not s.pair.is_over for s in self._streams.values())

    def end(self) -> None:
        """Tell the other places that all connections end."""
        for stream in list(self._streams.values()):
            self._give_up(stream)

    def _end(self, stream: Stream) -> None:
        """The other end is gone. What it sent before it closed is still given to the program here."""
        if stream.has_got_all and not stream.asker and (stream.out or not stream.socket):
            stream.has_read_all = True
        else:
            self._forget(stream)

    def _give_up(self, stream: Stream) -> None:
        stream.pair.put(RESET, stream.id)
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self._streams.pop((stream.pair, stream.id), None)
        for sock in (stream.listener, stream.socket):
            if sock:
                self._close(sock)
        stream.listener = stream.socket = None

    def _close(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()


def _connected(port: int) -> socket.socket:
    """Return a connection to a program that listens on this host; raise OSError.

    Where none does, the kernel may choose that port for this end, and connect it with itself. The
    program that is about to listen there could not, then.
    """
    sock = socket.create_connection((HERE, port), CONNECT_S)
    if sock.getsockname() == sock.getpeername():
        sock.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens there")
    return sock


def _answer(asker: socket.socket, error: int, port: int = 0) -> None:
    with contextlib.suppress(OSError):
        asker.send(b"".join(n.to_bytes(4, sys.byteorder) for n in (error, port)))
    asker.close()
