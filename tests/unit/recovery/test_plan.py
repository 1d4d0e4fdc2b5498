"""The coordinator's decisions, one situation at a time."""

from __future__ import annotations

import json
import random

import pytest

from pyft.recovery import events as ev
from pyft.recovery import facts
from pyft.recovery.blame import ATTEMPTS, NOTICED_WITHIN, REPEATS, UNDECIDED
from pyft.recovery.classify import Fault, of_agent, of_exit, row_of
from pyft.recovery.communicators import Communicators
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import Rank, State
from pyft.recovery.report import Incident
from pyft.wire import messages as wire
from pyft.wire.layout import PROTOCOL_EXIT

KILL = 9
SEGV = 11


def killed(seq: int = 5, cut: int = 1) -> Fault:
    return of_exit(KILL, seq=seq, cut=cut)


def device(code: int, seq: int = 5, cut: int = 1) -> Fault:
    return of_exit(75 << 8, 1, code, "words", seq, cut)


def one(kind: type, actions: list[ev.Action]) -> ev.Action:
    """Return the only action of a kind."""
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def started(devices: int = 1, spares: int = 0, **options: bool) -> Plan:
    plan = Plan(Gpus(devices, spares), **options)
    for id in range(devices):
        plan.handle(ev.Attached(id, id, id))
    return plan


def die(plan: Plan, fault: Fault, id: int = 0) -> list[ev.Action]:
    return plan.handle(ev.Exited(id, plan.ranks[id].epoch, fault))


def live(plan: Plan, id: int = 0) -> list[ev.Action]:
    return plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Live()))


def test_a_killed_server_is_replaced_where_it_was() -> None:
    plan = started(spares=1)
    actions = die(plan, killed())
    assert one(ev.Start, actions) == ev.Start(0, 2, 0, ev.Mode.NORMAL)
    assert isinstance(actions[0], ev.Wait), "the client is told before anything else"
    assert plan.ranks[0].state is State.RECOVERING
    assert live(plan) == [ev.Live(0, 2)]
    assert live(plan) == []


class Told:
    """What ranks that compare and share snapshots say of a rank's next server."""

    def entry(self, id: int) -> int:
        return 70 + id

    def arbitrates(self, id: int) -> int:
        return 3 if id else 0


def test_a_start_says_where_to_begin_and_what_to_decide() -> None:
    plan = started(devices=2)
    plan.starting.snapshots = Told()
    starts = [one(ev.Start, die(plan, killed(), id)) for id in (0, 1)]
    assert [(start.entry, start.arbitrates, start.together) for start in starts] == [
        (70, 0, 1),
        (71, 3, 1),
    ]


def test_a_start_of_ranks_that_go_back_together_begins_at_their_line() -> None:
    plan = started(devices=2, replay_all=True)
    plan.starting.snapshots = Told()  # such ranks have lines instead
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(key=7, rank=id)))
    for id in (0, 1):
        said(plan, id, wire.Prepared(step=1, entry=40 + id, whole=True))
    start = one(ev.Start, die(plan, killed(), 1))
    assert (start.entry, start.arbitrates, start.together) == (41, 0, 2)


def test_without_protection_it_is_the_clients_error() -> None:
    plan = started(protect=False)
    assert one(ev.GiveUp, die(plan, killed())).text == "killed by signal [9 SIGKILL]"
    plan = started(protect=False)
    assert one(ev.Refuse, plan.handle(ev.Drain(0)))
    assert one(ev.Refuse, plan.handle(ev.Replace(0)))


def test_old_epochs_have_no_say() -> None:
    plan = started()
    die(plan, killed())
    assert plan.handle(ev.Exited(0, 1, killed())) == []
    assert plan.handle(ev.Received(0, 1, wire.Live())) == []
    assert plan.handle(ev.Suspected(0, 1, killed())) == []
    assert plan.ranks[0].state is State.RECOVERING


def test_a_suspect_is_replaced_only_when_it_is_dead() -> None:
    plan = started()
    actions = plan.handle(ev.Suspected(0, 1, of_agent("heartbeat", "silent")))
    assert actions == [ev.Kill(0, 1), ev.Timer(("fence", 0, 1))]
    assert live(plan) == []
    assert plan.ranks[0].state is State.FENCING, "it is not listened to any more"
    assert one(ev.Start, die(plan, killed())).epoch == 2
    assert plan.ranks[0].history.positions["silent"].times == 1, "not: killed by a signal"


