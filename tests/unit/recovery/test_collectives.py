"""When ranks that wait for each other are taken to wait for ever, and who is said to lag behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from pyft.agent import client_states
from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives, watch
from pyft.agent.lifecycle.watch import LATE_S, Watch
from pyft.agent.process import messages
from pyft.recovery import events
from pyft.recovery.blame import History
from pyft.recovery.events import Mode
from pyft.recovery.rank import State
from pyft.recovery.rollback import RollbackRank, RollbackSets
from pyft.trace.reader import Entry, EntryFlags
from pyft.wire.layout import COMPLETION_WORD, COMPLETION_WORDS, COMPLETION_WORDS_OFFSET

COLLECTIVE_S = 60.0
LINE = 10  # the entry of the last common cut
REDUCE = "ncclAllReduce(comm=comm#16.1, stream=0, count=1)"
WAITS = {
    "device_progress": 7,
    "fences_open": 1,
    "collectives_waiting": 1,
    "dispatching_seq": 40,
    "consumed": 4096,
    "snapshot_cut": 3,
    "phase": page.Phase.LIVE,
}
OTHERS = ("ncclGroupStart()", "ncclCommSplit(comm=comm#16.1)", "cuLaunchKernel(stream=0)")


def entries(reductions: int, first: int = 1) -> list[Entry]:
    """Return those of a ring: some before the line, then so many collectives and others."""
    texts = [REDUCE] * LINE + [*OTHERS, *[REDUCE] * reductions]
    made = enumerate(texts, 1)
    return [Entry(n, n, 0, EntryFlags(0), 64, 0, False, t, 64 * n) for n, t in made if n >= first]


class Job:
    """Two ranks that go back together, whose control pages the test writes, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.limit = 1000.0, COLLECTIVE_S
        self.faults: list[events.Suspected] = []
        self.said: list[str] = []
        self.rings = {id: entries(5) for id in (0, 1)}
        sets = RollbackSets()
        for id in (0, 1):
            sets.made(id, key=9, rank=id)
            sets.ranks[id] = RollbackRank(line=2, entry=LINE)
        self.members = {id: self.member(id) for id in (0, 1)}
        self.ranks = {id: self.rank(id) for id in (0, 1)}
        servers = SimpleNamespace(
            members=self.members,
            plan=SimpleNamespace(ranks=self.ranks, rollback=sets),
            event=self.take,
            deaths=SimpleNamespace(ask_nvml=lambda: None),
            requests=SimpleNamespace(waiting=list),
            elsewhere=SimpleNamespace(),  # or missing ranks were looked for
            heartbeat_timeout=lambda member: 1e9,
            hang_timeout=lambda: 30.0,
            collective_timeout=lambda: self.limit,
        )
        self.watch = Watch(servers)  # type: ignore[arg-type]
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(messages, "say", self.said.append)
        monkeypatch.setattr(collectives, "_entries", lambda member: self.rings[member.id])
        for id in (0, 1):
            self.write(id, **WAITS)
            self.wait(id, 1)

    def take(self, event: events.Event) -> None:
        if isinstance(event, events.Suspected):
            self.faults.append(event)

    def member(self, id: int) -> SimpleNamespace:
        fd = os.memfd_create("control")
        os.ftruncate(fd, COMPLETION_WORDS_OFFSET + COMPLETION_WORDS * COMPLETION_WORD.size)
        channel = SimpleNamespace(
            control_fd=fd, rank=id, log_fd=-1, status=lambda: (1, ""), damage=lambda: ""
        )
        server = SimpleNamespace(epoch=1, gpu=id)
        made = SimpleNamespace(id=id, channel=channel, server=server, server_alive=True)
        made.client_gone, made.drained = False, lambda: True
        return made

    def rank(self, id: int) -> SimpleNamespace:
        return SimpleNamespace(
            id=id, rank=id, state=State.RUNNING, epoch=1, mode=Mode.NORMAL, history=History()
        )

    def write(self, id: int, **values: int) -> None:
        page.write(self.members[id].channel.control_fd, **values)

    def wait(self, id: int, threads: int) -> None:
        """Have so many threads of the program wait for a stream."""
        word = COMPLETION_WORD.pack(value=0, time_ns=0, futex=0, waiters=threads)
        at = COMPLETION_WORDS_OFFSET + 17 * COMPLETION_WORD.size
        os.pwrite(self.members[id].channel.control_fd, word, at)

    def run(self, seconds: float, each: Callable[[int], None] = lambda turn: None) -> None:
        """Look every half second; `each` writes something first."""
        end, turn = self.now + seconds, 0
        while self.now < end:
            turn += 1
            each(turn)
            self.watch.look()
            self.now += 0.5

    def evidence(self) -> str:
        assert [one.fault.name for one in self.faults] == ["collective"]
        return self.faults[0].fault.evidence


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(monkeypatch)
    yield made
    for member in made.members.values():
        os.close(member.channel.control_fd)


