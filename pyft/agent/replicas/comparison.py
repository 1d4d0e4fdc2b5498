"""Compares the snapshots of ranks that have the same contents, and acts on what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pyft.agent.channel import page, untrusted
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.agent.replicas.sharing import Sharing
from pyft.recovery import events
from pyft.recovery.assignment import Rows
from pyft.recovery.classify import of_agent
from pyft.recovery.earlier import MOST
from pyft.recovery.replicas import Agreed, Disagree, Finding, Judged, Key, Replicas, Table
from pyft.wire import layout
from pyft.wire import messages as wire
from pyft.wire.layout import ELSEWHERE, MANIFEST, MANIFEST_BLOCK


def read_table(
    store_fd: int, offset: int, device: int, entry: int
) -> tuple[Table, Rows, dict[Key, int]] | None:
    """Return the digests of the cut with that number of its entry, which waits in a store.

    And which of its blocks other stores keep, and which have changed hands at which entry.

    None if it does not lie there whole. That may be any longer: a cut is dropped when its copies
    turn out to be of other contents, and then the next one takes its place.
    """
    head = untrusted.bytes_at(store_fd, MANIFEST.size, offset)
    if len(head) < MANIFEST.size:
        return None
    manifest = MANIFEST.unpack(head)
    size = manifest.blocks * MANIFEST_BLOCK.size
    if manifest.seq != entry or size > layout.MANIFEST_BYTES:
        return None
    rows = untrusted.bytes_at(store_fd, size, offset + MANIFEST.size)
    if len(rows) < size or untrusted.bytes_at(store_fd, len(head), offset) != head:
        return None
    base = page.window_base(device)
    table: Table = {}
    others: Rows = {}
    since: dict[Key, int] = {}
    for block in MANIFEST_BLOCK.each(rows):
        key = (block.address - base, block.bytes)
        if 0 <= key[0] < layout.DEVICE_WINDOW_BYTES:
            table[key] = block.digest
            if block.heap_offset >= ELSEWHERE:
                others[key] = block.heap_offset - ELSEWHERE
            if block.since:
                since[key] = block.since
    return table, others, since


class BeforeEnd(Protocol):
    """What has to be done before servers are ended that work (`Spilling`)."""

    def before(self, ids: Iterable[int], then: Callable[[], None]) -> None:
        """Do it for these members; then do what ends their servers."""


class Comparison:
    """Between the servers, which say what they have snapshotted, and `Replicas`, which judges."""

    def __init__(
        self,
        members: dict[int, Member],
        event: Callable[[events.Event], list[str]],
        keep: Callable[..., None],
        sharing: Sharing,
        end: BeforeEnd,
    ) -> None:
        self._members = members
        self._event = event
        self._keep = keep  # for the next agent
        self._replicas = Replicas()
        self.sharing = sharing
        self._end = end
        self._planned = (0, 0)  # the version of what is shared
        self._compared: set[int] = set()
        # GPU and rank of suspects when they were suspected, and of what has ended since.
        self._suspects: dict[int, tuple[int, int]] = {}
        self._said = False
        self._kinds: dict[int, int] = {}  # of digests, by member
        self.found: list[dict[str, Any]] = []  # the last MOST, for the report
        self.earlier = 0  # how many there were before these

    def joined(self, member: Member) -> None:
        """Compare the snapshots of a member from now on, if there are others."""
        if member.channel.store_fd >= 0:
            self._compared.add(member.id)
            self._tell_servers()

    def gone(self, member: Member) -> None:
        """Do without a member, whose client has ended or gets an error."""
        if member.id in self._compared:
            self._compared.discard(member.id)
            self._kinds.pop(member.id, None)
            if self._replicas.case:  # which may be decided when the member is forgotten
                self._suspects.setdefault(member.id, _where(member))
            self._act(self._replicas.gone(member.id))
            self.sharing.ended(member)
            self._plan_shares()
            self._tell_servers()

    def restarted(self, member: Member) -> None:
        """Note that a member's server has ended."""
        if member.id in self._compared:
            self.sharing.restarted(member.id)
            self._act(self._replicas.restarted(member.id))
            if self._replicas.case:
                self._note()

    def adopt(
        self,
        note: dict[str, Any] | None,
        shares: tuple[dict[str, Any] | None, Sequence[int]],
        members: list[Member],
    ) -> None:
        """Go on for an agent before this one. `shares`: note and descriptors of `Sharing`."""
        if note:
            self._replicas.restore(note["replicas"])
            self._suspects = {id: (gpu, rank) for id, gpu, rank in note["suspects"]}
            self._said, self.found, self.earlier = note["said"], note["found"], note["earlier"]
        case = self._replicas.case
        living = [member for member in members if not member.given_up]
        # All at once: a server that comes to a cut while there seems to be one rank only would take
        # it for its committed snapshot, compared with no other.
        self._compared |= {member.id for member in living if member.channel.store_fd >= 0}
        self._tell_servers()
        self.sharing.adopt(*shares)
        for member in living:
            self._dispute([member.id], case.cut if case and member.id in case.suspects else 0)

    def resume(self) -> None:
        """Suspect again what the agent before had no time to have replaced."""
        if (case := self._replicas.case) and (ids := self._replicas.unheeded()):
            self._replace(Disagree(case.cut, case.key, ids))

    def note(self) -> dict[str, Any]:
        """Return what is known of differences, in plain values."""
        suspects = [[id, *where] for id, where in sorted(self._suspects.items())]
        note = {"replicas": self._replicas.note(), "suspects": suspects, "said": self._said}
        return note | {"found": [*self.found], "earlier": self.earlier}

    def _note(self) -> None:
        self._keep("comparison", self.note())

    def replicas_of(self, id: int) -> list[int]:
        """Return what has the same contents as a member, those with most of them first."""
        known = self._replicas.partners(id)
        return known + sorted(self.sharing.group(id) - {id, *known})

    def arbitrates(self, id: int) -> int:
        """Return the cut about which the replay of a member's next server decides; 0: none."""
        return self._replicas.arbitrates(id)

    def entry(self, id: int) -> int:
        """Return the entry of the cut from which a member's next server has to start; 0: any."""
        return self.sharing.entry(id)

    def received(self, member: Member, event: events.Received) -> None:
        """Take what a server says of its cuts."""
        if member.id not in self._compared:
            return
        said = event.message
        if isinstance(said, wire.Prepared):
            self.sharing.prepared(member.id, said)
        elif isinstance(said, wire.DecisionRequest):
            self.sharing.decide_now(member.id, said)
        elif isinstance(said, wire.Staged):
            self._staged(member, said)
        self._plan_shares()

    def _staged(self, member: Member, said: wire.Staged) -> None:
        fd, device = member.channel.store_fd, member.channel.device
        at = said.table_offset
        found = read_table(fd, at, device, said.entry) if at else None
        table, others, since = found or (None, None, None)
        if table is not None and not self._comparable(member):
            table = {}
        self.sharing.staged(member.id, said.step, said.entry, table, others)
        open_case = self._replicas.case
        self._act(self._replicas.staged(member.id, said.step, table, said.entry, since))
        if open_case:
            self._note()  # it may be an answer
        page.write_store(fd, taken_ns=time.monotonic_ns(), taken_step=said.step)

    def _plan_shares(self) -> None:
        version = (self._replicas.version, self.sharing.version)
        if self._planned != version:
            self._planned = version
            self.sharing.plan(self._replicas.common())

    def _comparable(self, member: Member) -> bool:
        """Tell whether all ranks so far have the same kind of digest as a member; if not, say so."""
        before = len(set(self._kinds.values()))
        self._kinds[member.id] = page.read_digest_kind(member.channel.store_fd)
        kinds = set(self._kinds.values())
        if len(kinds) > max(before, 1):
            messages.say(
                f"{self._ranks(tuple(self._kinds))}: digests are of kinds {sorted(kinds)}, by "
                "PYFT_DEVICE_DIGEST or the kind of GPU: contents are not compared"
            )
        return len(kinds) == 1

    def _tell_servers(self) -> None:
        """Let snapshots wait only where there is another rank to compare them with."""
        for id in self._compared:
            fd = self._members[id].channel.store_fd
            page.write_store(fd, compares=int(len(self._compared) > 1))

    # ---- findings -----------------------------------------------------------------------------

    def _act(self, findings: list[Finding]) -> None:
        for finding in findings:
            if isinstance(finding, Agreed):
                self.sharing.compared(finding.id, finding.cut)
            elif isinstance(finding, Disagree):
                self._suspect(finding)
            else:
                self._judge(finding)

    def _suspect(self, finding: Disagree) -> None:
        self._suspects |= {id: _where(self._members[id]) for id in finding.suspects}
        self._dispute(finding.suspects, finding.cut)
        self._note()  # before anything of it is done
        messages.say(f"{self._why(finding)}, for the first time: replays tell which is right")
        self._replace(finding)

    def _dispute(self, ids: Iterable[int], cut: int) -> None:
        """Let nothing of these ranks go to others before it is decided which is right; 0: it is."""
        for id in ids:
            if id in self._members and (fd := self._members[id].channel.store_fd) >= 0:
                page.write_store(fd, disputed_step=cut)

    def _why(self, finding: Disagree) -> str:
        block = _block(finding.key, finding.cut)
        return f"{self._ranks(finding.suspects)}: other contents than a replica's in {block}"

    def _replace(self, finding: Disagree) -> None:
        servers = {id: self._members[id].server for id in finding.suspects if id in self._members}
        epochs = {id: one.epoch for id, one in servers.items() if one and one.alive}
        fault = of_agent("replica", self._why(finding), cut=finding.cut)

        def end() -> None:
            for id, epoch in epochs.items():
                self._event(events.Suspected(id, epoch, fault))

        self._end.before(list(epochs), end)

    def _judge(self, finding: Judged) -> None:
        self._dispute(finding.suspects, 0)
        block = _block(finding.key, finding.cut)
        for id in finding.culprits:
            rank, gpu = self._rank_of(id), self._suspects.get(id, (-1, -1))[0]
            messages.say(
                f"rank [{rank}] on GPU [{gpu}] had something else in {block} than its replay "
                "gives: it was changed silently. The rank has been replaced"
            )
            offset, size = finding.key
            where = {"offset": offset, "bytes": size, "cut": finding.cut}
            self._keep_corruption({"rank": rank, "gpu": gpu, **where})
        if not finding.told:
            messages.say(
                f"{self._ranks(finding.suspects)}: which had other contents in {block} cannot "
                "be told, since not every replay has come to that cut"
            )
        elif not finding.culprits and not self._said:
            self._said = True
            messages.say(
                f"{self._ranks(finding.suspects)}: no replay says that the contents of {block} were "
                "changed silently, so the program lets them differ. Such blocks are not compared "
                "any more"
            )
        self._note()

    def _keep_corruption(self, corruption: dict[str, Any]) -> None:
        self.earlier += len(self.found) >= MOST
        self.found = [*self.found, corruption][-MOST:]

    def _rank_of(self, id: int) -> int:
        if id in self._members:
            return self._members[id].channel.rank
        return self._suspects.get(id, (-1, -1))[1]

    def _ranks(self, ids: tuple[int, ...]) -> str:
        ranks = sorted(map(self._rank_of, ids))
        numbers = ", ".join(str(rank) for rank in ranks)
        return f"rank [{numbers}]" if len(ids) == 1 else f"ranks [{numbers}]"


def _where(member: Member) -> tuple[int, int]:
    return (member.server.gpu if member.server else -1, member.channel.rank)


def _block(key: Key, cut: int) -> str:
    return f"the block of [{key[1]}] bytes at [{key[0]:#x}] of the device's window, at cut [{cut}]"
