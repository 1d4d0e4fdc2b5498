"""Pre-dumps: CRIU writes the pages of the processes while they run, before an image is made of them.

Then the dump, for which all stand still, has to write those only that were written since. A pre-dump
that fails, or takes too long, costs an image nothing but that: all pages are dumped then.

A process is in CRIU's hands for a moment of it. CRIU that were killed then would leave the process in
the middle of something: it is killed only when it holds none.
"""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pyft.agent.process import messages, process_tree
from pyft.agent.process.awake import AwakeClock
from pyft.agent.supervisor.children import PRE_DUMP
from pyft.agent.supervisor.link import Handover
from pyft.images import criu, dump_stats, image_folder, tree
from pyft.recovery.images import MOST_TAKE_S, PREPARE_S

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

STOP_S = 1.0  # for CRIU to stand still, to be looked at
MOST_FAILED = 3  # in a row: then there are none any more
_LOOK_S = 0.001


class PreDumps:
    """All pre-dumps of one agent. One at a time."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._folder: Path | None = None  # of the last one, until an image has it
        self._pid = self._root = 0
        self._began = 0.0
        self._clock = AwakeClock()
        self._until = math.inf
        self._why = ""  # it is ended
        self._is_wanted = self._is_whole = self._is_used = False
        self._failed = 0  # in a row
        self.stood_s = 0.0  # for how long the processes stood still for the last one
        self._took_s = 0.0
        self.figures: dict[str, float] = {}  # of the one that the last image has taken

    @property
    def pid(self) -> int:
        """Return CRIU's process, 0 if none is at work."""
        return self._pid

    @property
    def are_given_up(self) -> bool:
        """Say whether so many have failed that no other one is tried."""
        return self._failed >= MOST_FAILED

    def begin(self, program: Path, root: int) -> bool:
        """Begin one of the tree below `root`; say whether that is possible."""
        if self._pid or self.are_given_up:
            return False
        self.drop()
        memory_folder = self._servers.options.memory_folder
        image_folder.give_back(memory_folder)
        images, needs = self._images, tree.resident_bytes(tree.members(root))
        try:
            self._folder = image_folder.make_pre_dump(images, memory_folder, needs)
            arguments = criu.pre_dump_arguments(program, root, self._folder)
            self._pid = self._servers.supervisor.start_criu(PRE_DUMP, arguments, root)
        except OSError as error:
            self._has_failed(f"CRIU cannot be started: {error.strerror}")
            return False
        self._root, self._why = root, ""
        self._is_wanted, self._is_whole = True, False
        self._began, self._until = time.monotonic(), self._clock.now() + PREPARE_S
        return True

    def adopt(self, root: int, handover: Handover) -> None:
        """Leave nothing of one that the agent before has begun."""
        for pid in handover.ended(PRE_DUMP):
            self._servers.supervisor.forget(pid)
        self._root, self._pid = root, handover.at_work(PRE_DUMP)
        self._until = self._clock.now() + PREPARE_S
        self.drop()

    def look(self) -> str:
        """End one that takes too long; say so if it cannot be ended, for it holds the processes."""
        late_s = self._clock.now() - self._until
        if not self._pid or late_s < 0:
            return ""
        if late_s > MOST_TAKE_S:
            self._until = math.inf
            return f"CRIU has not ended a pre-dump within [{PREPARE_S + MOST_TAKE_S:g}] s"
        self._why = f"it has taken more than [{PREPARE_S:g}] s"
        _end_idle(self._pid, self._root)
        return ""

    def ended(self, pid: int, status: int) -> bool:
        """Take the end of CRIU's process; say whether something waits for it."""
        is_wanted, self._pid, self._until = self._is_wanted, 0, math.inf
        self._servers.supervisor.forget(pid)
        if not is_wanted or self._folder is None:
            self.drop()
            return False
        self._is_wanted = False
        if status:
            self._has_failed(self._why or f"CRIU: {criu.why_failed(self._folder)}")
            return True
        self._took_s = time.monotonic() - self._began
        self.stood_s, self._is_whole = dump_stats.stood_s(self._folder), True
        return True

    def take(self, folder: Path) -> str:
        """Put a whole one into the folder of an image; return its name there, empty if there is none."""
        self._is_used, self.figures = False, {}
        if self._is_whole and self._folder:
            self._is_used = image_folder.take_pre_dump(folder, self._folder)
            self._folder, self._is_whole = None, False
        if self._is_used:
            self.figures = {"pre_dump_s": self._took_s, "pre_dump_stood_s": self.stood_s}
        return image_folder.PRE_DUMP if self._is_used else ""

    def dumped(self, why: str) -> None:
        """Note whether the dump has failed that was to need less because of one."""
        if self._is_used and why:
            self._has_failed(f"the dump after it has failed: {why}")
        elif self._is_used:
            self._failed = 0

    def drop(self) -> None:
        """Leave nothing of one that no image has taken; of one that CRIU writes, at its end."""
        self._is_wanted = self._is_whole = False
        self.stood_s = 0.0
        if not self._pid:
            image_folder.remove_pre_dump(self._images, self._servers.options.memory_folder)
            self._folder = None

    @property
    def _images(self) -> Path:
        return self._servers.options.log_dir / "images"

    def _has_failed(self, why: str) -> None:
        """Do without; say so the first time, and when no other one is tried."""
        self._failed += 1
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        if self._failed == 1:
            messages.say(f"--movable: all stand still for all pages, without a pre-dump: {why}")
        elif self.are_given_up:
            messages.say(f"--movable: no more pre-dumps, since [{self._failed}] have failed: {why}")


def _end_idle(pid: int, root: int) -> None:
    """Kill CRIU if it holds none of the processes; else it goes on, and is looked at again."""
    process_tree.send([pid], signal.SIGSTOP)
    deadline = time.monotonic() + STOP_S
    while _state(pid) not in ("T", "t", "Z", "") and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    stands = _state(pid) == "T"
    if stands and not _is_held(tree.members(root), pid):
        process_tree.send([pid], signal.SIGKILL)
    process_tree.send([pid], signal.SIGCONT)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _is_held(pids: Collection[int], by: int) -> bool:
    """Say whether a thread of these processes is in the hands of another one."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                lines = (task / "status").read_text().splitlines()
            except OSError:  # it has ended
                continue
            if f"TracerPid:\t{by}" in lines:
                return True
    return False
