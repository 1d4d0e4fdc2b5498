"""What the command prints is passed on once, also where all go back to an image and print it again.

    command --pipe--> pump, a thread of the launcher --> stdout or stderr of `pyft run`

A valve knows which lines have come since each image that is kept. After going back it swallows as many
equal ones, in any order, since ranks share an output, and one may be ahead of another. A line that
comes out otherwise is passed on. The one that it stands for never comes: what is still awaited is
given up behind so many new lines.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import select
import termios
import threading
from collections import Counter, deque

from pyft.agent.process import messages

LONGEST = 1 << 16  # of a line; a longer one counts as several
MOST_LINES = 200_000  # that are known; of more the oldest are forgotten, and would come twice
LEAST_AHEAD = 100  # new lines that others may print before the last one has come again
_READ = 1 << 16
_END = re.compile(rb"[\n\r]")


class Valve:
    """One output, without input or output."""

    def __init__(self) -> None:
        self._line = b""  # that has not ended
        self._passed = 0  # bytes of it
        self._lines: list[bytes] = []  # since the oldest image
        self._marks: dict[int, tuple[int, bytes]] = {}  # by image: lines before it, and part of one
        self._again: Counter[bytes] = Counter()  # that will come again
        self._left = 0  # how many of them, and of the torn one
        self._ahead = 0  # new lines that may come until all of them have
        self._torn = b""  # the last line before going back, whose end never came
        self.otherwise = 0  # lines that have not come again as they were

    def take(self, data: bytes) -> bytes:
        """Take what has been printed; return what is to be passed on."""
        out = []
        while data:
            found = _END.search(data)
            room = LONGEST - len(self._line)
            end = min(found.end() if found else len(data), room)
            self._line += data[:end]
            data = data[end:]
            if len(self._line) >= LONGEST or _END.match(self._line[-1:]):
                out.append(self._ended())
        if not self._left:  # else it is known only at its end whether it has come before
            out.append(self._rest())
        return b"".join(out)

    def _rest(self) -> bytes:
        rest, self._passed = self._line[self._passed :], len(self._line)
        return rest

    def _ended(self) -> bytes:
        """Take a whole line; return what of it has not been passed on."""
        line, rest = self._line, self._rest()
        self._line, self._passed = b"", 0
        if self._marks:
            self._lines.append(line)
            self._bound()
        return self._fresh(line, rest) if self._left else rest

    def _fresh(self, line: bytes, rest: bytes) -> bytes:
        """Return what of a line has not come before, while some will come again."""
        if self._again[line]:
            self._again[line] -= 1
            self._left -= 1
            rest = b""
        elif self._torn and line.startswith(self._torn):
            rest, self._torn = line[len(self._torn) :], b""
            self._left -= 1
        else:
            self._ahead -= 1
        if not self._left or self._ahead < 0:
            self._give_up()
        return rest

    def _give_up(self) -> None:
        """Await nothing any more."""
        self.otherwise += self._again.total()
        self._again, self._torn, self._left = Counter(), b"", 0

    def _bound(self) -> None:
        if len(self._lines) > MOST_LINES:
            gone = len(self._lines) // 2
            del self._lines[:gone]
            self._marks = {n: (max(0, at - gone), part) for n, (at, part) in self._marks.items()}

    def mark(self, number: int) -> None:
        """An image is made: this is where its processes go on."""
        self._marks[number] = (len(self._lines), self._line)

    def forget(self, number: int) -> None:
        """An image is kept no longer."""
        self._marks.pop(number, None)
        first = min((at for at, _ in self._marks.values()), default=len(self._lines))
        del self._lines[:first]
        self._marks = {n: (at - first, part) for n, (at, part) in self._marks.items()}

    def back(self, number: int) -> bytes:
        """All go back to an image; return what the lost processes have printed last."""
        if number not in self._marks:
            return self._rest()
        at, part = self._marks[number]
        again = self._lines[at:]
        rest = self._tear()
        self._line, self._passed = part, len(part)
        self._lines = self._lines[:at]
        self._again.update(again)
        self._left = self._again.total() + bool(self._torn)
        self._ahead = max(self._left, LEAST_AHEAD)
        self._marks = {n: (least, p) for n, (least, p) in self._marks.items() if least <= at}
        return rest

    def _tear(self) -> bytes:
        """Give up a line in its middle; return what of it has not come before.

        While lines are awaited it may be one of these, or the one that was torn before.
        """
        line, rest, before = self._line, self._rest(), self._torn
        if self._left and before.startswith(line):
            return b""
        if before and line.startswith(before):
            rest = line[len(before) :]
        elif any(one.startswith(line) for one in self._again.elements()):
            return b""
        self._torn = line
        return rest

    def end(self) -> bytes:
        """Nothing comes any more; return what is left."""
        line, rest = self._line, self._rest()
        rest = self._fresh(line, rest) if self._left and line else rest
        self._give_up()
        return rest


class Pump(threading.Thread):
    """Passes on what comes by a pipe, and does what it is told between two pieces of it."""

    def __init__(self, source: int, target: int) -> None:
        super().__init__(daemon=True)
        self._source, self._target = source, target
        self._valve = Valve()
        self._told = 0
        self._lock = threading.Lock()
        self._taken = 0  # bytes from the pipe
        self._orders: deque[tuple[int, str, int]] = deque()  # each behind so many bytes
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(source, False)

    def order(self, what: str, number: int = 0) -> None:
        """Have it do something when all that has been printed before is passed on.

        What is in the pipe now is before it, whatever comes until the reader has taken that.
        """
        with self._lock:
            if self._source < 0:
                return
            self._orders.append((self._taken + _waiting_in(self._source), what, number))
        with contextlib.suppress(OSError):
            os.write(self._waker, b"!")

    def run(self) -> None:
        """Pass on until the end."""
        try:
            while self._turn():
                pass
            self._put(self._valve.end())
            self._tell()
        except OSError:  # what reads our output has gone: so the command is told
            pass
        finally:
            with self._lock:
                os.close(self._source)
                self._source = -1

    def _turn(self) -> bool:
        """Wait for something and do it; say whether more may come."""
        poller = select.poll()
        for fd in (self._source, self._wake):
            poller.register(fd, select.POLLIN)
        poller.poll()
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 1 << 10)
        while True:
            with self._lock:
                orders, data = self._due(), self._next_piece()
            if not all(self._obey(*order) for order in orders) or data == b"":
                return False
            if data is None:
                return True
            self._put(self._valve.take(data))
            self._tell()

    def _due(self) -> list[tuple[str, int]]:
        """Return what is to be done before the next byte."""
        orders = []
        while self._orders and self._orders[0][0] <= self._taken:
            orders.append(self._orders.popleft()[1:])
        return orders

    def _next_piece(self) -> bytes | None:
        """Take what there is until the next order; None if there is nothing now, empty at the end."""
        most = self._orders[0][0] - self._taken if self._orders else _READ
        try:
            data = os.read(self._source, min(most, _READ))
        except BlockingIOError:
            return None
        self._taken += len(data)
        return data

    def _obey(self, what: str, number: int) -> bool:
        """Do what it was told; say whether more may come."""
        if what == "mark":
            self._valve.mark(number)
        elif what == "forget":
            self._valve.forget(number)
        elif what == "back":
            self._put(self._valve.back(number))
        return what != "end"

    def _tell(self) -> None:
        if self._valve.otherwise > self._told:
            count, self._told = self._valve.otherwise - self._told, self._valve.otherwise
            messages.say(
                f"[{count}] lines came out otherwise after all went back: they stand twice"
            )

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._target, data) :]
            except BlockingIOError:  # another process has set it so: this one waits all the same
                poller = select.poll()
                poller.register(self._target, select.POLLOUT)
                poller.poll()


def _waiting_in(pipe: int) -> int:
    """Return how many bytes nothing has read yet."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


class Valves:
    """Those of stdout and stderr; terminals have none, since a command behaves otherwise there."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}  # what the command has instead
        self._pumps: list[Pump] = []
        seen: dict[tuple[int, int], int] = {}
        for fd in (1, 2):
            try:
                about = os.fstat(fd)
            except OSError:  # closed
                continue
            if os.isatty(fd) or os.major(about.st_rdev) == 1:  # /dev/null and its like
                continue
            where = (about.st_dev, about.st_ino)
            if where not in seen:
                source, seen[where] = os.pipe2(os.O_CLOEXEC)
                self._pumps.append(Pump(source, fd))
            self.ends[fd] = seen[where]

    def begin(self) -> None:
        """Pass on from now on; the other ends are the supervisor's alone."""
        for end in set(self.ends.values()):
            os.close(end)
        for pump in self._pumps:
            pump.start()

    def order(self, what: str, number: int = 0) -> None:
        """Tell all of them."""
        for pump in self._pumps:
            pump.order(what, number)

    def end(self) -> None:
        """Pass on what is left. It takes as long as the reader does, as without pyft."""
        self.order("end")
        for pump in self._pumps:
            if pump.ident:
                pump.join()