def test_a_suspect_accuses_nobody() -> None:
    """What it says of others while it is being ended counts for nothing."""
    accusing = []
    for suspected in (False, True):
        plan = started(devices=2)
        for id in (0, 1):
            plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(key=7, rank=id)))
        if suspected:
            plan.handle(ev.Suspected(0, 1, of_agent("heartbeat", "silent")))
        accusing.append(plan.handle(ev.Received(0, 1, wire.Suspect(key=7, rank=1))))
    listened_to, not_any_more = accusing
    assert one(ev.Kill, listened_to) == ev.Kill(1, 2)
    assert not_any_more == []


def test_a_server_that_cannot_be_ended_takes_its_gpu_along() -> None:
    plan = started(spares=1)
    plan.handle(ev.Suspected(0, 1, of_agent("heartbeat", "silent")))
    assert "even by SIGKILL" in one(ev.GiveUp, plan.handle(ev.Due(("fence", 0, 1)))).text
    assert 0 in plan.gpus.lost
    assert die(plan, killed()) == []


def test_a_lost_gpu_is_left_for_a_spare_and_never_used_again() -> None:
    plan = started(devices=2, spares=1)
    assert one(ev.Start, die(plan, device(999), 1)).gpu == 2
    live(plan, 1)
    # The next one has no spare left, and GPU 1 is no choice.
    actions = die(plan, device(214), 0)
    assert "no GPU is left for rank [0]: GPU [0] is lost" in one(ev.Wait, actions).text
    assert plan.ranks[0].state is State.WAITING
    assert plan.lacks_gpu().startswith("no GPU is left for rank [0]: GPU [0] is lost")
    # The program's next client on device 1 gets the GPU that stands behind it now.
    assert one(ev.Start, plan.handle(ev.Attached(7, 1, 1))).gpu == 2
    assert one(ev.Start, plan.handle(ev.AddSpare(5))).gpu == 5
    assert plan.lacks_gpu() == ""


def test_no_spare_is_an_error_if_asked_for() -> None:
    plan = started(wait_for_spare=False)
    assert "--on-no-spare fail" in one(ev.GiveUp, die(plan, device(999))).text
    assert plan.lacks_gpu() == ""  # nothing waits, and so no other host is asked for one


def test_all_who_share_a_lost_gpu_leave_it() -> None:
    plan = started(spares=1)
    plan.handle(ev.Attached(1, 1, 0))
    actions = die(plan, device(999))
    assert one(ev.Kill, actions) == ev.Kill(1, 2)
    assert one(ev.Start, actions).gpu == 1
    assert one(ev.Start, die(plan, killed(), 1)).gpu == 1


def test_a_programs_bug_is_replayed_then_isolated_then_delivered() -> None:
    plan = started(spares=1)
    modes, gpus = [], []
    for seq in (1000, 1007, 990):
        start = one(ev.Start, die(plan, device(710, seq)))
        modes.append(start.mode)
        gpus.append(start.gpu)
    assert modes == [ev.Mode.NORMAL, ev.Mode.SERIAL, ev.Mode.DELIVER]
    assert gpus == [0, 1, 1], "the second replay is on another GPU"
    assert 0 not in plan.gpus.lost


def test_another_step_is_another_place() -> None:
    plan = started()
    for cut, seq in ((1, 10), (2, 20), (2, 21 + NOTICED_WITHIN)):
        assert one(ev.Start, die(plan, device(710, seq, cut))).mode is ev.Mode.NORMAL
        live(plan)
    assert one(ev.Start, die(plan, device(226, 20, 2))).mode is ev.Mode.NORMAL, "another class"


def test_kills_are_nobodys_fault_but_not_for_ever() -> None:
    plan = started()
    for _ in range(ATTEMPTS):
        assert one(ev.Start, die(plan, killed())).mode is ev.Mode.NORMAL
    assert f"[{ATTEMPTS}] replacements in a row" in one(ev.GiveUp, die(plan, killed())).text
    plan = started()
    for _ in range(REPEATS):
        one(ev.Start, die(plan, killed()))
        live(plan)
    assert "at the same place" in one(ev.GiveUp, die(plan, killed())).text