def test_all_wait_and_are_ended_at_the_deadline(job: Job) -> None:
    job.run(30)
    assert job.said == []
    job.run(30)
    assert job.said == [
        "ranks [0, 1] wait for each other in collectives, and nothing has moved for [30 s]; "
        "pyft has them go back at [60 s] (PYFT_COLLECTIVE_S)"
    ]
    assert job.faults == []
    job.run(0.5)
    assert (job.faults[0].id, job.faults[0].epoch) == (0, 1)
    assert job.faults[0].fault.lasted == pytest.approx(60)
    assert (job.faults[0].fault.seq, job.faults[0].fault.cut) == (40, 3)
    assert job.evidence() == (
        "ranks [0, 1] wait for each other, nothing moved for [60.0 s]; "
        "which rank lags behind is not known"
    )


@pytest.mark.parametrize(
    "works",
    [
        {"collectives_waiting": 0, "fences_open": 0},  # in code of its own
        {"fences_open": 0},  # nobody has asked for an end
        {"callback_asked": 2, "callback_done": 1},  # a host function
        {"phase": page.Phase.REPLAY},
    ],
)
def test_one_that_does_not_wait_keeps_the_others(job: Job, works: dict[str, int]) -> None:
    job.write(1, **works)
    job.run(200)
    assert (job.faults, job.said) == ([], [])


def test_a_program_that_is_elsewhere_keeps_the_others(job: Job) -> None:
    """With something open in a stream: it comes back with what the others wait for."""
    job.wait(1, 0)
    job.run(200)
    assert (job.faults, job.said) == ([], [])
    job.wait(1, 1)
    job.run(0.5)
    assert len(job.faults) == 1


@pytest.mark.parametrize("state", [State.RECOVERING, State.WAITING, State.GIVEN_UP, State.GONE])
def test_a_rank_that_does_not_work_keeps_the_others(job: Job, state: State) -> None:
    job.ranks[1].state = state
    job.run(200)
    assert (job.faults, job.said) == ([], [])


@pytest.mark.parametrize(
    "sign", ["device_progress", "consumed", "dispatching_seq", "passed_bytes", "fences_open"]
)
def test_one_that_moves_begins_the_count_anew(job: Job, sign: str) -> None:
    job.run(59)
    job.write(1, **{sign: 5000})
    job.run(59.5)
    assert job.faults == []
    assert len(job.said) == 2, "a sentence for each standstill"
    job.run(1)
    assert len(job.faults) == 1


def test_a_replay_in_which_all_wait_is_ended(job: Job) -> None:
    """Each server has what it needs, wherever its program is."""
    for id in (0, 1):
        job.ranks[id].state = State.RECOVERING
        job.write(id, phase=page.Phase.REPLAY, fences_open=0)
        job.wait(id, 0)
    job.run(60)
    assert job.faults == []
    job.run(0.5)
    assert job.evidence().startswith("ranks [0, 1] wait for each other, nothing moved for [60.0 s]")


def test_one_that_works_keeps_one_that_replays(job: Job) -> None:
    job.ranks[1].state = State.RECOVERING
    job.write(1, phase=page.Phase.REPLAY)
    job.run(59, lambda turn: job.write(1, replayed_entries=turn))
    job.run(59, lambda turn: job.write(0, device_progress=100 + turn))
    job.run(59.5)
    assert job.faults == []
    job.run(0.5)
    assert len(job.faults) == 1


