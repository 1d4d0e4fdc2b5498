"""Has a spare GPU replay what ranks have done, before their snapshots count (docs/concepts/audit.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyft import config
from pyft.agent.channel import page
from pyft.agent.job.environment import of_replacement
from pyft.agent.lifecycle.auditors import MOST_S, Auditor
from pyft.agent.members.member import Member
from pyft.agent.process import messages
from pyft.recovery import classify, events
from pyft.recovery.audits import Interval, Reason, Verdict
from pyft.recovery.rank import State

if TYPE_CHECKING:
    from pyft.agent.lifecycle.servers import Servers

CULPRIT = "rank"  # in the report


class Audits:
    """Of one job. Nothing of it outlives the agent: the next one begins what waits again."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._queue: list[Interval] = []
        self._last: dict[int, tuple[int, int]] = {}  # by rank, what was wanted: epoch, step
        self._runs: dict[int, Auditor] = {}  # by process
        self._fault = config.get_str("PYFT_AUDIT_FAULT")  # of the next one

    @property
    def pids(self) -> set[int]:
        """The auditors."""
        return set(self._runs)

    def knows(self, auditor: Auditor) -> bool:
        """Say whether an auditor is at work."""
        return self._runs.get(auditor.server.pid) is auditor

    # ---- what the plan wants ------------------------------------------------------------------

    def wanted(self, member: Member, action: events.Audit) -> None:
        """Audit a rank up to a cut; that it is done the plan hears by events.Audited."""
        gpu = self._servers.plan.ranks[action.id].gpu
        what = (action.step, action.entry, action.entry - action.since)
        interval = Interval(action.id, action.epoch, *what, gpu)
        if self._last.get(action.id) == (action.epoch, action.step):
            return  # the plan says it again whenever it looks
        self._last[action.id] = (action.epoch, action.step)
        if not action.since:
            self._without(member, interval, Reason.FIRST)
            return
        self._queue.append(interval)
        self._servers.loop.after(0.0, self._fill)

    def too_late(self, member: Member, action: events.Unaudited) -> None:
        """The rank could not wait: nothing is heard of its auditor any more."""
        for interval in self._drop(action.id):
            if interval.step == action.step:
                self._uncovered(member, interval, Reason.LOG)

    def restarted(self, id: int) -> None:
        """A rank goes back: what has been begun about it is over."""
        self._drop(id)

    def leave(self, gpu: int) -> None:
        """A rank takes this GPU: its auditor gives way, and begins again elsewhere."""
        for run in self._runs.values():
            if run.gpu == gpu and not run.stopped:
                run.stop()
                self._queue.append(run.interval)

    def end(self) -> None:
        """The job ends."""
        self._queue.clear()
        for run in self._runs.values():
            run.stop()

    # ---- auditors -----------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start what can be started now."""
        servers = self._servers
        if servers.ending:
            return
        for interval in list(self._queue):
            member = servers.members.get(interval.id)
            if member is None or not self._is_current(interval):
                self._queue.remove(interval)
                continue
            gpu = self._place(interval)
            if gpu is None:
                if not self._busy():  # and nothing will come free
                    self._queue.remove(interval)
                    self._without(member, interval, Reason.SPARE)
                continue
            self._queue.remove(interval)
            self._start(member, interval, gpu)

    def _place(self, interval: Interval) -> int | None:
        servers = self._servers
        in_use = servers.plan.starting.in_use()
        spares = [gpu for gpu in servers.gpus.free(in_use) if gpu not in self._busy()]
        others = sorted(gpu for gpu in in_use - {interval.gpu} if servers.gpus.usable(gpu))
        return interval.place(spares, others, servers.options.dmr_where == "same")

    def _busy(self) -> set[int]:
        return {run.gpu for run in self._runs.values()}

    def _start(self, member: Member, interval: Interval, gpu: int) -> None:
        servers = self._servers
        environment = servers.starts.environment(member, gpu) | member.disputes.environment()
        environment = of_replacement(environment)
        if self._fault:
            environment["SOFTGPU_FAULT"], self._fault = self._fault, ""
        try:
            auditor = Auditor.start(servers, member, interval, gpu, environment)
        except OSError as error:
            interval.failed.append(f"it cannot be started: {error}")
            self._judge(member, interval)
            return
        self._runs[auditor.server.pid] = auditor
        servers.loop.watch(auditor.server.socket, auditor.read)
        servers.loop.after(MOST_S, auditor.is_late)

    def reaped(self, pid: int) -> bool:
        """Take in that an auditor has ended; False: the process is none."""
        run = self._runs.get(pid)
        if run is None:
            return False
        del self._runs[pid]
        run.ended()
        member = self._servers.members.get(run.interval.id)
        if member and not run.stopped and self._is_current(run.interval):
            self._conclude(member, run)
        if not self._servers.ending:
            self._servers.loop.after(0.0, self._fill)
        return True

    def _conclude(self, member: Member, run: Auditor) -> None:
        if run.lacks_collectives:
            self._without(member, run.interval, Reason.COLLECTIVES)
            return
        if not run.said:
            run.interval.failed.append(run.why)
        if run.cannot_tell:  # another one would have no more to compare with
            self._undecided(member, run.interval, Reason.UNDECIDED, run.why)
            return
        self._judge(member, run.interval)

    def _drop(self, id: int) -> list[Interval]:
        dropped = [one for one in self._queue if one.id == id]
        self._queue = [one for one in self._queue if one.id != id]
        for run in self._runs.values():
            if run.interval.id == id and not run.stopped:
                dropped.append(run.interval)
                run.stop()
        return dropped

    # ---- what was found -----------------------------------------------------------------------

    def _is_current(self, interval: Interval) -> bool:
        """Say whether the cut still waits: the rank did not go back, nothing is decided."""
        plan = self._servers.plan
        rank = plan.ranks.get(interval.id)
        standing = plan.rollback.ranks.get(interval.id) if plan.rollback else None
        if rank is None or standing is None or rank.state is not State.RUNNING:
            return False
        return (rank.epoch, standing.prepared) == (interval.epoch, interval.step)

    def _judge(self, member: Member, interval: Interval) -> None:
        first = member.channel.header()["unreplayable_from"]  # 0: not so far
        verdict = interval.verdict(exact=not 0 < first <= interval.entry)
        if verdict is Verdict.OPEN:
            self._again(member, interval)
        elif verdict is Verdict.EQUAL:
            self._covered(member, interval)
        elif verdict is Verdict.AUDITOR:
            self._blame_auditor(member, interval)
        elif verdict is Verdict.RANK:
            self._blame_rank(member, interval)
        elif verdict is Verdict.FAILED:
            self._undecided(member, interval, Reason.FAILED, interval.failed[-1])
        else:
            self._undecided(member, interval, Reason.UNDECIDED, verdict.value)

    def _again(self, member: Member, interval: Interval) -> None:
        """Another replay of the same interval: the vote, or an auditor that failed."""
        servers = self._servers
        if interval.disputed:
            servers.event(events.Disputed(interval.id, interval.epoch, interval.step))
            first = interval.found[0]
            if len(interval.found) == 1 and not interval.failed:
                messages.say(
                    f"the audit of rank [{member.channel.rank}] on GPU [{first.gpu}] finds "
                    f"[{first.differing}] differences up to entry [{interval.entry}], the first: "
                    f"{first.text}; another replay decides which is wrong"
                )
        self._queue.insert(0, interval)
        servers.loop.after(0.0, self._fill)

    def _covered(self, member: Member, interval: Interval) -> None:
        last = interval.found[-1]
        self._count(
            member,
            audits=1,
            audit_entries=interval.entries,
            audit_bytes=last.bytes,
            audit_fresh=last.fresh,
        )
        self._done(interval)

    def _blame_auditor(self, member: Member, interval: Interval) -> None:
        servers, first = self._servers, interval.found[0]
        messages.say(
            f"GPU [{first.gpu}] was wrong, which audited rank [{member.channel.rank}]: a replay on "
            f"GPU [{interval.found[-1].gpu}] agrees with the rank"
        )
        rank = servers.plan.ranks[interval.id]
        word = servers.plan.word_about(rank, first.gpu)
        enough = servers.gpus.strikes.add(first.gpu, interval.step, word)
        if enough and first.gpu in servers.gpus.free(servers.plan.starting.in_use()):
            servers.gpus.lose(first.gpu, f"it has audited wrongly: {first.text}")
            messages.say(f"GPU [{first.gpu}] is not used again")
        servers.keep()
        self._count(member, audit_auditors=1)
        self._covered(member, interval)

    def _blame_rank(self, member: Member, interval: Interval) -> None:
        servers = self._servers
        rank = servers.plan.ranks[interval.id]
        first, second = interval.found[:2]
        text = (
            f"before cut [{interval.step}], entry [{interval.entry}], {first.text}; replays on GPU "
            f"[{first.gpu}] and GPU [{second.gpu}] agree"
        )
        self._count(member, audit_ranks=1)
        if config.get_str("PYFT_DMR_ACTION") == "report":
            messages.say(f"rank [{member.channel.rank}] was wrong, says its audit: {text}")
            self._covered(member, interval)
            return
        for other in (rank, *servers.plan.together.others(rank)):
            if one := servers.members.get(other.id):  # else it has ended
                one.disputes.of_other()  # it may have been told what is wrong
        servers.keep()
        fault = classify.of_agent("audit", text, interval.entry, interval.step)
        servers.event(events.Suspected(interval.id, interval.epoch, fault))
        servers.incidents.voted(member, interval.entry, CULPRIT)

    def _undecided(self, member: Member, interval: Interval, reason: Reason, why: str) -> None:
        messages.say(
            f"rank [{member.channel.rank}] is not audited up to entry [{interval.entry}]: {why}"
        )
        if reason is Reason.UNDECIDED:
            self._count(member, audit_undecided=1)
        self._without(member, interval, reason)

    def _without(self, member: Member, interval: Interval, reason: Reason) -> None:
        """Go on with what was not audited, which is counted."""
        self._uncovered(member, interval, reason)
        self._servers.loop.after(0.0, lambda: self._done(interval))

    def _uncovered(self, member: Member, interval: Interval, reason: Reason) -> None:
        self._count(member, **{reason.value: interval.entries})

    def _done(self, interval: Interval) -> None:
        self._servers.event(events.Audited(interval.id, interval.epoch, interval.step))

    def _count(self, member: Member, **more: int) -> None:
        """Add to the sums, which are the agent's own: what the page says a client can have written."""
        member.audited.update(more)
        if member.channel.control_fd >= 0:
            page.publish(member.channel.control_fd, **{name: member.audited[name] for name in more})
        self._servers.keep()
