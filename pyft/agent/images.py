"""Makes images of the job's processes, as pyft.recovery.images decides (docs/concepts/recovery-line.md).

CRIU is the supervisor's child, so that it ends its work even if the agent dies meanwhile. What an
image has in memory the supervisor keeps, under names of the image.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyft import config
from pyft.agent import image_record, leaving
from pyft.agent.client_states import client_state_of, stands
from pyft.agent.ended_dump import end_dump, let_go
from pyft.agent.flushes import Flushes
from pyft.agent.image_record import NOTE
from pyft.agent.members.member import Member
from pyft.agent.pre_dumps import PreDumps
from pyft.agent.process import messages, process_tree
from pyft.agent.process.awake import AwakeClock
from pyft.agent.process.stopped import stop_all, stopped
from pyft.agent.restoring import NOTE as RESTORING
from pyft.agent.restoring import Restoring, kept_name
from pyft.agent.supervisor.children import DUMP
from pyft.agent.supervisor.link import Handover
from pyft.images import criu, image_folder, memory, reopened, tree
from pyft.recovery import images as decided

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

LOOK_S = 0.1
QUICK_S = 0.001  # while clients are held
CLOSER_S = 0.05  # likewise: whether they wait for each other
DUMP_END_S, LAST_DUMP_END_S = 10.0, 1.0  # for a dump to end when all go back; when the job ends
TOLD_AFTER = 3  # images in a row that were passed over


class Images:
    """All images of a job that is movable."""

    def __init__(self, servers: Servers, plan: decided.ImagePlan | None = None) -> None:
        self._servers = servers
        self._options = servers.options
        self._program: Path | None = None
        self._plan = plan or decided.ImagePlan(config.get_int("PYFT_IMAGE_EVERY"))
        self.back: dict[str, Any] | None = None  # the image to which all are to go back
        self.leaves: leaving.Image | None = None  # with which the place goes to another host
        self.failed = ""  # why the job has to end
        self._records: dict[int, dict[str, Any]] = {}
        self._memory: dict[int, dict[int, list[int]]] = {}  # by image and client
        self._dump = 0  # CRIU's pid
        self._pre_dumps = PreDumps(servers)
        self._clock = AwakeClock()
        self._dump_until = math.inf
        self._at_end: list[decided.Action] = []  # of a dump that nothing waits for
        self._root = 0
        self._began = self._looked_at = 0.0
        self._signs: dict[int, tuple[int, ...]] = {}  # of clients, at the last close look
        self.figures: list[dict[str, float]] = []  # of the images that this agent has made
        self._clients_name = ""
        self.flushes: Flushes | None = None
        self.launcher: socket.socket | None = None  # which passes on what the command prints
        self.relay: socket.socket | None = None  # hears the relay, where there is one

    @property
    def folder(self) -> Path:
        """Return where the images of the job lie."""
        return self._options.log_dir / "images"

    def started(
        self, command: Sequence[str], environment: dict[str, str], clients_name: str
    ) -> tuple[Sequence[str], dict[str, str]]:
        """Return what is started for a command, and with which environment."""
        del clients_name
        return command, environment

    def begin(self, root: int) -> None:
        """Make images from now on, or say why there will be none."""
        self._program, self._root = criu.find(), root
        if why := criu.lacks(self._program):
            self._program = None
            messages.say(f"--movable: no images, so a process that is killed ends the job: {why}")
            return
        self._plan.prepares = self._can_pre_dump()
        if self._options.flush:
            options = self._options.of_the_job() | {"flush_every": self._options.flush_every}
            about = {"options": options, "clients_name": self._clients_name}
            self.flushes = Flushes(self._options, about)
        self._again()

    @property
    def pre_dumps(self) -> str:
        """Return whether most of an image is written while all run, in words."""
        if self._pre_dumps.are_given_up:
            return "given up, since they fail"
        if self._plan.prepares:
            return "used"
        asked = config.get_int("PYFT_PRE_DUMPS")
        return "none: the kernel does not track writes" if asked else "none: not asked for"

    def _can_pre_dump(self) -> bool:
        program = criu.find() if config.get_int("PYFT_PRE_DUMPS") else None
        return program is not None and criu.tracks_writes(program)

    def adopt(self, root: int, handover: Handover) -> None:
        """Go on where the agent before has stopped, perhaps in the middle of a dump."""
        self._root, self._program = root, criu.find()
        self._clients_name = handover.clients_name
        self._pre_dumps.adopt(root, handover)
        process_tree.send(self._server_pids(), signal.SIGCONT)  # it may have died while it copied
        note = handover.notes.get(NOTE)
        if not note:
            self._release("")  # a hold leaves no note before its dump
            return
        self._records = {int(number): record for number, record in note["records"].items()}
        for number, record in self._records.items():
            self._memory[number] = image_record.memory_of(record, handover)
        for name in image_record.unfinished(self._records, handover):
            self._servers.supervisor.drop(name)
            for fd in handover.fds.get(name, []):
                os.close(fd)
        self._dumps(handover.at_work(DUMP))
        self._after_failed(handover.failed(DUMP))
        actions = self._plan.adopt(time.monotonic(), note["plan"])
        if self._dump:  # it writes into what is to be dropped
            self._at_end = actions
        else:
            self._perform(actions)

    def _again(self) -> None:
        self.look()
        held = self._plan.phase is decided.Phase.HOLD
        self._servers.loop.after(QUICK_S if held else LOOK_S, self._again)

    @property
    def waits(self) -> bool:
        """Say whether it is still to be decided what is done about a client's death."""
        return False

    def turn(self) -> None:
        """Look at once while clients are held: a server or a client has said something."""
        if self._plan.phase is decided.Phase.HOLD:
            self.look()

    def look(self) -> None:
        """Decide about everything that may have changed; nothing more if all go back."""
        self._look_at_dump()
        if self._program and not (self._dump or self._servers.ending or self.back):
            self._perform(self._plan.look(time.monotonic(), self._client_states()))
        if self.flushes:
            self.flushes.look()

    def _dumps(self, pid: int) -> None:
        """Know of CRIU that dumps from now on; 0: none does."""
        self._dump, self._dump_until = pid, self._clock.now() + decided.MOST_TAKE_S

    def _look_at_dump(self) -> None:
        """All go back if CRIU hangs: nothing else lets go what it has begun to dump."""
        if self._servers.ending or self.back:
            return
        why = self._pre_dumps.look()
        if self._dump and self._clock.now() > self._dump_until:
            self._dump_until = math.inf
            why = f"CRIU has not ended within [{decided.MOST_TAKE_S:g}] s"
        if why and not self.client_lost(why):
            self.failed = why

    def end_dump(self, most_s: float = DUMP_END_S, *, with_tree: bool = True) -> None:
        """Let a dump end that nothing waits for any more, and its tree with it."""
        if self._dump:
            end_dump(self._dump, self._root, most_s, with_tree=with_tree)
            self._dump = 0
        if self._pre_dumps.pid:
            end_dump(self._pre_dumps.pid, self._root, most_s, with_tree=with_tree)

    def ended(self, pid: int, status: int) -> bool:
        """Take the end of a process; say whether it was CRIU's."""
        if pid and pid == self._pre_dumps.pid:
            self._prepared(pid, status)
            return True
        if not self._dump or pid != self._dump:
            return False
        self._dump = 0
        if status:
            self._after_failed([pid])
        else:
            self._servers.supervisor.forget(pid)
        # Were the new image to count now, the one to which all go back would be dropped.
        if self.back:
            return True
        # The agent before has begun it, or it is given up.
        if self._plan.phase is not decided.Phase.DUMP:
            self._continue()
            self._perform([decided.Release(), *self._at_end])
            self._at_end = []
            return True
        why = "" if status == 0 else f"CRIU: {criu.why_failed(self._folder_of(self._plan.number))}"
        self._pre_dumps.dumped(why)
        self._perform(self._plan.dumped(time.monotonic(), self._client_states(), why))
        return True

    def _after_failed(self, pids: list[int]) -> None:
        """Forget dumps that have failed; the tree goes on, and its connections with it."""
        for pid in pids:
            self._servers.supervisor.forget(pid)
        if pids and self._root and not self._dump:
            members = tree.members(self._root)
            let_go(tree.connections(members), members)

    def client_lost(self, why: str) -> bool:
        """Say whether all go back because a client was killed."""
        record = self.lost()
        if record:
            self._goes_back(record, f"{why}: all go back to the image of step [{record['step']}]")
        return bool(record)

    def _goes_back(self, record: dict[str, Any], text: str) -> None:
        """Have all go back to an image; the next agent does as well, if this one dies."""
        self._add_found(record)
        self._servers.supervisor.keep(RESTORING, record)
        self.keep()
        self.back = record
        messages.say(text)

    def lost(self) -> dict[str, Any] | None:
        """Return the image to which all go back because a client is lost; None if there is none."""
        number, why = self._plan.lost() if self._program else (0, "")
        if not number:
            if why:
                messages.say(f"--movable: nothing is restored: {why}")
            return None
        return self._records[number]

    def restoring(self, record: dict[str, Any], reaped: Callable[[], dict[int, int]]) -> Restoring:
        """Return what puts the job back to an image."""
        assert self._program
        self._servers.ending = True
        self.end_dump()
        number = record["number"]
        self._add_found(record)
        own = (self._program, record, self._memory[number])
        gone = lambda: self._tell_valves("back", number)  # noqa: E731
        return Restoring(self._servers.supervisor, *own, reaped, gone)

    def _add_found(self, record: dict[str, Any]) -> None:
        """What was found since an image is not unsaid by going back to it."""
        comparison = self._servers.comparison
        if (known := record.get("comparison")) and comparison.found:
            known |= {"found": comparison.found, "earlier": comparison.earlier}

    def begin_again(self, record: dict[str, Any], handover: Handover) -> None:
        """Know what is needed for a restore that the agent before has begun."""
        self._program, self._root = criu.find(), record["root"]
        self._dumps(handover.at_work(DUMP))
        self._pre_dumps.adopt(self._root, handover)
        self._memory[record["number"]] = image_record.memory_of(record, handover)

    def end(self) -> None:
        """The job ends: nothing needs the images."""
        self.end_dump(LAST_DUMP_END_S, with_tree=False)  # which is asked to end first
        self._program = None
        if self.flushes:
            self.flushes.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self._options.log_dir / reopened.NAME).unlink(missing_ok=True)

    def keep(self) -> None:
        """Keep for the next agent what cannot be seen."""
        self._servers.supervisor.keep(NOTE, {"plan": self._plan.note(), "records": self._records})

    # ---- what can be seen ---------------------------------------------------------------------

    def _members(self) -> list[Member]:
        return [m for m in self._servers.members.values() if not m.client_gone and not m.saved]

    def _server_pids(self) -> list[int]:
        return [m.server_pid for m in self._members() if m.server_alive]

    def _client_states(self) -> list[decided.ClientState]:
        plan, now, members = self._servers.plan, time.monotonic(), self._members()
        found = [client_state_of(m, plan.ranks.get(m.id), plan.rollback) for m in members]
        if self._plan.phase is not decided.Phase.HOLD or now < self._looked_at + CLOSER_S:
            return found
        self._looked_at, before = now, self._signs
        self._signs = {state.id: state.signs for state in found}
        return [  # at what has moved since the last time nothing more is looked at
            replace(state, stands=state.signs == before.get(state.id) and stands(member))
            for member, state in zip(members, found, strict=True)
        ]

    # ---- what is done -------------------------------------------------------------------------

    def _perform(self, actions: list[decided.Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: decided.Action) -> None:
        if isinstance(action, decided.Prepare):
            self._prepare()
        elif isinstance(action, decided.Hold):
            image_folder.give_back(self._options.memory_folder)
            self._hold(action.step)
        elif isinstance(action, decided.Release):
            self._release(action.why)
        elif isinstance(action, decided.Dump):
            self._begin_dump(action)
        elif isinstance(action, decided.Copy):
            self._copy(action)
        elif isinstance(action, decided.Keep):
            self.keep()
            if self.flushes:
                self.flushes.offer(self._records[action.number], self._memory[action.number])
        else:
            self._drop(action.number)

    def _prepare(self) -> None:
        """Begin a pre-dump, or go on without one."""
        assert self._program
        if not self._pre_dumps.begin(self._program, self._root):
            self._perform(self._plan.prepared(time.monotonic(), self._client_states()))

    def _prepared(self, pid: int, status: int) -> None:
        """Take the end of a pre-dump; the hold follows, if it was waited for."""
        if self._pre_dumps.ended(pid, status) and not (self._servers.ending or self.back):
            stood_s = self._pre_dumps.stood_s
            self._perform(self._plan.prepared(time.monotonic(), self._client_states(), stood_s))

    def _tell_valves(self, what: str, number: int) -> None:
        """Tell the launcher what becomes of an image: what is printed after it may come again."""
        if self.launcher:
            messages.send(self.launcher, "valves", what=what, number=number)

    def _hold(self, step: int) -> None:
        until = time.monotonic_ns() + int(self._plan.deadline() * 1e9)
        for member in self._members():
            member.channel.hold(step, until)

    def _release(self, why: str) -> None:
        self._continue()
        self._pre_dumps.drop()
        for member in self._members():
            member.channel.hold(0, 0)
        if why and (self._plan.passed == 1 or self._plan.passed == TOLD_AFTER):
            messages.say(f"--movable: no image of this step: {why}")

    def _continue(self) -> None:
        """Let the tree go on, which was stopped for the dump, and is restored so."""
        if self._root:
            process_tree.send(tree.members(self._root), signal.SIGCONT)

    def _folder_of(self, number: int) -> Path:
        return self.folder / str(number)

    def _begin_dump(self, action: decided.Dump) -> None:
        self._began = time.monotonic()
        self._hold(action.step)  # the deadline of a dump
        folder = self._folder_of(action.number)
        record, why = self._begun(action.number, folder)
        if record:
            self._records[action.number] = record
        if not why:
            assert self._program
            links, before = record["sockets"].values(), self._pre_dumps.take(folder)
            arguments = criu.dump_arguments(self._program, self._root, folder, links, before)
            self.keep()
            self._tell_valves("mark", action.number)
            try:
                self._dumps(self._servers.supervisor.start_criu(DUMP, arguments, self._root))
            except OSError as error:
                why = f"CRIU cannot be started: {error.strerror}"
        if why:
            self._perform(self._plan.dumped(time.monotonic(), self._client_states(), why))

    def _begun(self, number: int, folder: Path) -> tuple[dict[str, Any], str]:
        """Stop all processes; return the record of an image of them, or why there can be none.

        What is looked at before all of them stand is not what CRIU finds.
        """
        if self._pre_dumps.pid:  # two of CRIU cannot have them
            return {}, "a pre-dump has not ended"
        try:
            pids = stop_all(lambda: tree.members(self._root))
        except OSError as error:
            return {}, error.strerror or str(error)
        outside = [m for m in self._members() if m.channel.client_pid not in pids]
        if outside:
            return {}, f"{outside[0].who} is no descendant of the command any more"
        if kept := self._servers.comparison.sharing.note()["kept"]:
            return {}, f"snapshots need the store of client {kept}, which has ended"
        own = {"number": number, "step": self._plan.step, "root": self._root}
        where = (folder, self._options)
        record, why = image_record.begun(*where, pids, self._members(), own)
        return record, why or tree.connection_out_of(pids, bool(self._options.head))

    def _copy(self, action: decided.Copy) -> None:
        """Copy the memory of all clients; the processes are stopped, and the servers drained."""
        record, why = self._records[action.number], ""
        try:
            with stopped(self._server_pids()):  # they tidy up what they keep for each other
                for member in self._members():
                    self._copy_member(action.number, member)
            record["clients"] = {str(m.id): m.note() for m in self._members()}
            record["servers"] = self._servers.decisions.note()
            record["comparison"] = self._servers.comparison.note()
            record["shares"] = self._servers.comparison.sharing.note()
            self.keep()  # before it is told: another agent has to find what counts from then on
        except OSError as error:
            why = f"the memory cannot be copied: {error.strerror}"
        actions = self._plan.copied(time.monotonic(), why)
        self._perform(actions)
        frozen = time.monotonic() - self._began
        if not why:
            size = self._bytes_of(action.number)
            figures = {"step": action.step, "frozen_s": frozen, "bytes": size}
            self.figures.append(figures | self._pre_dumps.figures)

    def _bytes_of(self, number: int) -> int:
        """Return how large an image is: what CRIU has written, and the copies of memory."""
        copies = [os.fstat(fd) for fds in self._memory.get(number, {}).values() for fd in fds]
        files = image_folder.bytes_of(image_folder.real(self._folder_of(number)))
        return files + 512 * sum(one.st_blocks for one in copies)

    def _copy_member(self, number: int, member: Member) -> None:
        channel = member.channel
        copies = self._memory.setdefault(number, {}).setdefault(member.id, [])
        for part in memory.PARTS:
            fd = getattr(channel, f"{part}_fd")
            copies.append(memory.copy_of(fd, f"pyft-{part}-{channel.name}"))
        self._servers.supervisor.keep(kept_name(number, member.id), member.note(), copies)

    def _drop(self, number: int) -> None:
        record = self._records.pop(number, None)
        if record is None:
            return
        self._tell_valves("forget", number)
        for id, copies in self._memory.pop(number, {}).items():
            self._servers.supervisor.drop(kept_name(number, id))
            for fd in copies:
                os.close(fd)
        self.keep()
        image_folder.drop(Path(record["folder"]), self._options.memory_folder)
