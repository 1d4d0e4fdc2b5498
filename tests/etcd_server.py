"""A real etcd of one member, for the tests: Debian's etcd-server."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

TRIES = 3  # another process may take the port meanwhile
UP_S = 60.0


def lacks() -> str:
    """Return what is missing, nothing if it can be started."""
    return "" if shutil.which("etcd") else "the program [etcd] is missing: Debian's etcd-server"


class Etcd:
    """One member, with its data in a folder."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        address: str = "127.0.0.1",
        wrapper: Sequence[str] = (),
    ) -> None:
        """`wrapper`: what starts it elsewhere, in a network where `address` is."""
        self.folder, self.address, self._wrapper = folder, address, list(wrapper)
        self._options, self.port = options, 0
        folder.mkdir()
        for _ in range(TRIES):
            if self._begin():
                return
        raise AssertionError(f"etcd does not start: {self.said()[-2000:]}")

    def _begin(self) -> bool:
        """Start it; say whether it answers."""
        self.port, peers = _free_ports()
        scheme = "https" if "--auto-tls" in self._options else "http"
        url, peer = f"{scheme}://{self.address}:{self.port}", f"http://{self.address}:{peers}"
        command = [
            *(*self._wrapper, "etcd", "--data-dir", str(self.folder / f"data-{self.port}")),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--logger", "zap", *self._options),
        ]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + UP_S
        while time.monotonic() < until and self.process.poll() is None:
            if "serving client traffic" in self.said():
                return True
            time.sleep(0.02)
        self.end()
        return False

    @property
    def url(self) -> str:
        """Return it as `pyft head --ledger` takes it."""
        return f"etcd://{self.address}:{self.port}"

    def said(self) -> str:
        """Return its log."""
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def pause(self) -> None:
        """Let it stand still."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)


def _free_ports() -> tuple[int, int]:
    """Return two ports that nothing has taken a moment ago."""
    with socket.socket() as one, socket.socket() as other:
        for sock in (one, other):
            sock.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