def test_a_crash_at_one_place_ends_in_an_error() -> None:
    plan = started()
    for mode in (ev.Mode.NORMAL, ev.Mode.SERIAL, ev.Mode.SERIAL):
        assert one(ev.Start, die(plan, of_exit(SEGV, seq=5))).mode is mode
    assert "[server-crash] has come [4] times" in one(ev.GiveUp, die(plan, of_exit(SEGV))).text


def test_what_cannot_be_repaired_is_said() -> None:
    for code, text in ((76, "block [3] is missing"), (77, "entry [5] differs")):
        plan = started()
        fault = of_exit(code << 8, 2, 0, text)
        assert one(ev.Start, die(plan, fault)).mode is ev.Mode.SERIAL, "once more"
        assert text in one(ev.GiveUp, die(plan, fault)).text
        assert die(plan, fault) == []


def test_a_replay_that_differs_is_judged_entry_by_entry() -> None:
    plan = started()
    differs = of_exit(77 << 8, 3, 0, "entry [5] differs", 5)
    for _ in range(2):  # a fault in between does not make it an entry by entry one
        assert one(ev.Start, die(plan, differs)).mode is ev.Mode.SERIAL
        assert one(ev.Start, die(plan, killed())).mode is ev.Mode.NORMAL
    assert one(ev.Start, die(plan, differs)).mode is ev.Mode.SERIAL
    live(plan)
    assert "entry [5] differs" in one(ev.GiveUp, die(plan, differs)).text, "seen by a stream, late"


def test_orders() -> None:
    plan = started(devices=2, spares=1)
    assert "is in use" in one(ev.Refuse, plan.handle(ev.Replace(0, 1))).text
    assert "does not exist" in one(ev.Refuse, plan.handle(ev.Replace(0, 9))).text
    assert one(ev.Kill, plan.handle(ev.Replace(0, 2))).id == 0
    assert one(ev.Start, die(plan, killed())).gpu == 2
    live(plan)
    assert one(ev.Kill, plan.handle(ev.Drain(1))).id == 1
    assert one(ev.Start, die(plan, killed(), 1)).gpu == 0, "the one that was left is a spare"
    live(plan, 1)
    assert "no spare" in one(ev.Refuse, plan.handle(ev.Drain(2))).text
    assert plan.handle(ev.AddSpare(1)) == []
    assert one(ev.Kill, plan.handle(ev.Drain(2))).id == 0


def test_a_client_that_ends_frees_its_gpu() -> None:
    plan = started(devices=2)
    die(plan, device(999), 1)
    assert plan.ranks[1].state is State.WAITING
    assert plan.handle(ev.ClientGone(0)) == []
    assert die(plan, killed()) == []
    assert plan.ranks[1].state is State.WAITING, "GPU 0 still is the program's device 0"


def taken_over(plan: Plan, states: dict[int, State]) -> tuple[Plan, list[ev.Action]]:
    """Return a new coordinator that sees the ranks in these states, and what it does at once."""
    again = Plan(Gpus(1, 0))
    facts.restore(again, json.loads(json.dumps(facts.of_plan(plan))))
    actions = []
    for rank in plan.ranks.values():
        seen = Rank(rank.id, rank.rank, rank.device, rank.gpu, rank.epoch, states[rank.id])
        seen.fault = of_agent("adopted", "")
        seen.mode = rank.mode
        actions += again.adopt(seen)
    return again, actions


def test_a_new_coordinator_goes_on_where_servers_work_and_begins_again_where_not() -> None:
    plan = started(devices=2, spares=2)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    die(plan, device(999), 1)
    again, actions = taken_over(plan, {0: State.RUNNING, 1: State.FENCING})
    assert [type(action) for action in actions] == [ev.Kill, ev.Timer]
    assert again.handle(ev.Received(1, plan.starting.epoch, wire.Live())) == [], "it is being ended"
    start = one(ev.Start, die(again, killed(), 1))
    assert start == ev.Start(1, plan.starting.epoch + 1, 2, ev.Mode.NORMAL), "GPU 1 stays lost"
    want = ev.Received(1, start.epoch, wire.WantExport(7, 1))
    assert one(ev.Send, again.handle(want)).id == 0, "who is in the communicator is known"


