"""Between the relay of a place, which is in its image, and the head, which passes on to other places.

What the relay says while its place is being dumped, or is about to be put back, is dropped, in both
directions: it belongs to no line, or to what is given up. The relay says it again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyft._native import linux
from pyft.hosts.relay import relay
from pyft.hosts.relay.pair import AGENT, BARE, LARGEST, Datagram, packed, target_of, unpacked
from pyft.hosts.wire.link import key_for, token

_AT_ONCE = 64


def command_of(name: str, place: int, command: Sequence[str]) -> list[str]:
    """Return what is started instead of the command: its relay, which starts it."""
    script = Path(relay.__file__)
    return [sys.executable, "-I", str(script), name_of(name), str(place), *command]


def environment_of(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a relay."""
    return environment | {relay.KEY: _key().hex()}


def name_of(clients_name: str) -> str:
    """Return the name of the relay's socket."""
    return f"{clients_name}-relay"


def opened(clients_name: str) -> socket.socket:
    """Return the socket at which agents hear the relay, for a process that outlives them.

    Free for a moment, its name could be taken by another user, who knows it from /proc/net/unix: no
    agent would hear the relay any more, and the relay would tell that user all.
    """
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    found.setblocking(False)
    found.bind("\0" + relay.outer_name(name_of(clients_name)))
    return found


def _key() -> bytes:
    return key_for(token(), "relays")


class Relayed:
    """The agent's end of its place's relay."""

    def __init__(
        self,
        clients_name: str,
        place: int,
        pass_on: Callable[[int, str], object],
        opened: socket.socket,
    ) -> None:
        """`pass_on(place, text)`: gives a datagram to the head. `opened`: what the supervisor holds."""
        self._name, self._place, self._key = name_of(clients_name), place, _key()
        self._pass_on = pass_on
        self.places: list[str] = []  # addresses of all, once they are there
        self.socket = opened
        self.socket.setblocking(False)
        self._forget_earlier()

    def _forget_earlier(self) -> None:
        """What was said to an agent before this one may be of no line; else it is said again."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.recv(LARGEST + 1)

    def heard(self, is_open: bool) -> None:
        """Take what the relay has said; `is_open`: it may leave this host."""
        for _ in range(_AT_ONCE):
            try:
                data, user = linux.receive_with_user(self.socket, LARGEST + 1)
            except OSError:
                return
            if user != os.geteuid() or len(data) > LARGEST:
                continue
            target = target_of(data)
            if target == AGENT:
                self._welcome(data)
            elif is_open:
                self._pass_on(target, base64.b64encode(data).decode())

    def _welcome(self, data: bytes) -> None:
        """Tell a relay that asks which places there are, if all are known."""
        if self.places and unpacked(self._key, data):
            text = json.dumps(self.places).encode()
            one = Datagram(AGENT, self._place, 0, 0, 0, BARE, text)
            self.deliver(packed(self._key, one))

    def deliver(self, data: bytes) -> None:
        """Give the relay what another one has said; it is said again if that is not possible now."""
        with contextlib.suppress(OSError):
            self.socket.sendto(data, "\0" + relay.inner_name(self._name))
