"""Two relays on this machine, and between them what agents and head do: for tests of connections."""

from __future__ import annotations

import base64
import os
import random
import secrets
import subprocess
import threading
import time
from typing import Any

from pyft import _native
from pyft.hosts.place import relayed

LIBRARY = _native.native_dir() / "libpyft_places.so"
ADDRESSES = ["192.0.2.1", "192.0.2.2"]  # nobody has them (RFC 5737)


class Relays:
    """Two places. One datagram in `drops` is lost.

    Any one, drawn: of a window with as many datagrams, each `drops`th would be the first one each time.
    """

    def __init__(self, drops: int = 0, names: list[str] | None = None) -> None:
        """`names`: of relays that run already."""
        self.names = names or [f"pyft-test-{secrets.token_hex(6)}" for _ in ADDRESSES]
        self.drops, self.carried = drops, 0
        self._dice = random.Random(1)
        self.ends = [
            relayed.Relayed(name, place, self.carry, relayed.opened(name))
            for place, name in enumerate(self.names)
        ]
        self.is_open = [True, True]  # what the place says may leave it
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def carry(self, to: int, text: str) -> None:
        """Do what head and agent do."""
        self.carried += 1
        if not self.drops or self._dice.randrange(self.drops):
            self.ends[to].deliver(base64.b64decode(text))

    def _run(self) -> None:
        while not self._over:
            for end, is_open in zip(self.ends, self.is_open, strict=True):
                end.heard(is_open)
            time.sleep(0.001)

    def end(self) -> None:
        """Carry no more."""
        self._over = True
        self._thread.join()
        for end in self.ends:
            end.socket.close()

    def start(
        self, place: int, *command: str, welcome: bool = True, **how: Any
    ) -> subprocess.Popen[str]:
        """Start a command behind a relay."""
        arguments = relayed.command_of(self.names[place], place, command)
        environment = relayed.environment_of(dict(os.environ) | {"LD_PRELOAD": str(LIBRARY)})
        if welcome:
            self.ends[place].places = ADDRESSES
        return subprocess.Popen(arguments, env=environment, text=True, **how)