@pytest.mark.parametrize(
    ("limit", "ended"), [(540.0, 90.0), (20.0, 20.0)], ids=["as a restore", "or sooner"]
)
def test_communicators_that_are_never_made_anew_are_ended(
    job: Job, limit: float, ended: float
) -> None:
    """NCCL has no deadline for that either."""
    job.limit = limit
    for id in (0, 1):
        job.ranks[id].state = State.RECOVERING
        job.write(id, phase=page.Phase.COMMUNICATORS)
    job.run(400, lambda turn: job.write(1, passed_bytes=turn))  # one after the other is
    assert job.faults == []
    job.run(ended - 0.5)
    assert (len(job.said), job.faults) == (1, [])
    assert job.said[0] == (
        "ranks [0, 1] wait for each other to make their communicators anew, and nothing has moved "
        f"for [{ended / 2:.0f} s]; pyft has them go back at [{ended:g} s]"
    )
    job.run(0.5)
    fault = job.faults[0].fault
    assert fault.name == "overdue"
    assert fault.evidence.startswith("ranks [0, 1] wait for each other, nothing moved for [")
    assert fault.evidence.endswith("communicators are made anew")


def test_a_server_that_is_not_there_yet_keeps_those_that_meet(job: Job) -> None:
    for id, phase in ((0, page.Phase.COMMUNICATORS), (1, page.Phase.STARTING)):
        job.ranks[id].state = State.RECOVERING
        job.write(id, phase=phase)
    job.run(89, lambda turn: job.write(1, heartbeat_ns=turn))  # then that one is overdue itself
    assert (job.faults, job.said) == ([], [])


def test_a_recovery_begins_the_count_anew(job: Job) -> None:
    job.run(59)
    job.ranks[0].state = State.RECOVERING
    job.run(0.5)
    job.ranks[0].state = State.RUNNING
    job.run(59.5)
    assert job.faults == []
    job.run(1)
    assert len(job.faults) == 1


def test_a_machine_that_stood_still_begins_the_count_anew(job: Job) -> None:
    job.run(59)
    job.now += LATE_S + 1
    job.run(59.5)
    assert job.faults == []
    job.run(1)
    assert len(job.faults) == 1


def test_without_a_deadline_they_wait_for_ever(job: Job) -> None:
    job.limit = 0.0
    job.run(300)
    assert (job.faults, job.said) == ([], [])


def test_ranks_that_go_back_alone_have_none(job: Job) -> None:
    job.watch._servers.plan.rollback = None  # type: ignore[assignment]
    job.run(200)
    assert (job.faults, job.said) == ([], [])


@pytest.mark.parametrize("call", ["ncclCommSplit", "cuMemAlloc"])
def test_a_replay_is_inside_a_call_that_was_taken_before(job: Job, call: str) -> None:
    """All that the ring has counts as consumed, since the server before had come so far."""
    job.rings[1].append(Entry(40, 0, 0, EntryFlags(0), 64, 0, False, f"{call}()", 8192))
    member = job.members[1]
    for phase in (page.Phase.LIVE, page.Phase.REPLAY):
        job.write(1, phase=phase)
        makes = collectives.makes_communicator(member, page.read(member.channel.control_fd))  # type: ignore[arg-type]
        assert makes is (phase == page.Phase.REPLAY and call == "ncclCommSplit")


@pytest.mark.parametrize(("call", "ended"), [("ncclCommInitRank", True), ("cuMemAlloc", False)])
def test_who_makes_a_communicator_waits(job: Job, call: str, ended: bool) -> None:
    job.members[1].drained = lambda: False
    job.write(1, collectives_waiting=0, device_progress=0)
    job.rings[1].append(Entry(40, 0, 0, EntryFlags(0), 64, 0, False, f"{call}()", 8192))
    job.run(29)  # then the server counts as stuck
    job.limit = 20.0
    job.run(0.5)
    assert [one.fault.name for one in job.faults] == ["collective"] * ended


