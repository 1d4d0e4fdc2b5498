"""The coordinator: which server is started where, and when, after what.

    RUNNING --death--> (a new epoch) --server started--> RECOVERING --kLive--> RUNNING
       |                   |     ^                          |
       +--suspicion--> FENCING --+  <-------- any fault ----+
                           |
                     no GPU is left: WAITING, or GIVEN_UP

A new server is started only when the death of the one before is confirmed (A16). Each fault, in
whatever state, leads to the same place: a new epoch, and recovery from the beginning. The state is a function
of facts the agent can see; `adopt` makes it anew after the agent itself was replaced (A21).
"""

from __future__ import annotations

from collections.abc import Container

from pyft.recovery.blame import Verdict
from pyft.recovery.classify import Blame, Do, Fault, of_agent
from pyft.recovery.communicators import Communicators
from pyft.recovery.departures import Departures, Told
from pyft.recovery.events import (
    Action,
    AddSpare,
    Attached,
    Audited,
    ClientGone,
    Disputed,
    Drain,
    Due,
    Event,
    Exited,
    GiveUp,
    Kill,
    Left,
    Live,
    Mode,
    Received,
    Refuse,
    Replace,
    Send,
    Suspected,
    Timer,
    Wait,
)
from pyft.recovery.gpus import Gpus, Word
from pyft.recovery.rank import Rank, State
from pyft.recovery.rollback import RollbackSets
from pyft.recovery.starting import Starting
from pyft.recovery.together import Together
from pyft.wire import messages as wire