def test_gpus_stay_lost_and_drained_in_the_next_coordinator() -> None:
    plan = started(devices=1, spares=3)
    die(plan, device(999))
    live(plan)
    plan.handle(ev.Drain(1))
    again, _ = taken_over(plan, {0: State.FENCING})
    assert one(ev.Start, die(again, killed())).gpu == 2
    live(again)
    assert "is lost" in one(ev.Refuse, again.handle(ev.Replace(0, 0))).text
    assert "is drained" in one(ev.Refuse, again.handle(ev.Replace(0, 1))).text
    again.handle(ev.Drain(2))
    assert one(ev.Start, die(again, killed())).gpu == 3


def test_an_interrupted_recovery_is_no_new_fault() -> None:
    plan = started(spares=1)
    die(plan, device(710))
    die(plan, device(710))
    assert plan.ranks[0].mode is ev.Mode.SERIAL
    again, _ = taken_over(plan, {0: State.FENCING})
    assert one(ev.Start, die(again, killed())).mode is ev.Mode.SERIAL
    assert again.ranks[0].history.attempts == 0


def test_the_past_of_a_rank_follows_from_its_faults() -> None:
    plan = started()
    faults = [device(710), killed(), device(710)]
    for fault in faults:
        die(plan, fault)
    told = [Incident(0, 0, f.name, f.evidence, 0, 0, f.seq, f.cut) for f in faults]
    assert facts.history_of(told) == plan.ranks[0].history
    told[-1].finish("recovered", 1.0)
    assert facts.history_of(told).attempts == 0


def test_every_code_has_a_class() -> None:
    assert row_of("api", 4711).name == "context-lost"
    assert row_of("xid", 4711).do.value == "nothing"
    assert row_of("signal", "SIGABRT").name == "server-crash"
    assert of_exit(1 << 8).name == "server-crash"
    assert of_exit(72 << 8).name == "ring-broken"


def test_deadlines_of_a_repair_name_the_silent_one() -> None:
    plan = started(devices=2)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    die(plan, killed(), 1)
    new = plan.ranks[1].epoch
    actions = plan.handle(ev.Received(1, new, wire.WantExport(7, 1)))
    assert isinstance(one(ev.Send, actions).message, wire.DoExport)
    due = ev.Due(one(ev.Timer, actions).what)
    assert one(ev.Kill, plan.handle(due)).id == 0
    assert plan.handle(due) == []


def test_a_member_that_cannot_export_is_replaced_as_well() -> None:
    plan = started(devices=2)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    die(plan, killed(), 1)
    plan.handle(ev.Received(1, plan.ranks[1].epoch, wire.WantExport(7, 1)))
    failed = ev.Received(0, plan.ranks[0].epoch, wire.Exported(7, 1, result=5, repair=1))
    actions = plan.handle(failed)
    assert one(ev.Kill, actions).id == 0
    assert one(ev.Send, actions).message.answer is wire.ExportAnswer.NONE_LIVES, (
        "the other one is told to begin alone"
    )


def test_who_cannot_export_stays_as_it_is_while_another_one_can() -> None:
    plan = started(devices=3)
    for id in range(3):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    die(plan, killed(), 2)
    want = ev.Received(2, plan.ranks[2].epoch, wire.WantExport(7, 2))
    assert one(ev.Send, plan.handle(want)).id == 0
    failed = wire.Exported(7, 2, 5, 1)
    asked = one(ev.Send, plan.handle(ev.Received(0, 1, failed)))
    assert asked.id == 1
    assert isinstance(asked.message, wire.DoExport)
    assert plan.ranks[0].state is State.RUNNING
    assert plan.handle(ev.Received(0, 1, failed)) == [], "it has been passed over"
    killed_now = [a.id for a in plan.handle(ev.Received(1, 2, failed)) if isinstance(a, ev.Kill)]
    assert killed_now == [0, 1], "nobody can"


def repairing(ranks: int, dead: tuple[int, ...]) -> Plan:
    """Return a plan in which the first of the dead is about to join communicator 7."""
    plan = started(devices=ranks)
    for id in range(ranks):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    for id in dead:
        die(plan, killed(), id)
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.WantExport(7, id)))
    new = dead[0]
    number = plan.communicators.number
    exporter = plan.communicators.groups[7].repair.exporter
    plan.handle(ev.Received(*exporter, wire.Exported(7, new, 0, number, b"info")))
    plan.handle(ev.Received(new, plan.ranks[new].epoch, wire.Fresh(7, new, b"fresh")))
    return plan


