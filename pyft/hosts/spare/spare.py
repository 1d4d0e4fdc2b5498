"""`pyft host`: a host without a place. It keeps copies of images, and takes the place of a lost host."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyft.agent.image_record import left_behind
from pyft.agent.process import messages, process_tree
from pyft.agent.process.notes import make_note
from pyft.hosts import slurm
from pyft.hosts.place.mirror import Receiver, Stored
from pyft.hosts.wire import checked
from pyft.hosts.wire.head_link import HeadLink
from pyft.hosts.wire.link import LinkError, addresses_of
from pyft.images import travelling
from pyft.images.travelling import LogError

LOOK_S = 0.05
MOST_REQUESTS = 4096  # of faults
SILENT_S = 300.0  # of the head, after which the job is over for this host
_TAKE = Path(__file__).with_name("take.py")


class Spare:
    """One host without a place."""

    def __init__(
        self,
        head: str,
        secret: bytes,
        name: str,
        address: str,
        folder: Path,
        left: Stored | None = None,
    ) -> None:
        """`left`: the image of the place that this host had; it takes no other one."""
        self._name, self._address, self._folder = name, address, folder
        self._head = head  # HOST:PORT, of several heads with commas between them
        listener = None if left else socket.create_server((address, 0), backlog=16)
        self._port = listener.getsockname()[1] if listener else 0
        self._receiver = Receiver(listener, secret, folder, self._have)
        if left:
            self._receiver.put(left)
        self._lease_s = 3.0
        self._link = HeadLink(addresses_of(head), secret, self._hello)
        self._heard_at = time.monotonic()

    def run(self) -> int:
        """Wait until a place is to be taken, and go on with it; return its exit code."""
        next_at, number = 0.0, 0
        try:
            while time.monotonic() < self._heard_at + SILENT_S:
                while said := self._link.heard():
                    self._heard_at = time.monotonic()
                    code = self._take_order(said)
                    if code is not None:
                        return code
                if time.monotonic() >= next_at:
                    next_at, number = time.monotonic() + self._lease_s / 3, number + 1
                    self._link.say("renew", number=number)
                time.sleep(LOOK_S)
            messages.say(f"the head has been silent for [{SILENT_S:g}] s: this host ends")
            return 1
        finally:
            self._receiver.end()
            self._link.end()

    def _hello(self) -> dict[str, Any]:
        images = [list(image) for image in self._receiver.images()]
        me = {"role": "spare", "host": self._name, "address": self._address, "port": self._port}
        domain = slurm.domain(os.environ)
        return me | {"images": images} | ({"domain": domain} if domain else {})

    def _have(self, image: Stored) -> None:
        self._link.say("have", place=image.place, number=image.number)

    def _welcomed(self, said: dict[str, Any]) -> None:
        """Say what has become whole since the hello, before which nothing could be said."""
        self._lease_s = float(said["lease_s"])
        for place, number in self._receiver.images():
            self._link.say("have", place=place, number=number)

    def _take_order(self, said: dict[str, Any]) -> int | None:
        """Do what the head says; return an exit code when this host has to do no more."""
        try:
            if said["kind"] == "welcome":
                self._welcomed(said)
            elif said["kind"] == "keep":
                self._receiver.keep(checked.number(said, "number"))
            elif said["kind"] == "drop":
                self._receiver.drop(checked.number(said, "number"))
            elif said["kind"] == "take":
                return self._take(said)
            elif said["kind"] in ("over", "refused"):
                return self._over(said)
        except LinkError as error:
            messages.say(f"the head says what cannot be: {error}")
        return None

    def _over(self, said: dict[str, Any]) -> int:
        """Return the exit code of a host that has no more to do."""
        if self._port:
            return 0
        messages.say(f"this host has left its place: {checked.text(said, 'why')}")
        return checked.number(said, "code", 255) if said["kind"] == "over" else 1

    def _take(self, said: dict[str, Any]) -> int | None:
        place, number = checked.number(said, "place"), checked.number(said, "number")
        happened = checked.numbers(said, "happened", MOST_REQUESTS)
        image = self._receiver.take(place, number)
        if image is None:
            messages.say(f"place [{place}] cannot be taken: image [{number}] is not here")
            return None
        try:
            _make_logs(image)
        except LogError as error:
            self._receiver.put(image)
            messages.say(f"place [{place}] cannot be taken: {error}")
            return None
        messages.say(f"this host takes place [{place}], from image [{number}]")
        self._link.end()
        life, round = checked.number(said, "life"), checked.number(said, "round")
        note, fds = self._note(image, life, round, happened)
        fd = make_note("take", note)
        os.lseek(fd, 0, os.SEEK_SET)
        parent = os.getpid()
        child = subprocess.Popen(
            [sys.executable, "-I", str(_TAKE), str(fd)],
            pass_fds=[fd, *fds],
            preexec_fn=lambda: _begin(parent),
        )
        os.close(fd)
        image.let_go()
        self._receiver.end()  # no other place is this host's: copies for that are of no use
        try:
            with _passes_on(child):
                return messages.shown(child.wait())
        finally:
            image.drop()

    def _note(
        self, image: Stored, life: int, round: int, happened: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        """Return what take.py is told, and the descriptors that go with it.

        `happened`: numbers of the faults that were asked for and came after the image.
        """
        record = image.record | {"folder": str(image.folder)}
        for number, request in enumerate(record["servers"]["requests"]["all"] if happened else ()):
            request["done"] |= number in happened
        plan = {"round": round, "back_in": round, "is_fresh": 1}
        kept = left_behind(record, image.memory, plan)
        options = image.options | {
            "log_dir": str(self._folder / f"place-{image.place}"),
            "head": self._head,
            "place": image.place,
            "life": life,
            "host": self._name,
            "address": self._address,
        }
        note = {"options": options, "clients_name": image.clients_name, "kept": kept}
        note["clocks"] = record["clocks"]
        return note, [fd for fds in image.memory.values() for fd in fds]


def _make_logs(image: Stored) -> None:
    """Make what a place appends to and this host has not; raise LogError."""
    image.record.pop("reopened", None)  # of files that the other host can see
    logs, moved = travelling.make_all(image.record.get("logs", []), image.folder)
    image.record["logs"] = logs
    for sentence in moved:
        messages.say(sentence)


@contextlib.contextmanager
def _passes_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have the place end by a signal that this process gets, and wait for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin(parent: int) -> None:
    """Prepare the process that goes on with a place: a launcher that has left one blocks signals."""
    process_tree.die_with_parent(signal.SIGTERM, parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