class Plan:
    """All ranks of a job. `handle` is a pure function of the state and the event."""

    def __init__(
        self,
        gpus: Gpus,
        protect: bool = True,
        wait_for_spare: bool = True,
        replay_all: bool = False,
        audits: bool = False,
    ) -> None:
        self.gpus = gpus
        self.protect = protect
        self.wait_for_spare = wait_for_spare
        self.ranks: dict[int, Rank] = {}
        self.communicators = Communicators(self._lives)
        self.departures = Departures()
        self.rollback = RollbackSets(audits) if replay_all else None
        self.together = Together(self.rollback, self.ranks)
        self.starting = Starting(self.ranks, gpus, self.together)

    def handle(self, event: Event) -> list[Action]:
        """Return what is to be done."""
        if isinstance(event, Attached):
            return self.starting.first(event)
        if isinstance(event, Drain):
            return self._drain(event.gpu)
        if isinstance(event, AddSpare):
            self.gpus.add(event.gpu)
            return self.starting.waiting()
        if isinstance(event, Due):
            return self._due(event)
        if isinstance(event, Left):
            return self._tell(self.departures.leave(event.id))
        rank = self.ranks.get(event.id)
        if rank is None or rank.state is State.GONE:
            return []
        if isinstance(event, ClientGone):
            rank.state = State.GONE
            return [*self._died(rank), *self.starting.waiting()]
        if isinstance(event, Replace):
            return self._replace(rank, event.gpu)
        if event.epoch != rank.epoch:
            return []
        if isinstance(event, Exited):
            return self._exited(rank, event.fault)
        if isinstance(event, Suspected):
            return self._fence(rank, event.fault)
        if isinstance(event, Audited):
            return self.together.audited(event)
        if isinstance(event, Disputed):
            return self._disputed(event)
        return self._received(rank, event)

    def adopt(self, rank: Rank) -> list[Action]:
        """Take over a rank from the agent before, in the state that can be seen.

        FENCING: its server lives and shall not. The death of one that has died comes next, as ever.
        """
        self.ranks[rank.id] = rank
        self.starting.epoch = max(self.starting.epoch, rank.epoch)
        return self._end_server(rank) if rank.state is State.FENCING else []

    def adopted(self) -> list[Action]:
        """Go on when all ranks are taken over."""
        actions: list[Action] = []
        for rank in list(self.ranks.values()):
            if rank.state is State.FENCING:
                actions += self._end_peers(rank)
        for server in self.communicators.interrupted:
            actions += self._suspect(server, "the agent has died while it got its place")
        actions += self.together.adopted()
        return [*actions, *self._tell(self.departures.all_told())]

    def tidy(self, present: Container[int]) -> None:
        """Forget the ranks whose clients have ended, but those with which others have to go back.

        `present`: the ids of clients that still have something to be done.
        """
        gone = {r.id for r in self.ranks.values() if r.state is State.GONE and r.id not in present}
        for id in self.together.unneeded(gone):
            del self.ranks[id]
        self.communicators.tidy(self.ranks)
        self.departures.tidy(self.ranks)

    # ---- deaths -------------------------------------------------------------------------------

    def _exited(self, rank: Rank, fault: Fault) -> list[Action]:
        if not rank.has_server:
            return []
        if rank.fault and fault.name == "server-killed":
            fault = rank.fault  # by us, and this is why
        rank.fault = None
        fenced = rank.state is State.FENCING
        rank.state = State.WAITING  # nothing takes it for alive
        died = [*self._died(rank), *([] if fenced else self._end_peers(rank))]
        if not self.protect or fault.row.do is Do.GIVE_UP:
            return [*died, *self._give_up(rank, fault.evidence)]
        others = self._lose_gpu(rank, fault.evidence) if fault.row.do is Do.OTHER else []
        others += self._strike(rank, fault) if fault.row.blame is Blame.STRIKES else []
        again = fault.name == "interrupted" or self._met_nobody(rank, fault)  # the same recovery
        verdict = Verdict(rank.mode) if again else rank.history.judge(fault, rank.mode)
        if why := verdict.give_up or self.together.lacking(rank):
            return [*died, *others, *self._give_up(rank, why)]
        # Another rank may wait for the GPU that this one has left.
        return [*died, *others, *self._restart(rank, verdict), *self.starting.waiting()]

    def _met_nobody(self, rank: Rank, fault: Fault) -> bool:
        """Say whether a new server has got no place since a rank of its set waits for a GPU."""
        others = self.together.others(rank)
        return fault.name == "communicator" and any(one.state is State.WAITING for one in others)

    def _died(self, rank: Rank) -> list[Action]:
        """Let the others know that a server is dead or soon will be."""
        actions: list[Action] = []
        self.communicators.died(rank.id, actions)
        return actions

    def _end_peers(self, rank: Rank) -> list[Action]:
        """All that have to go back when this rank does begin at the same line again."""
        why = f"rank [{rank.rank}] has failed: all ranks of its communicators replay"
        actions: list[Action] = []
        for peer in self.together.go_back(rank):
            actions += self._end_peer(peer, why)
        return actions

    def _end_peer(self, peer: Rank, why: str) -> list[Action]:
        peer.state = State.FENCING
        peer.fault = of_agent("peer", why)
        return self._end_server(peer)

    def _replay_alike(self, rank: Rank) -> list[Action]:
        """End those that have begun to replay otherwise: all of a set do it alike."""
        if rank.mode is Mode.NORMAL:
            return []
        why = f"rank [{rank.rank}] replays entry by entry: all ranks of its communicators do"
        actions: list[Action] = []
        for peer in self.together.replay_serially(rank):
            actions += [*self._end_peer(peer, why), *self._died(peer)]
        return actions

    def _restart(self, rank: Rank, verdict: Verdict) -> list[Action]:
        rank.mode = verdict.mode
        peers = self._replay_alike(rank)
        if started := self.starting.next(rank, verdict.leave):
            return [*peers, *started]
        sentence = self._no_gpu(rank)
        if not self.wait_for_spare:
            return [*peers, *self._give_up(rank, f"{sentence} (--on-no-spare fail)")]
        return [*peers, Wait(rank.id, f"{sentence}: waiting for `pyft spare --gpu G`")]

    def lacks_gpu(self) -> str:
        """Return for which rank no GPU is left and why, nothing if none waits for one."""
        waiting = (rank for rank in self.ranks.values() if rank.state is State.WAITING)
        return next(map(self._no_gpu, waiting), "")

    def _no_gpu(self, rank: Rank) -> str:
        why = self.gpus.why_not(rank.gpu, self.starting.in_use())
        return f"no GPU is left for rank [{rank.rank}]: {why}"

    def _strike(self, rank: Rank, fault: Fault) -> list[Action]:
        word = self.word_about(rank, rank.gpu)
        why = self.gpus.struck(rank.gpu, fault.cut, word, self.starting.in_use())
        return self._lose_gpu(rank, f"{why}: {fault.evidence}") if why else []

    def word_about(self, rank: Rank, gpu: int) -> Word | None:
        """Return what a GPU that a rank's log speaks against is to others; None: it has no say."""
        if not (self.rollback and self.rollback.audits):
            return None
        others = [r for r in self.ranks.values() if r is not rank and r.state is not State.GONE]
        own = rank.gpu == gpu and not any(other.gpu == gpu for other in others)
        return Word(rank.rank, own, not others)

    def is_believed(self, id: int, gpu: int) -> bool:
        """Say whether a GPU with enough strikes is left, if another one is free."""
        return self.gpus.strikes.believed(gpu, self.word_about(self.ranks[id], gpu))

    def _lose_gpu(self, rank: Rank, evidence: str) -> list[Action]:
        self.gpus.lose(rank.gpu, evidence)
        sharing = [r for r in self.ranks.values() if r is not rank and r.gpu == rank.gpu]
        actions: list[Action] = []
        for other in sharing:
            why = f"GPU [{rank.gpu}] is lost for rank [{rank.rank}]: {evidence}"
            actions += self._fence(other, of_agent("gpu", why))
        return actions

    def _give_up(self, rank: Rank, sentence: str) -> list[Action]:
        rank.state = State.GIVEN_UP
        # What waits for it in a recovery would wait for ever; what works finds out by itself.
        peers = self.together.others(rank)
        actions: list[Action] = [GiveUp(rank.id, sentence)]
        actions += self._tell(self.departures.leave(rank.id))
        for peer in peers:
            if peer.state is State.RECOVERING:
                actions += self._fence(peer, of_agent("peer", f"rank [{rank.rank}] is given up"))
            elif peer.state is State.WAITING:
                actions += self._give_up(peer, self.together.lacking(peer))
        return [*actions, *self.starting.waiting()]

    # ---- suspicions ---------------------------------------------------------------------------

    def _fence(self, rank: Rank, fault: Fault) -> list[Action]:
        if rank.state not in (State.RUNNING, State.RECOVERING):
            return []
        rank.state = State.FENCING
        rank.fault = fault
        died = self._died(rank)  # it takes part in nothing from now on
        return [*self._end_server(rank), *died, *self._end_peers(rank)]

    def _end_server(self, rank: Rank) -> list[Action]:
        return [Kill(rank.id, rank.epoch), Timer(("fence", rank.id, rank.epoch))]

    def _disputed(self, event: Disputed) -> list[Action]:
        if self.rollback:
            self.rollback.dispute(event.id, event.step)
        return []

    def _suspect(self, server: tuple[int, int], why: str) -> list[Action]:
        rank = self.ranks.get(server[0])
        if rank is None or rank.epoch != server[1]:
            return []
        return self._fence(rank, of_agent("communicator", why))

    def _due(self, event: Due) -> list[Action]:
        if event.what[0] == "repair":
            actions: list[Action] = []
            for silent, why in self.communicators.due(event.what):
                actions += self._suspect(silent, why)
            return actions
        _, id, epoch = event.what
        rank = self.ranks.get(int(id))
        if rank is None or rank.epoch != epoch:
            return []
        if event.what[0] == "fence" and rank.state is State.FENCING:
            self.gpus.lose(rank.gpu, "a server on it cannot be ended, even by SIGKILL")
            sentence = f"the server of rank [{rank.rank}] cannot be ended, even by SIGKILL"
            return self._give_up(rank, sentence)
        return []

    # ---- servers' messages --------------------------------------------------------------------

    def _received(self, rank: Rank, event: Received) -> list[Action]:
        if rank.state not in (State.RUNNING, State.RECOVERING):
            return []
        if isinstance(event.message, wire.Live):
            was_recovering = rank.state is State.RECOVERING
            rank.state = State.RUNNING
            rank.history.lived()
            self.together.lived(rank)
            return [Live(rank.id, rank.epoch)] if was_recovering else []
        if isinstance(event.message, wire.Suspect):
            return self._suspected_member(event.message)
        actions: list[Action] = []
        actions += self._tell(self.departures.heard(event))
        if self.rollback:
            return [*actions, *self.together.received(event)]
        for silent, why in self.communicators.received(event, actions):
            actions += self._suspect(silent, why)
        return actions

    def _tell(self, told: list[Told]) -> list[Action]:
        """A rank without a server that lives is told when the next one has its place."""
        ranks = ((self.ranks.get(id), key, rank) for id, key, rank in told)
        return [
            Send(one.id, one.epoch, wire.Left(key, rank))
            for one, key, rank in ranks
            if one and one.state in (State.RUNNING, State.RECOVERING)
        ]

    def _suspected_member(self, said: wire.Suspect) -> list[Action]:
        member = self.communicators.server_of(said.key, said.rank)
        if member is None:
            return []
        return self._suspect(member, f"the links of member [{said.rank}] are broken")

    def _lives(self, id: int, epoch: int) -> bool:
        rank = self.ranks.get(id)
        running = rank is not None and rank.state in (State.RUNNING, State.RECOVERING)
        return running and rank.epoch == epoch

    # ---- operators ----------------------------------------------------------------------------

    def _replace(self, rank: Rank, gpu: int) -> list[Action]:
        if not self.protect:
            return [Refuse("the job runs with --protect none: nothing could be restored")]
        if rank.state is State.GIVEN_UP:
            return [Refuse(f"rank [{rank.rank}] has been given up")]
        # Another process on the device may have got the GPU by the same order already.
        if gpu >= 0 and (gpu != self.gpus.behind[rank.device] or not self.gpus.usable(gpu)):
            if why := self.gpus.why_not(gpu, self.starting.in_use()):
                return [Refuse(why)]
            self.gpus.behind[rank.device] = gpu
        if rank.state is State.WAITING:
            return self.starting.waiting() or [Refuse("no GPU is left: `pyft spare` brings one")]
        return self._fence(rank, of_agent("replace", "pyft replace"))

    def _drain(self, gpu: int) -> list[Action]:
        on_it = [r for r in self.ranks.values() if r.gpu == gpu and r.has_server]
        if gpu not in self.gpus.known:
            return [Refuse(self.gpus.why_not(gpu, self.starting.in_use()))]
        if on_it and not self.protect:
            return [Refuse("the job runs with --protect none: nothing could be restored")]
        needed = {device for device, behind in self.gpus.behind.items() if behind == gpu}
        spares = [g for g in self.gpus.free(self.starting.in_use()) if g != gpu]
        if on_it and len(spares) < len(needed):
            return [Refuse(f"GPU [{gpu}] is in use and no spare is left to take over")]
        self.gpus.drained.add(gpu)
        actions: list[Action] = []
        for rank in on_it:
            actions += self._fence(rank, of_agent("drain", f"pyft drain --gpu {gpu}"))
        return actions