def test_a_repair_waits_until_the_one_before_has_its_place() -> None:
    plan = repairing(3, (1, 2))
    joined = ev.Received(0, plan.ranks[0].epoch, wire.Replaced(7, 1, 0, 1))
    assert isinstance(one(ev.Send, plan.handle(joined)).message, wire.Join)
    assert plan.communicators.groups[7].repair.new[0] == 1, "it has not said that it is there"
    made = ev.Received(1, plan.ranks[1].epoch, wire.Made(7, 1))
    assert isinstance(one(ev.Send, plan.handle(made)).message, wire.DoExport)
    assert plan.communicators.groups[7].repair.new[0] == 2


def test_an_answer_to_a_repair_that_is_over_counts_for_nothing() -> None:
    plan = repairing(2, (1,))
    late = ev.Received(0, plan.ranks[0].epoch, wire.Replaced(7, 1, 6, 9))
    assert plan.handle(late) == []
    assert plan.communicators.groups[7].repair.pending == [(0, plan.ranks[0].epoch)]


def test_who_is_refused_begins_again_and_who_refuses_goes_on() -> None:
    plan = repairing(2, (1,))
    refused = ev.Received(0, plan.ranks[0].epoch, wire.Replaced(7, 1, 5, 1))
    assert one(ev.Kill, plan.handle(refused)).id == 1


def test_a_communicator_all_others_have_ended() -> None:
    plan = started(devices=2)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    plan.handle(ev.Received(0, plan.ranks[0].epoch, wire.Ended(7, 0)))
    die(plan, killed(), 1)
    want = ev.Received(1, plan.ranks[1].epoch, wire.WantExport(7, 1))
    assert one(ev.Send, plan.handle(want)).message.answer is wire.ExportAnswer.OTHERS_ENDED


def test_a_member_with_broken_links_is_replaced() -> None:
    plan = started(devices=2)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(7, id)))
    suspect = ev.Received(0, plan.ranks[0].epoch, wire.Suspect(7, 1))
    assert one(ev.Kill, plan.handle(suspect)).id == 1


def test_who_differs_is_asked_again_on_a_spare() -> None:
    plan = started(spares=1)
    start = one(ev.Start, die(plan, of_exit(77 << 8, 3, 0, "far", 5, 1)))
    assert (start.mode, start.gpu) == (ev.Mode.SERIAL, 1)
    assert "far" in one(ev.GiveUp, die(plan, of_exit(77 << 8, 3, 0, "far", 5, 1))).text


def test_what_one_replay_alone_has_computed_is_computed_again_but_not_for_ever() -> None:
    plan = started()
    die(plan, of_exit(77 << 8, 3, 0, "far", 5, 1))
    for _ in range(UNDECIDED - 1):
        start = one(ev.Start, die(plan, of_exit(77 << 8, 4, 0, "far", 5, 1)))
        assert start.mode is ev.Mode.SERIAL
    assert one(ev.GiveUp, die(plan, of_exit(77 << 8, 4, 0, "far", 5, 1)))


class Replaying:
    """A set of ranks under a real plan; whoever replays in the first mode finds a difference."""

    def __init__(self, ranks: int, seed: int, ends: bool) -> None:
        self.plan = started(devices=ranks, replay_all=True)
        for id in range(ranks):
            epoch = self.plan.ranks[id].epoch
            self.plan.handle(ev.Received(id, epoch, wire.Made(key=7, rank=id)))
        self.chance = random.Random(seed)
        self.ends = ends  # also entry by entry
        self.starts: dict[int, list[ev.Mode]] = {id: [] for id in range(ranks)}
        self.todo: list[ev.Event] = []

    def act(self, actions: list[ev.Action]) -> None:
        for action in actions:
            if isinstance(action, ev.Kill):
                self.todo.append(ev.Exited(action.id, action.epoch, killed(seq=0)))
            elif isinstance(action, ev.Start):
                self.starts[action.id].append(action.mode)
                live = ev.Received(action.id, action.epoch, wire.Live())
                differs = of_exit(77 << 8, 3, 0, "last digits", action.id, 1)
                found = ev.Exited(action.id, action.epoch, differs)
                serial = action.mode is not ev.Mode.NORMAL
                self.todo.append(found if self.ends or not serial else live)

    def recover(self) -> None:
        self.act(die(self.plan, killed()))
        while self.todo:
            event = self.todo.pop(self.chance.randrange(len(self.todo)))
            self.act(self.plan.handle(event))