def test_a_device_whose_queue_is_full_waits(job: Job) -> None:
    job.members[1].drained = lambda: False
    job.wait(1, 0)
    job.run(60.5)
    assert len(job.faults) == 1


def test_who_has_begun_fewer_collectives_lags_behind(job: Job) -> None:
    job.rings[1] = entries(4)
    job.run(60.5)
    assert job.faults[0].id == 1
    assert job.evidence().endswith(
        "; rank [1] has begun the fewest collectives since the last common snapshot "
        "[rank 0: 5, rank 1: 4]"
    )


def test_ranks_are_named_in_their_order(job: Job) -> None:
    """Whoever has come first."""
    job.ranks[0].rank, job.ranks[1].rank = 1, 0
    job.run(60.5)
    assert job.evidence().startswith("ranks [0, 1] wait")
    assert job.faults[0].id == 1


def test_what_no_server_has_taken_does_not_count(job: Job) -> None:
    job.write(0, consumed=job.rings[0][-1].position)
    job.run(60.5)
    assert job.faults[0].id == 0
    assert "[rank 0: 4, rank 1: 5]" in job.evidence()


def test_where_entries_are_gone_the_first_to_stop_lags_behind(job: Job) -> None:
    job.rings[1] = entries(4, first=LINE + 2)
    job.run(1)
    job.write(1, device_progress=8)
    job.run(20)
    job.write(0, device_progress=9)
    job.run(60.5)
    assert job.faults[0].id == 1
    assert job.evidence().endswith("; the device of rank [1] stopped first, by [20.0 s]")


@pytest.mark.parametrize("before", [0.0, 0.5])
def test_devices_that_stop_together_tell_nothing(job: Job, before: float) -> None:
    """Nor one that nobody has seen moving since its server took over."""
    job.run(1)
    if before:
        job.write(1, device_progress=8)
        job.run(before)
    job.write(0, device_progress=9)
    job.run(20)
    job.ranks[0].epoch = 2  # whose device has come to the same place
    job.run(60.5)
    assert job.evidence().endswith("; which rank lags behind is not known")


def test_the_same_place_is_the_fault_of_the_same_rank(job: Job) -> None:
    """Or each rank has a first time there."""
    job.rings[1] = entries(4)
    job.run(60.5)
    job.ranks[1].history.judge(job.faults[0].fault)
    job.rings = {0: entries(4), 1: entries(5)}
    job.write(0, device_progress=8)
    job.run(60.5)
    assert [one.id for one in job.faults] == [1, 1]
    job.write(0, snapshot_cut=4, device_progress=9)
    job.write(1, snapshot_cut=4)
    job.run(60.5)
    assert [one.id for one in job.faults] == [1, 1, 0]


def test_the_third_time_it_is_the_program(job: Job) -> None:
    job.run(60.5)
    history, fault = History(), job.faults[0].fault
    verdicts = []
    for _ in range(3):
        verdicts.append(history.judge(fault))
        history.lived()
    assert [one.mode for one in verdicts[:2]] == [Mode.NORMAL, Mode.SERIAL]
    assert verdicts[2].give_up.startswith(
        "the same fault [collective] has come [3] times at the same place, entry [40]: ranks [0, 1]"
    )


# ---- in a hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "threads", "stands"),
    [
        ({"held_step": 7, "fences_open": 0, "collectives_waiting": 0}, 0, True),
        ({"held_step": 7}, 0, True),  # its device waits for others
        ({"held_step": 7, "collectives_waiting": 0}, 0, False),  # its device works
        ({}, 1, True),
        ({}, 0, False),  # in code of its own
        ({"collectives_waiting": 0}, 1, False),
        ({"device_progress": 0}, 1, False),  # that is not known
        ({"callback_asked": 1}, 1, False),
    ],
)
def test_what_only_others_can_move(
    job: Job, values: dict[str, int], threads: int, stands: bool
) -> None:
    job.write(0, **values)
    job.wait(0, threads)
    assert client_states.stands(job.members[0]) is stands  # type: ignore[arg-type]
