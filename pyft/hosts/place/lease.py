"""A place's right to run on this host: claimed before anything starts, kept by a lease.

The launcher renews it each third of its time. If the head confirms nothing for 0.7 of it, all
processes of the place are stopped: they can do nothing while another host takes the place. They go on
when the head says that the place is still theirs, and are killed when it is not.

CRIU is not stopped, since it would fail. What it restores runs nothing of its own, and stands still when
CRIU has ended. When all of the lease is over a restore is ended, and begun again if the head answers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages, process_tree
from pyft.agent.process.criu_work import CriuWork, Work
from pyft.errors import AgentLostError, UsageError
from pyft.hosts import slurm
from pyft.hosts.wire.head_link import HeadLink
from pyft.hosts.wire.link import Link, LinkError, addresses_of, token

STOP_AT = 0.7
LOOK_S = 0.05
ANSWER_S = 10.0
AGAIN_S = 0.2
ELECTED_S = 30.0  # for one of several heads to be elected
STOPPED_S = 600.0  # then nothing will answer any more


class Lease:
    """The lease of one place. `lost` is why the place is another host's."""

    def __init__(self, options: JobOptions, criu: CriuWork | None = None) -> None:
        """`criu`: what the supervisor notes of CRIU."""
        self._criu = criu or CriuWork()
        self._place, self._host, self.life = options.place, options.host, options.life
        self._head, self._heads = options.head, addresses_of(options.head)
        self._secret, self._domain = token(), slurm.domain(os.environ)
        self._seconds = 0.0
        self._sent: dict[int, float] = {}
        self._confirmed = 0.0
        self._stopped: list[int] = []
        self._stopped_at = 0.0
        self._ended_restore = 0  # CRIU's pid
        self._noted = threading.Event()  # how the command has ended
        self._left = False  # nothing of it runs any more
        self._over = False  # it is kept no longer
        self.lost = ""

    def claim(self) -> int:
        """Take the place; return the number of its owner. Raise UsageError.

        Of several heads the one that decides answers; until one is elected all are asked again.
        """
        why, until = "", time.monotonic() + (ELECTED_S if len(self._heads) > 1 else 0.0)
        while True:
            for where in self._heads:
                sent = time.clock_gettime(time.CLOCK_BOOTTIME)
                try:
                    return self._claimed(sent, self._asked(where))
                except LinkError as error:
                    why = f"refuses: {error}; see PYFT_TOKEN"
                except OSError as error:
                    why = f"cannot be reached: {error}"
            if time.monotonic() >= until:
                raise UsageError(f"the head at [{self._head}] {why}")
            time.sleep(AGAIN_S)

    def _asked(self, where: tuple[str, int]) -> dict[str, Any]:
        """Return what a head says to the claim; raise OSError."""
        link = Link.to(where, self._secret)
        try:
            link.send("hello", **self._hello())
            return link.receive(ANSWER_S) or {"kind": "refused", "why": "it does not answer"}
        finally:
            link.close()

    def _claimed(self, sent: float, said: dict[str, Any]) -> int:
        if said["kind"] != "welcome":
            raise UsageError(f"place [{self._place}] cannot be taken: {said.get('why')}")
        self.life, self._seconds, self._confirmed = int(said["life"]), float(said["lease_s"]), sent
        return self.life

    def begin(self) -> None:
        """Keep it from now on."""
        self._link = HeadLink(self._heads, self._secret, self._hello)
        threading.Thread(target=self._keep, daemon=True).start()

    def end(self, code: int) -> None:
        """Say how the command has ended, until the head has noted it: else it is a lost host."""
        deadline = time.monotonic() + ANSWER_S
        while not self.lost and time.monotonic() < deadline:
            self._link.say("done", code=code & 255, life=self.life)
            if self._noted.wait(AGAIN_S):
                break
        self._link.end()

    def leave(self) -> None:
        """Say that nothing of the place runs here any more, and keep it no longer.

        If the head does not hear it, it waits until the lease has ended.
        """
        self._left = True  # before it is said: the next owner may have it before the answer is here
        deadline = time.monotonic() + ANSWER_S
        while not self.lost and time.monotonic() < deadline:
            self._link.say("left", life=self.life)
            if self._noted.wait(AGAIN_S):
                break
        self._over = True
        self._link.end()

    def _hello(self) -> dict[str, object]:
        who = {"role": "host", "place": self._place, "host": self._host, "life": self.life}
        return who | ({"domain": self._domain} if self._domain else {})

    def _keep(self) -> None:
        """Renew it until the place is another host's; one that cannot renew has none either."""
        try:
            self._renew()
        except Exception as error:  # whatever it is: nothing may run on without a fence
            self.lost = f"its lease cannot be kept: {error}"
        if not self._left:
            self._kill()

    def _renew(self) -> None:
        number, next_at = 0, 0.0
        while not self.lost and not self._over:
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            while said := self._link.heard():
                self._take(now, said)
            if now >= next_at:
                number, next_at = number + 1, now + self._seconds / 3
                self._sent[number] = now
                self._link.say("renew", number=number, host=self._host, life=self.life)
            self._fence(now)
            time.sleep(LOOK_S)

    def _take(self, now: float, said: dict[str, object]) -> None:
        if said["kind"] == "renewed":
            sent = self._sent.pop(said.get("number"), None)  # type: ignore[arg-type]
            if sent is not None:
                self._sent = {n: at for n, at in self._sent.items() if at > sent}
                self._confirmed = max(self._confirmed, sent)
        elif said["kind"] == "noted":
            self._noted.set()
        elif said["kind"] == "refused":
            self.lost = str(said.get("why"))[:1000]

    def _fence(self, now: float) -> None:
        silent_s = now - self._confirmed
        if silent_s > STOP_AT * self._seconds:
            self._stop_all(silent_s)
            if not self._stopped_at:
                self._stopped_at = now
                _say(
                    f"the head has confirmed nothing for [{silent_s:.1f}] s: "
                    f"place [{self._place}] stands still until it does"
                )
            if now > self._stopped_at + STOPPED_S:
                self.lost = f"the head has been silent for [{STOPPED_S:g}] s"
        elif self._stopped_at:
            process_tree.send(self._stopped, signal.SIGCONT)
            self._stopped, self._stopped_at = [], 0.0
            _say(f"the head answers: place [{self._place}] goes on")

    def _stop_all(self, silent_s: float) -> None:
        """Stop all but CRIU and what it works on; again and again: others may be starting."""
        below = process_tree.descendants(os.getpid())
        work = self._criu.among(below)
        others = process_tree.descendants(os.getpid(), (work.pid, work.root)) if work else below
        self._stopped += _stop(others)
        if work and work.restores and silent_s > self._seconds:
            self._end_restore(work, set(below) - set(others))

    def _end_restore(self, work: Work, pids: set[int]) -> None:
        """Another host may begin with the place now; here the next agent restores it again."""
        process_tree.send(pids, signal.SIGKILL)
        if self._ended_restore != work.pid:
            self._ended_restore = work.pid
            _say(f"the lease of place [{self._place}] is over: its restore is given up for now")

    def _kill(self) -> None:
        _say(f"place [{self._place}] is not this host's any more: {self.lost}")
        for _ in range(3):  # what is being started has no parent of ours for a moment
            process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)
            time.sleep(LOOK_S)

    def why_ended(self, error: AgentLostError) -> AgentLostError:
        """Return why the job has ended here."""
        return AgentLostError(f"place [{self._place}]: {self.lost}") if self.lost else error


def _say(sentence: str) -> None:
    """Tell the user from a thread of its own: a terminal that is held holds no fence."""
    threading.Thread(target=messages.say, args=(sentence,), daemon=True).start()


def _stop(pids: list[int]) -> list[int]:
    """Stop processes; return those that ran."""
    ran = []
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state not in "TtZX":
                os.kill(pid, signal.SIGSTOP)
                ran.append(pid)
    return ran