@pytest.mark.parametrize("ranks", [2, 8])
def test_all_who_find_a_difference_are_through_after_one_more_replay(ranks: int) -> None:
    for seed in range(50):
        job = Replaying(ranks, seed, ends=False)
        job.recover()
        assert {rank.state for rank in job.plan.ranks.values()} == {State.RUNNING}
        for modes in job.starts.values():
            assert modes.count(ev.Mode.SERIAL) == 1, (seed, job.starts)
            assert modes.count(ev.Mode.NORMAL) <= 1, (seed, job.starts)
        # What comes next is another fault.
        job.starts = {id: [] for id in range(ranks)}
        job.act(die(job.plan, killed(seq=99, cut=2)))
        assert job.starts[0] == [ev.Mode.NORMAL]


@pytest.mark.parametrize("ranks", [2, 8])
def test_all_who_find_a_difference_again_are_given_up_soon(ranks: int) -> None:
    for seed in range(50):
        job = Replaying(ranks, seed, ends=True)
        job.recover()
        assert {rank.state for rank in job.plan.ranks.values()} == {State.GIVEN_UP}
        assert max(len(modes) for modes in job.starts.values()) <= 2, (seed, job.starts)


def test_a_rank_that_waits_for_a_gpu_replays_as_its_set_does() -> None:
    plan = started(devices=2, replay_all=True)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(key=7, rank=id)))
    die(plan, device(999), 1)  # no GPU is left for it
    die(plan, killed(), 0)
    assert plan.ranks[1].state is State.WAITING
    start = one(ev.Start, die(plan, of_exit(77 << 8, 3, 0, "digits", 5, 1), 0))
    assert start.mode is ev.Mode.SERIAL
    assert one(ev.Start, plan.handle(ev.AddSpare(5))).mode is ev.Mode.SERIAL


def test_the_next_agent_replays_as_the_one_before() -> None:
    plan = started(devices=2, replay_all=True)
    for id in (0, 1):
        plan.handle(ev.Received(id, plan.ranks[id].epoch, wire.Made(key=7, rank=id)))
    die(plan, of_exit(77 << 8, 3, 0, "digits", 5, 1), 0)
    after = Plan(Gpus(2, 0), replay_all=True)
    facts.restore(after, json.loads(json.dumps(facts.of_plan(plan))))
    assert after.rollback is not None
    assert after.rollback.is_serial(1)


def said(plan: Plan, id: int, message: wire.Message) -> list[ev.Action]:
    return plan.handle(ev.Received(id, plan.ranks[id].epoch, message))


def met(ranks: int) -> Plan:
    """Return the plan of a job whose ranks have made communicator 7."""
    plan = started(devices=ranks)
    for id in range(ranks):
        said(plan, id, wire.Made(7, id))
    return plan


def test_who_has_taken_part_in_a_repair_is_known() -> None:
    plan = met(3)
    die(plan, killed(), 2)
    assert one(ev.Send, said(plan, 2, wire.WantExport(7, 2))).id == 0
    said(plan, 0, wire.Exported(7, 2, 0, 1))
    asked = [a for a in said(plan, 2, wire.Fresh(7, 2)) if isinstance(a, ev.Send)]
    assert [(a.id, type(a.message)) for a in asked] == [(0, wire.DoReplace), (1, wire.DoReplace)]
    assert said(plan, 0, wire.Replaced(7, 2, 0, 1)) == []
    joined = one(ev.Send, said(plan, 1, wire.Replaced(7, 2, 0, 1)))
    assert (joined.id, type(joined.message)) == (2, wire.Join)
    said(plan, 2, wire.Made(7, 2))
    assert plan.communicators.groups[7].repaired == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("repaired", "exporter"),
    [
        ({}, 1),  # the oldest server
        ({0: 1}, 0),  # who alone was there in the last repair
        ({0: 5, 1: 5, 2: 7}, 2),
        ({0: 7, 2: 7}, 2),  # of these the oldest
    ],
)
def test_who_knows_the_present_epoch_exports(repaired: dict[int, int], exporter: int) -> None:
    plan = met(4)
    die(plan, killed(), 0)  # its new server is the newest of all
    live(plan, 0)
    plan.communicators.groups[7].repair = None
    said(plan, 0, wire.Made(7, 0))
    plan.communicators.groups[7].repaired = dict(repaired)
    die(plan, killed(), 3)
    sent = one(ev.Send, said(plan, 3, wire.WantExport(7, 3)))
    assert (sent.id, type(sent.message)) == (exporter, wire.DoExport)


