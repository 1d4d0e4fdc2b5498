"""The first process of a place: starts the command, and carries its connections with other places.

    relay.py NAME PLACE COMMAND...

It is in the image of its place, and so are both ends of all connections that it carries: one to the
program, which is within this host, and one that is none at all, but numbered messages (pair.py). The
agent, which is outside of the image, hands them to the head (pyft/hosts/place/relayed.py). PYFT_RELAY_KEY
is the secret of all relays of the job; the command does not see it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from pyft import config
from pyft.agent.process import process_tree
from pyft.hosts.relay.askers import Askers
from pyft.hosts.relay.pair import AGENT, BARE, LARGEST, OVER, Datagram, Pair, packed, unpacked
from pyft.hosts.relay.streams import Streams

START_S = 900.0  # for all places to be there
HELLO_S = 0.2
LONGEST_S = 0.5  # one turn
LAST_S, LONGEST_LAST_S = 3.0, 60.0  # for the others to hear the end: silent, and in all
NOT_FOUND, NO_PROGRAM = 127, 126  # exit codes, as a shell has them
KEY = "PYFT_RELAY_KEY"
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_SI_KERNEL = 0x80  # the terminal sent it, to the command as well


class Relay:
    """One place's. Single-threaded, but for the signals."""

    def __init__(self, name: str, place: int, key: bytes, command: list[str]) -> None:
        self._name, self._place, self._key, self._command = name, place, key, command
        self._selector = selectors.DefaultSelector()
        self._pairs: dict[int, Pair] = {}
        self._streams = Streams(place, self._pairs, self._selector)
        self._child: subprocess.Popen[bytes] | None = None
        self._agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._agent.bind("\0" + inner_name(name))
        self._agent.setblocking(False)
        self._selector.register(self._agent, selectors.EVENT_READ, lambda _: self._heard())
        self._askers = Askers(name, self._selector, self._streams.ask)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(
            self._wake, selectors.EVENT_READ, lambda _: os.read(self._wake, 4096)
        )

    def run(self) -> int:
        """Return the command's status, as subprocess gives it."""
        until = time.monotonic() + START_S
        while not self._child:
            self._tell(Datagram(self._place, AGENT, 0, 0, 0, BARE))
            self._turn(HELLO_S)
            if time.monotonic() > until:
                os.write(2, b"pyft: not all places of the job are there: nothing is started\n")
                return 1
        while self._child.poll() is None:
            self._turn(LONGEST_S)
        self._say_end()
        self._askers.refusals.sum_up()
        return self._child.returncode

    def _turn(self, seconds: float) -> None:
        now = time.monotonic()
        self._streams.look(now)
        self._askers.look(now)
        self._tell_due(now)
        for pair in self._pairs.values():
            if (when := pair.when()) is not None:
                seconds = min(seconds, max(0.001, when - now))
        for key, mask in self._selector.select(seconds):
            known = self._selector.get_map().get(key.fd)
            if known and known.fileobj is key.fileobj:  # else an earlier one has ended it
                key.data(mask)

    def _tell_due(self, now: float) -> None:
        for pair in self._pairs.values():
            for one in pair.due(now):
                self._tell(one)

    def _say_end(self) -> None:
        """Let the others have what was sent last, and know that no more will come."""
        self._turn_until(lambda: self._streams.is_read)
        self._streams.end()
        for pair in self._pairs.values():
            pair.put(OVER, 0)
        self._turn_until(lambda: all(pair.is_idle for pair in self._pairs.values()))
        self._tell_due(time.monotonic())  # others may wait for a word that theirs have come

    def _turn_until(self, is_done: Callable[[], bool]) -> None:
        """Go on until then, or until the others confirm nothing any more.

        They have nothing to confirm while a program there does not read what was sent to it.
        """
        began = moved = time.monotonic()
        confirmed = 0
        while time.monotonic() < min(moved + LAST_S, began + LONGEST_LAST_S) and not is_done():
            self._turn(HELLO_S)
            now_confirmed = sum(pair.confirmed for pair in self._pairs.values())
            if now_confirmed > confirmed or self._streams.wait_for_reader:
                confirmed, moved = now_confirmed, time.monotonic()

    # ---- the agent, and behind it the other places --------------------------------------------

    def _tell(self, one: Datagram) -> None:
        """Send it if something listens; what is not confirmed is sent again."""
        with contextlib.suppress(OSError):
            self._agent.sendto(packed(self._key, one), "\0" + outer_name(self._name))

    def _heard(self) -> None:
        for _ in range(64):
            try:
                data = self._agent.recv(LARGEST + 1)
            except OSError:
                return
            one = unpacked(self._key, data)
            if one is None or one.target != self._place:
                continue
            if one.source == AGENT:
                self._start(one.data)
            elif one.source in self._pairs:
                self._take(self._pairs[one.source], one)

    def _take(self, pair: Pair, one: Datagram) -> None:
        got = pair.take(one)
        if got and got.kind == OVER:
            self._streams.drop(pair)
        elif got:
            self._streams.heard(pair, got)

    # ---- the command --------------------------------------------------------------------------

    def _start(self, data: bytes) -> None:
        """All places are there: start the command, once."""
        if self._child:
            return
        addresses = [str(address) for address in json.loads(data)]
        own = range(len(addresses))
        self._pairs.update({p: Pair(self._place, p) for p in own if p != self._place})
        environment = {name: value for name, value in os.environ.items() if name != KEY}
        environment |= {"PYFT_PLACES": ",".join(addresses), "PYFT_RELAY": self._name}
        parent, mask = os.getpid(), self._mask

        def before_exec() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            process_tree.die_with_parent(signal.SIGTERM, parent)

        self._child = subprocess.Popen(
            self._command, env=environment, preexec_fn=before_exec, close_fds=False
        )
        self._forward_signals()

    def _forward_signals(self) -> None:
        numbers = [getattr(signal, name) for name in _FORWARDED]
        ours = {n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)

        def forward() -> None:
            while True:
                info = signal.sigwaitinfo(ours)
                if info.si_code != _SI_KERNEL and self._child:
                    with contextlib.suppress(OSError):
                        self._child.send_signal(info.si_signo)

        threading.Thread(target=forward, daemon=True).start()


def inner_name(name: str) -> str:
    """Return where the relay hears its agent."""
    return f"{name}-in"


def outer_name(name: str) -> str:
    """Return where the agent hears its relay."""
    return f"{name}-out"


def main(arguments: list[str]) -> int:
    """Run the command of a place; end as it has ended."""
    name, place, *command = arguments
    process_tree.set_name("pyft-relay")
    key = bytes.fromhex(config.get_str(KEY) or "")
    try:
        status = Relay(name, int(place), key, command).run()
    except OSError as error:
        os.write(2, f"pyft: [{command[0]}] cannot be started: {error.strerror}\n".encode())
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NO_PROGRAM
    if status < 0:
        with contextlib.suppress(OSError):  # what ends a process in any case has no handler
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
