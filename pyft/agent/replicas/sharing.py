"""Lets replicas share the work of snapshots: between the servers and `Shares`, which decides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyft import config
from pyft.agent.channel import page
from pyft.agent.members.member import Member
from pyft.recovery.assignment import Rows
from pyft.recovery.case import Key, Table
from pyft.recovery.shares import Commit, Decision, Shares
from pyft.wire import messages as wire


class Sharing:
    """Which rank keeps what for which, in the stores of all members."""

    def __init__(
        self,
        members: dict[int, Member],
        keep: Callable[[dict[str, Any], Sequence[int]], None],
        jit: bool = False,
    ) -> None:
        self._members = members
        self._keep = keep  # for the next agent
        self.jit = jit
        self._shares = Shares(config.get_int("PYFT_SHARE_SNAPSHOTS"), jit)
        self._kept_fds: dict[int, int] = {}  # stores of members that have ended
        self._kept: dict[str, Any] = {}

    @property
    def version(self) -> int:
        """Changes when blocks have turned out not to be the same: there must be another plan."""
        return len(self._shares.apart)

    def plan(self, holders: Iterable[tuple[Key, set[int]]]) -> None:
        """Divide anew what ranks have in common."""
        if not self._shares.least_bytes:
            return
        changed = self._shares.plan(holders)
        for id, rows in changed.items():
            if id in self._members and (fd := self._members[id].channel.store_fd) >= 0:
                base = page.window_base(self._members[id].channel.device)
                page.write_shares(fd, [(base + at, size, by) for (at, size), by in rows.items()])
        if changed:
            self._tell_groups()
            self._note()

    def _tell_groups(self) -> None:
        for id, member in self._members.items():
            if member.channel.store_fd >= 0 and self._shares.is_grouped(id):
                page.write_store(member.channel.store_fd, shares=1)

    def staged(
        self, id: int, step: int, entry: int, table: Table | None, rows: Rows | None
    ) -> None:
        """Take what a server says of a cut."""
        self._act(self._shares.staged(id, step, entry, table, rows))

    def compared(self, id: int, step: int) -> None:
        """Say to a server that its cut has been compared; and more, if there is more to say."""
        decisions = self._shares.compared(id, step)
        if Commit(id, step) not in decisions:
            self._send(id, wire.Commit(step))
        self._act(decisions)

    def prepared(self, id: int, said: wire.Prepared) -> None:
        """Note that the snapshot of a cut is whole."""
        self._act(self._shares.prepared(id, said.step))

    def decide_now(self, id: int, said: wire.DecisionRequest) -> None:
        """Note that a cut cannot wait any longer."""
        self._act(self._shares.decide_now(id, said.step))

    def restarted(self, id: int) -> None:
        """Note that a member's server has ended."""
        self._act(self._shares.restarted(id))

    def ended(self, member: Member) -> None:
        """Note that a member makes no cut any more; its store is kept while it is needed."""
        if self._shares.is_grouped(member.id) and member.channel.store_fd >= 0:
            self._kept_fds.setdefault(member.id, os.dup(member.channel.store_fd))
        self._act(self._shares.ended(member.id))
        self._let_go()
        self._note()

    def entry(self, id: int) -> int:
        """Return the entry of the cut at which a member's next server has to begin; 0: any."""
        return self._shares.entry(id)

    def line(self, id: int) -> int:
        """Return the step of a member's committed snapshot, as far as others depend on it; else 0."""
        return self._shares.line(id)

    def group(self, id: int) -> set[int]:
        """Return what shares with a member, itself included."""
        return self._shares.group(id)

    def candidates(self, id: int, owner: int) -> list[int]:
        """Return whose stores may have what a member's point names as its owner's, in order."""
        others = self._shares.group(id) - {id, owner} if self.jit else set()
        return [owner, *sorted(others)]

    def store(self, owner: int) -> int:
        """Return the descriptor of a member's store; -1: there is none any more."""
        if owner in self._kept_fds:
            return self._kept_fds[owner]
        return self._members[owner].channel.store_fd if owner in self._members else -1

    def adopt(self, note: dict[str, Any] | None, fds: Sequence[int]) -> None:
        """Go on for an agent before this one, which may have had no time to tell what it decided."""
        if note:
            self._kept_fds = dict(zip(note["kept"], fds, strict=True))
            self._act(self._shares.restore(note))
            self._tell_groups()

    def _act(self, decisions: list[Decision]) -> None:
        if any(isinstance(one, Commit) and self._shares.is_grouped(one.id) for one in decisions):
            self._note()  # before any is told
        for decision in decisions:
            commits = isinstance(decision, Commit)
            order = wire.Commit(decision.step, final=True) if commits else wire.Abort(decision.step)
            self._send(decision.id, order)
        if self._kept_fds and self._let_go():
            self._note()

    def _send(self, id: int, order: wire.Message) -> None:
        server = self._members[id].server if id in self._members else None
        if server and server.alive:
            server.send(order)

    def note(self) -> dict[str, Any]:
        """Return what is settled, in plain values, and whose stores are kept that have ended."""
        return self._shares.note() | {"kept": list(self._kept_fds)}

    def _note(self) -> None:
        note = self.note()
        if note != self._kept:
            self._kept = note
            self._keep(note, list(self._kept_fds.values()))

    def _let_go(self) -> bool:
        unnamed = self._kept_fds.keys() - self._shares.named()
        for id in unnamed:
            os.close(self._kept_fds.pop(id))
        return bool(unnamed)
