"""Copies of images on other hosts: sent by the agent of a place, taken by a host without one.

A header says all that can follow. The other host answers when it is ready, and which of the files that
the place appends to it has not. The bytes of CRIU's files follow, of those files, and of the memory
objects without their holes; then a keyed digest of all. A copy counts when that is equal, never before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyft.hosts.place import mirrored_logs
from pyft.hosts.wire import checked
from pyft.hosts.wire.accepting import accept_all
from pyft.hosts.wire.link import HEADER_LARGEST, Link, LinkError, key_for
from pyft.images import clocks, memory, travelling
from pyft.images.contents import CHUNK, MOST_CLIENTS, Contents, remove

SILENT_S = 20.0  # between two pieces
ANSWER_S = 30.0
TELL_S = 5.0  # between two words to the head that something arrives
MOST_CONNECTIONS = 64
LEAST_FREE = 1 << 28  # of the host's memory


@dataclass
class Outgoing:
    """An image that is to be copied; `memory` has descriptors of its own."""

    place: int
    record: dict[str, Any]
    memory: dict[int, list[int]]
    options: dict[str, Any]
    clients_name: str


@dataclass
class Stored:
    """A copy of an image that is whole."""

    place: int
    number: int
    folder: Path
    record: dict[str, Any]
    options: dict[str, Any]
    clients_name: str
    memory: dict[int, list[int]] = field(default_factory=dict)

    def drop(self) -> None:
        """Give it up."""
        remove(self.folder, self.memory)

    def let_go(self) -> None:
        """Keep nothing of its memory: another process has it."""
        for fd in (fd for fds in self.memory.values() for fd in fds):
            os.close(fd)
        self.memory.clear()


@dataclass(eq=False)
class _Promised:
    """Bytes of an image for which there was room, and which have not come yet."""

    disk: int
    memory: int

    def came(self, size: int) -> None:
        """Take off what has come: files are first."""
        of_disk = min(size, self.disk)
        self.disk -= of_disk
        self.memory -= size - of_disk


def digest_for(secret: bytes) -> Any:
    """Return what the bytes of an image are hashed with."""
    return hashlib.blake2b(key=key_for(secret, "image"), digest_size=32)


# ---- there ----------------------------------------------------------------------------------


def send(
    hosts: Sequence[tuple[str, str, int]],
    secret: bytes,
    image: Outgoing,
    failed: Callable[[str, str], object],
    comes_on: Callable[[], object],
) -> threading.Thread:
    """Send an image to hosts (name, address, port), one after the other, from a thread of its own.

    `failed` is called with each one that does not take it, and the reason; `comes_on` at times while
    they do.
    """
    told = time.monotonic()

    def progress() -> None:
        nonlocal told
        if time.monotonic() > told + TELL_S:
            told = time.monotonic()
            comes_on()

    def run() -> None:
        try:
            for name, *where in hosts:
                try:
                    _send((where[0], where[1]), secret, image, progress)
                except (OSError, ValueError) as error:
                    failed(name, str(error))
        finally:
            for fds in image.memory.values():
                for fd in fds:
                    os.close(fd)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _send(
    where: tuple[str, int], secret: bytes, image: Outgoing, progress: Callable[[], object]
) -> None:
    folder = Path(image.record["folder"])
    contents = Contents.of(folder, image.memory)
    note = contents.note()
    link = Link.to(where, secret, SILENT_S)
    try:
        link.send(
            "image",
            place=image.place,
            record=image.record,
            options=image.options,
            clients_name=image.clients_name,
            files=note["files"],
            memory=note["objects"],
        )
        ready = _await(link, "ready")  # it would not hear why not while it sends
        logs = mirrored_logs.asked(ready, image.record)
        contents = contents.with_files(travelling.sizes(logs))
        hashed = digest_for(secret)
        for piece in contents.pieces(folder, image.memory, travelling.paths(logs)):
            hashed.update(piece)
            link.send_bytes(piece)
            progress()
        link.send("end", digest=hashed.hexdigest())
        _await(link, "have")
    finally:
        link.close()


def _await(link: Link, kind: str) -> dict[str, Any]:
    """Return this word of the other host; raise LinkError when it says something else."""
    said = link.receive(ANSWER_S)
    if not said or said["kind"] != kind:
        why = checked.text({"why": "no answer"} | (said or {}), "why")
        raise LinkError(f"it is not taken: {why}")
    return said


# ---- here -----------------------------------------------------------------------------------


class Receiver:
    """Takes images of all places into a folder and into memory. `have` is called for each whole one."""

    def __init__(
        self,
        listener: socket.socket | None,
        secret: bytes,
        folder: Path,
        have: Callable[[Stored], object],
    ) -> None:
        self._listener, self._secret, self._folder, self._have = listener, secret, folder, have
        self._lock = threading.Lock()
        self._images: dict[tuple[int, int], Stored] = {}
        self._promised: list[_Promised] = []  # to those that send now
        self._served: set[socket.socket] = set()
        self._ended = False
        self._taken = 0
        if listener:
            accept_all(listener, MOST_CONNECTIONS, self._serve)

    def images(self) -> list[tuple[int, int]]:
        """Return place and number of all that are whole."""
        with self._lock:
            return list(self._images)

    def put(self, image: Stored) -> None:
        """Have an image that this host has made itself."""
        with self._lock:
            self._images[image.place, image.number] = image

    def take(self, place: int, number: int) -> Stored | None:
        """Return an image, which is its taker's from now on."""
        with self._lock:
            return self._images.pop((place, number), None)

    def keep(self, number: int) -> None:
        """Drop the images before this one: it is the line of all."""
        self._drop(lambda one: one < number)

    def drop(self, number: int) -> None:
        """Drop an image that has been given up."""
        self._drop(lambda one: one == number)

    def _drop(self, is_old: Callable[[int], bool]) -> None:
        with self._lock:
            old = [key for key in self._images if is_old(key[1])]
            dropped = [self._images.pop(key) for key in old]
        for image in dropped:
            image.drop()

    def end(self) -> None:
        """Take no more, and drop all."""
        with self._lock:
            self._ended = True
            served = list(self._served)
        for sock in [*served, *([self._listener] if self._listener else [])]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # what waits for it is woken
        if self._listener:
            self._listener.close()
        self.keep(checked.MOST)

    def _serve(self, sock: socket.socket, _: str) -> None:
        with self._lock:
            if self._ended:
                return
            self._served.add(sock)
        try:
            with contextlib.suppress(OSError):
                link = Link(sock, self._secret, calls=False)
                said = link.receive(SILENT_S, HEADER_LARGEST)
                if said and said["kind"] == "image":
                    self._receive(link, said)
        finally:
            with self._lock:
                self._served.discard(sock)

    def _receive(self, link: Link, said: dict[str, Any]) -> None:
        with self._lock:
            self._taken += 1
            folder = self._folder / f"copy-{self._taken}"
        stored, promised = _header(said, folder), _Promised(0, 0)
        try:
            hashed = digest_for(self._secret)
            contents = Contents.from_note({"files": said["files"], "objects": said["memory"]})
            lacks = {"logs": mirrored_logs.wanted(stored.record)}
            logs = mirrored_logs.asked(lacks, stored.record)
            contents = contents.with_files(travelling.sizes(logs))
            promised = self._promise(contents)
            link.send("ready", **lacks)
            _take(link, hashed, stored, contents, promised)
            end = link.receive(SILENT_S) or {}
            if end.get("digest") != hashed.hexdigest():
                raise LinkError("its digest differs")
            mirrored_logs.check(logs, folder)
        except (OSError, ValueError, TypeError, KeyError) as error:  # also what is no row, no note
            stored.drop()
            link.send("refused", why=str(error))
            return
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._promised.remove(promised)
        with self._lock:
            before = stored if self._ended else self._images.get((stored.place, stored.number))
            if not self._ended:
                self._images[stored.place, stored.number] = stored
        if before:
            before.drop()
        if before is stored:
            return
        self._have(stored)
        link.send("have")

    def _promise(self, contents: Contents) -> _Promised:
        """Keep room for what will follow, beside what was promised to others; raise LinkError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        mine = _Promised(contents.bytes - contents.memory_bytes, contents.memory_bytes)
        with self._lock:
            disk = shutil.disk_usage(self._folder).free - sum(one.disk for one in self._promised)
            room = memory.available() - LEAST_FREE - sum(one.memory for one in self._promised)
            for what, needed, free in (
                ("disk", mine.disk, disk // 2),
                ("memory", mine.memory, room),
            ):
                if needed > free:
                    raise LinkError(
                        f"it needs [{needed / 1e6:.0f}] MB of {what}, and there are "
                        f"[{max(0, free) / 1e6:.0f}] MB"
                    )
            self._promised.append(mine)
        return mine


def _header(said: dict[str, Any], folder: Path) -> Stored:
    """Check what is announced; raise LinkError."""
    record, options = said.get("record"), said.get("options")
    if not isinstance(record, dict) or not isinstance(options, dict):
        raise LinkError("it has no record")
    clients = record.get("clients")
    if not isinstance(clients, dict) or len(clients) > MOST_CLIENTS:
        raise LinkError("its clients are none")
    if not clocks.are_clocks(record.get("clocks")):
        raise LinkError("its clocks are none")
    number = checked.number(record, "number")
    where = (checked.number(said, "place"), number)
    return Stored(*where, folder, record, options, checked.name(said, "clients_name"))


def _take(link: Link, hashed: Any, stored: Stored, contents: Contents, promised: _Promised) -> None:
    """Make the image of the bytes that follow."""
    buffer = memoryview(bytearray(CHUNK))

    def fill(fd: int, start: int, end: int) -> None:
        while start < end:
            piece = buffer[: min(CHUNK, end - start)]
            link.receive_into(piece, SILENT_S)
            hashed.update(piece)
            done = 0
            while done < len(piece):
                done += os.pwrite(fd, piece[done:], start + done)
            start += len(piece)
            promised.came(len(piece))

    clients = stored.record["clients"].items()
    names = {int(id): note["channel"]["name"] for id, note in clients}
    contents.make_files(stored.folder, fill)
    contents.make_memory(names, fill, stored.memory)