def test_orders_that_cannot_be_carried_out_say_why() -> None:
    plan = started(devices=1, spares=1)
    assert "does not exist" in one(ev.Refuse, plan.handle(ev.Drain(9))).text
    assert one(ev.Kill, plan.handle(ev.Replace(0, 0))).id == 0, "a new server where it is"
    assert one(ev.Start, die(plan, killed())).gpu == 0
    live(plan)
    assert one(ev.Kill, plan.handle(ev.Replace(0, 1))).id == 0
    assert one(ev.Start, die(plan, killed())).gpu == 1
    live(plan)
    assert one(ev.Kill, plan.handle(ev.Replace(0, 0))).id == 0, "and back"
    assert one(ev.Start, die(plan, killed())).gpu == 0
    live(plan)
    die(plan, device(999))
    live(plan)
    die(plan, device(999))
    assert plan.ranks[0].state is State.WAITING
    assert "`pyft spare` brings one" in one(ev.Refuse, plan.handle(ev.Replace(0))).text
    assert "no GPU is left" in one(ev.Refuse, plan.handle(ev.Attached(1, 1, 0))).text
    assert 1 not in plan.ranks


def test_who_is_given_up_takes_no_order() -> None:
    plan = started()
    die(plan, of_exit(PROTOCOL_EXIT << 8))
    assert plan.ranks[0].state is State.GIVEN_UP
    assert one(ev.Refuse, plan.handle(ev.Replace(0))).text == "rank [0] has been given up"


def test_deadlines_that_are_over_mean_nothing() -> None:
    plan = started()
    plan.handle(ev.Suspected(0, 1, of_agent("heartbeat", "silent")))
    die(plan, killed())
    for what in (("fence", 0, 1), ("fence", 0, 2), ("fence", 9, 1)):
        assert plan.handle(ev.Due(what)) == []
    assert plan.ranks[0].state is State.RECOVERING
    assert not plan.gpus.lost


def test_a_new_epoch_is_newer_than_any_that_is_adopted() -> None:
    again = Plan(Gpus(1, 0))
    seen = Rank(0, 0, 0, 0, 9, State.FENCING)
    assert again.adopt(seen) == [ev.Kill(0, 9), ev.Timer(("fence", 0, 9))]
    assert again.adopted() == []
    assert one(ev.Start, die(again, killed())).epoch == 10


def tied() -> Plan:
    """Return the plan of two ranks that go back together."""
    plan = started(devices=2, replay_all=True)
    for id in (0, 1):
        said(plan, id, wire.Made(7, id))
    return plan


def test_who_replays_begins_again_when_one_of_its_set_fails_again() -> None:
    plan = tied()
    assert one(ev.Kill, die(plan, killed(), 0)).id == 1
    die(plan, killed(), 1)
    assert {rank.state for rank in plan.ranks.values()} == {State.RECOVERING}
    assert one(ev.Kill, die(plan, killed(), 0)).id == 1
    assert plan.ranks[1].state is State.FENCING


def test_who_replays_does_not_wait_for_one_that_is_given_up_late() -> None:
    plan = tied()
    plan.handle(ev.Suspected(0, plan.ranks[0].epoch, of_agent("heartbeat", "silent")))
    die(plan, killed(), 1)
    assert plan.ranks[1].state is State.RECOVERING
    actions = die(plan, of_exit(PROTOCOL_EXIT << 8), 0)
    assert one(ev.GiveUp, actions).id == 0
    assert one(ev.Kill, actions).id == 1
    assert "rank [0] has been given up" in one(ev.GiveUp, die(plan, killed(), 1)).text


def test_of_a_communicator_that_all_have_ended_nothing_is_left() -> None:
    """A job may make and end any number of them, and the next agent is told of each."""
    communicators = Communicators(lambda id, epoch: True)
    said = [wire.Making(7, 0, 2), wire.Made(7, 0, 2), wire.Made(7, 1, 2)]
    for message in [*said, wire.Ended(7, 0)]:
        assert not list(communicators.received(ev.Received(message.rank, 1, message), []))
        assert 7 in communicators.groups
    assert not list(communicators.received(ev.Received(1, 1, wire.Ended(7, 1)), []))
    assert communicators.groups == {}
