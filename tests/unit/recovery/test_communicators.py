"""How a new server gets its place in a communicator, one situation at a time.

test_model.py, test_meeting.py and test_dividing.py try every order of events instead.
"""

from __future__ import annotations

import pytest

from pyft.recovery import events
from pyft.recovery.communicators import Communicators
from pyft.wire import messages as wire
from pyft.wire.messages import ExportAnswer, ExportReason

KEY = 7
LOST, RECORDS = ExportReason.LOST_MEETING, ExportReason.FROM_RECORDS
Told = list[tuple[int, wire.Message]]


class Job:
    """Ranks, by id, which is their rank in the communicator, too; `made`: those that have it."""

    def __init__(self, *made: int) -> None:
        self.epoch = 10
        self.epochs: dict[int, int] = {}
        self.communicators = Communicators(lambda id, epoch: self.epochs.get(id) == epoch)
        self.timers: list[tuple[int | str, ...]] = []
        self.failed: list[tuple[int, str]] = []
        for id in made:
            self.start(id)
            assert self.say(id, wire.Making(KEY, id)) == []
        for id in made:
            assert self.say(id, wire.Made(KEY, id)) == []

    def start(self, *ids: int) -> None:
        """Start the next server of these ranks."""
        for id in ids:
            self.epoch += 1
            self.epochs[id] = self.epoch

    def die(self, id: int) -> Told:
        """End the server of a rank."""
        del self.epochs[id]
        actions: list[events.Action] = []
        self.communicators.died(id, actions)
        return self.told(actions)

    def say(self, id: int, said: wire.Message) -> Told:
        """Let a server say something; return who is told what."""
        actions: list[events.Action] = []
        event = events.Received(id, self.epochs[id], said)
        for server, why in self.communicators.received(event, actions):
            assert server == (server[0], self.epochs[server[0]])
            self.failed.append((server[0], why))
        return self.told(actions)

    def told(self, actions: list[events.Action]) -> Told:
        """Return what is sent, to servers that live."""
        sent = [one for one in actions if isinstance(one, events.Send)]
        self.timers += [one.what for one in actions if isinstance(one, events.Timer)]
        assert len(sent) + sum(isinstance(one, events.Timer) for one in actions) == len(actions)
        assert all(self.epochs[one.id] == one.epoch for one in sent)
        return [(one.id, one.message) for one in sent]

    def want(self, id: int, reason: ExportReason = RECORDS) -> Told:
        """Let a server ask for its place."""
        return self.say(id, wire.WantExport(KEY, id, reason))

    def late(self, stage: str, number: int = 1) -> list[int]:
        """Return whose servers a repair has waited for when this deadline has passed."""
        begun = [what for what in self.timers if what[2:4] == (number, stage)]
        return [id for what in begun[-1:] for (id, _), _ in self.communicators.due(what)]

    def stages(self) -> list[tuple[int | str, ...]]:
        """Return the repair and the stage of each deadline so far."""
        return [what[2:4] for what in self.timers]

    def to_replace(self, id: int, exporter: int, number: int = 1) -> Told:
        """Let a new server get to where all members have to take it in."""
        answer = wire.Export(KEY, id, ExportAnswer.HAVE_IT, b"how")
        assert self.say(exporter, wire.Exported(KEY, id, 0, number, b"how")) == [(id, answer)]
        return self.say(id, wire.Fresh(KEY, id, b"new"))


def failing(*ranks: int) -> Job:
    """Return a job of three whose ranks of these numbers have a new server each."""
    job = Job(0, 1, 2)
    for id in ranks:
        assert job.die(id) == []
    job.start(*ranks)
    return job


def test_a_deadline_is_of_one_question() -> None:
    job = failing(2)
    assert job.want(2) == [(0, wire.DoExport(KEY, 2, 1))]
    refusal = wire.Exported(KEY, 2, 5, 1)
    assert job.say(0, refusal) == [(1, wire.DoExport(KEY, 2, 1))]
    first, second = job.timers
    assert list(job.communicators.due(first)) == [], "that one has answered"
    assert [id for (id, _), _ in job.communicators.due(second)] == [1]


def test_a_new_server_gets_its_place_when_all_members_have_taken_it_in() -> None:
    job = failing(2)
    assert job.want(2) == [(0, wire.DoExport(KEY, 2, 1))]
    order = wire.DoReplace(KEY, 2, 1, b"new")
    assert job.to_replace(2, exporter=0) == [(0, order), (1, order)], "each of them once"
    assert job.say(0, wire.Replaced(KEY, 2, 0, 1)) == []
    assert job.say(1, wire.Replaced(KEY, 2, 0, 1)) == [(2, wire.Join(KEY, 2))]
    assert job.say(2, wire.Made(KEY, 2)) == []
    assert job.stages() == [(1, s) for s in ("export", "fresh", "replace", "join")]
    assert job.communicators.server_of(KEY, 2) == (2, job.epochs[2])
    assert job.communicators.server_of(9, 2) is None
    assert job.failed == []


def test_the_next_one_waits_until_the_one_before_has_its_place() -> None:
    job = failing(1, 2)
    assert job.want(1) == [(0, wire.DoExport(KEY, 1, 1))]
    assert job.want(2) == job.want(2) == job.want(1) == []
    assert len(job.communicators.groups[KEY].queue) == 1, "asked again, it is one question"
    job.to_replace(1, exporter=0)
    assert job.say(0, wire.Replaced(KEY, 1, 0, 1)) == [(1, wire.Join(KEY, 1))]
    assert job.say(1, wire.Made(KEY, 1)) == [(0, wire.DoExport(KEY, 2, 2))]


def test_a_new_server_that_dies_ends_its_repair() -> None:
    job = failing(1, 2)
    job.want(1)
    job.want(2)
    assert job.die(1) == [(0, wire.DoExport(KEY, 2, 2))]
    job = failing(1, 2)
    job.want(1)
    job.want(2)
    assert job.die(2) == []
    job.to_replace(1, exporter=0)
    job.say(0, wire.Replaced(KEY, 1, 0, 1))
    assert job.say(1, wire.Made(KEY, 1)) == [], "who has asked and is dead gets no place"


def test_another_member_is_asked_when_the_one_that_was_asked_dies() -> None:
    job = failing(2)
    job.want(2)
    assert job.die(0) == [(1, wire.DoExport(KEY, 2, 1))]
    job = failing(2)
    job.want(2)
    assert job.die(1) == [], "that was not asked"
    job = failing(2)
    job.want(2)
    job.say(0, wire.Exported(KEY, 2, 0, 1))
    assert job.die(0) == [], "it has answered"


def test_a_member_that_dies_is_counted_out() -> None:
    for first in (True, False):
        job = failing(2)
        job.want(2)
        job.to_replace(2, exporter=0)
        steps = [lambda: job.die(1), lambda: job.say(0, wire.Replaced(KEY, 2, 0, 1))]  # noqa: B023
        before, after = steps if first else reversed(steps)
        assert before() == []
        assert after() == [(2, wire.Join(KEY, 2))]


def test_answers_that_nobody_waits_for_count_for_nothing() -> None:
    job = failing(2)
    job.want(2)
    assert job.say(2, wire.Fresh(KEY, 2)) == [], "it knows no members yet"
    assert job.say(1, wire.Exported(KEY, 2, 0, 1)) == [], "another one was asked"
    assert job.say(0, wire.Exported(KEY, 2, 0, 9)) == [], "in another repair"
    assert job.say(0, wire.Exported(KEY, 2, 0, 1)) != []
    assert job.say(0, wire.Exported(KEY, 2, 0, 1)) == [], "it has said so"
    assert job.say(0, wire.Fresh(KEY, 0)) == [], "that is not the new one"
    assert job.say(2, wire.Fresh(KEY, 2)) != []
    for said in (wire.Replaced(KEY, 2, 5, 9), wire.Replaced(KEY, 2, 0, 1)):
        assert job.say(0, said) == []
    assert job.say(0, wire.Replaced(KEY, 2, 0, 1)) == [], "once more"
    assert job.failed == []


def test_who_refuses_is_asked_once_more_when_no_other_one_lives() -> None:
    job = failing(2)
    job.want(2)
    assert job.say(0, wire.Exported(KEY, 2, 5, 1)) == [(1, wire.DoExport(KEY, 2, 1))]
    assert job.die(1) == [(0, wire.DoExport(KEY, 2, 1))]
    assert job.failed == []
    assert job.say(0, wire.Exported(KEY, 2, 5, 1)) == []
    assert job.failed == [(0, "cannot export communicator [0x7]: [5]")]


def test_a_member_that_cannot_take_it_in_is_not_to_blame() -> None:
    job = failing(2)
    job.want(2)
    job.to_replace(2, exporter=0)
    job.say(1, wire.Replaced(KEY, 2, 5, 1))
    assert job.failed == [(2, "a repair of communicator [0x7] failed [5]")]


def test_whoever_a_repair_has_waited_for_is_silent() -> None:
    job = failing(2)
    job.want(2)
    assert job.late("export") == [0]
    assert job.late("export", number=2) == job.late("fresh") == []
    job.say(0, wire.Exported(KEY, 2, 0, 1))
    assert job.late("fresh") == [2]
    job.say(2, wire.Fresh(KEY, 2))
    assert job.late("replace") == [0, 1]
    job.say(0, wire.Replaced(KEY, 2, 0, 1))
    assert job.late("replace") == [1]
    job.say(1, wire.Replaced(KEY, 2, 0, 1))
    assert job.late("join") == [2]
    job.say(2, wire.Made(KEY, 2))
    assert job.late("join") == []
    assert list(job.communicators.due(("repair", 99, 1, "export", 1))) == [], "all have ended it"


def test_a_new_server_joins_at_once_where_no_member_lives_any_more() -> None:
    job = Job(0, 1)
    job.die(1)
    job.start(1)
    job.want(1)
    job.say(0, wire.Exported(KEY, 1, 0, 1))
    job.die(0)
    assert job.say(1, wire.Fresh(KEY, 1)) == [(1, wire.Join(KEY, 1))]


def test_answers_behind_the_end_of_a_repair_count_for_nothing() -> None:
    job = failing(2)
    job.want(2)
    job.die(2)
    for said in (wire.Exported(KEY, 2, 0, 1), wire.Replaced(KEY, 2, 0, 1)):
        assert job.say(0, said) == []
    assert job.failed == []


# ---- no member lives -----------------------------------------------------------------------------


def test_when_all_are_dead_the_first_that_asks_begins_and_the_others_join_it() -> None:
    job = failing(0, 1, 2)
    assert job.want(1) == [(1, wire.Export(KEY, 1, ExportAnswer.NONE_LIVES))]
    assert job.want(0) == job.want(2) == []
    assert job.late("alone") == [1]
    assert job.say(1, wire.Made(KEY, 1)) == [(1, wire.DoExport(KEY, 0, 2))]
    assert job.stages()[:2] == [(1, "wait"), (1, "alone")]
    assert job.communicators.groups[KEY].repaired == {1: 1}


def test_a_rank_whose_others_have_ended_it_hears_that() -> None:
    job = Job(0, 1)
    job.say(1, wire.Ended(KEY, 1))
    job.die(0)
    job.start(0)
    assert job.want(0) == [(0, wire.Export(KEY, 0, ExportAnswer.OTHERS_ENDED))]


def test_who_begins_alone_without_records_makes_it() -> None:
    job = failing(0, 1, 2)
    job.want(0)
    job.want(1)
    assert job.say(2, wire.Making(KEY, 2)) == []
    assert job.late("alone") == [0], "that is another one"
    assert job.say(0, wire.Making(KEY, 0)) == []
    assert job.late("alone") == []
    assert job.late("wait", number=2) == [2, 0], "these may meet"
    assert job.say(2, wire.Made(KEY, 2)) == [(2, wire.DoExport(KEY, 1, 2))]


def test_who_is_told_to_make_it_in_a_repair_goes_on_with_that() -> None:
    job = failing(2)
    job.want(2)
    assert job.say(2, wire.Making(KEY, 2)) == []
    assert job.late("export") == [0]


# ---- ranks that meet -----------------------------------------------------------------------------


def meeting(*lost: int) -> Job:
    """Return a job of three that have begun to make it; these are lost."""
    job = Job()
    job.start(0, 1, 2)
    for id in (0, 1, 2):
        assert job.say(id, wire.Making(KEY, id)) == []
    for id in lost:
        assert job.want(id, LOST) == []
    return job


def test_who_is_lost_gets_its_place_from_the_first_that_has_it() -> None:
    job = meeting(1, 2)
    assert job.timers == [], "until then it may meet the others anew"
    assert job.want(1, LOST) == []
    assert job.say(0, wire.Made(KEY, 0)) == [(0, wire.DoExport(KEY, 1, 1))]
    asked = job.to_replace(1, exporter=0)
    assert [id for id, _ in asked] == [0], "rank 2 has said that it is lost"
    assert job.say(0, wire.Replaced(KEY, 1, 0, 1)) == [(1, wire.Join(KEY, 1))]
    assert job.say(1, wire.Made(KEY, 1)) == [(0, wire.DoExport(KEY, 2, 2))]
    assert job.failed == []


@pytest.mark.parametrize(("lost", "member"), [(2, 1), (0, 1), (1, 2)])
def test_any_member_lets_one_in_that_is_lost(lost: int, member: int) -> None:
    job = meeting(lost)
    assert job.say(member, wire.Made(KEY, member)) == [(member, wire.DoExport(KEY, lost, 1))]


def test_who_is_lost_and_finds_no_member_asks_anew() -> None:
    job = meeting(1)
    job.say(0, wire.Made(KEY, 0))
    assert job.die(0) == []
    assert job.late("export") == []
    assert job.stages() == [(1, "export")], "nobody is waited for"
    job.start(0)
    assert job.say(2, wire.Made(KEY, 2)) == [(2, wire.DoExport(KEY, 1, 2))]


def test_all_that_are_lost_may_meet_anew() -> None:
    job = meeting(0, 1, 2)
    for id in (0, 1, 2):
        job.say(id, wire.Made(KEY, id))
    assert job.communicators.groups[KEY].queue == []
    assert job.late("export", number=2) == []
    assert job.failed == []


def test_one_with_records_waits_for_those_that_may_have_met() -> None:
    job = meeting()
    job.die(2)
    job.start(2)
    assert job.want(2) == []
    assert job.late("wait") == [0, 1]
    assert job.want(0, LOST) == []
    assert job.late("wait") == [1]
    assert job.want(1, LOST) == [(2, wire.Export(KEY, 2, ExportAnswer.OTHERS_ENDED))]
    assert job.stages() == [(1, "wait"), (1, "alone")]


def test_what_one_said_before_that_question_does_not_count() -> None:
    """It may have met the others since."""
    job = meeting(0, 1)
    job.die(2)
    job.start(2)
    assert job.want(2) == []
    assert job.want(1, LOST) == []
    assert job.want(0, LOST) != []


@pytest.mark.parametrize("ends", [True, False])
def test_one_with_records_goes_on_when_the_one_it_waits_for_is_through(ends: bool) -> None:
    job = meeting()
    for id in (1, 2):
        job.die(id)
    job.start(2)
    assert job.want(2) == []
    if ends:
        assert job.die(0) == [(2, wire.Export(KEY, 2, ExportAnswer.OTHERS_ENDED))]
    else:
        assert job.say(0, wire.Made(KEY, 0)) == [(0, wire.DoExport(KEY, 2, 1))]
        assert job.late("export") == [0]


def test_one_that_makes_it_takes_a_new_server_in_as_well() -> None:
    job = failing(2)
    job.start(3, 4)
    for id in (3, 4):
        job.say(id, wire.Making(KEY, id))
    job.want(2)
    job.want(4, LOST)
    asked = job.to_replace(2, exporter=0)
    assert [id for id, _ in asked] == [0, 1, 3]
    assert job.communicators.groups[KEY].repaired == {0: 1, 1: 1}


def went_on(repaired: bool) -> Job:
    """Return a job whose ranks 0 and 1 are lost, while rank 2 has gone on alone or is about to."""
    job = meeting()
    job.die(2)
    job.start(2)
    job.want(2)
    for id in (0, 1):
        job.want(id, LOST)
    if repaired:
        job.say(2, wire.Made(KEY, 2))
    return job


@pytest.mark.parametrize("repaired", [True, False])
def test_who_has_met_others_that_are_not_there_any_more_begins_again(repaired: bool) -> None:
    job = went_on(repaired)
    job.say(1, wire.Made(KEY, 1))
    assert job.failed == [
        (1, "it has met others of communicator [0x7] that are not there any more")
    ]


def test_who_is_lost_and_meets_them_anew_while_one_waits_is_no_failure() -> None:
    job = meeting()
    job.die(2)
    job.start(2)
    assert job.want(2) == []
    assert job.want(0, LOST) == []
    assert job.say(0, wire.Made(KEY, 0)) == [(0, wire.DoExport(KEY, 2, 1))]
    assert job.failed == []


def test_who_has_got_its_place_has_met_nobody_else() -> None:
    job = went_on(repaired=True)
    asked = job.to_replace(0, exporter=2, number=2)
    assert asked == [(2, wire.DoReplace(KEY, 0, 2, b"new"))]
    job.say(2, wire.Replaced(KEY, 0, 0, 2))
    job.say(0, wire.Made(KEY, 0))
    assert job.failed == []
    job.say(0, wire.Made(KEY, 0))
    assert job.failed == [], "it is not lost any more"


def test_who_was_not_lost_has_met_those_that_are_there() -> None:
    job = went_on(repaired=True)
    job.start(3)
    job.say(3, wire.Making(KEY, 3))
    job.say(3, wire.Made(KEY, 3))
    assert job.failed == []


# ---- what is kept --------------------------------------------------------------------------------


def test_of_a_server_that_has_died_nothing_is_kept() -> None:
    job = meeting(0, 1)
    job.die(0)
    group = job.communicators.groups[KEY]
    assert group.lost == {(1, job.epochs[1])}
    job.die(1)
    assert (group.queue, group.lost) == ([], set())
    assert group.making == {2: (2, job.epochs[2])}


def test_a_communicator_is_kept_for_those_that_may_come_back_to_it() -> None:
    job = Job(0, 1)
    job.communicators.tidy({1})
    assert KEY in job.communicators.groups
    job.die(0)
    job.start(0)
    job.want(0)
    job.communicators.tidy(())
    assert KEY in job.communicators.groups, "somebody gets a place there"
    job.die(0)
    job.communicators.tidy(())
    assert job.communicators.groups == {}
    job = meeting(2)
    job.communicators.tidy(())
    assert KEY in job.communicators.groups, "somebody asks for a place there"
    for id in (0, 1, 2):
        job = Job()
        job.start(id)
        job.say(id, wire.Making(KEY, id))
        job.communicators.tidy({id})
        assert KEY in job.communicators.groups


def test_other_messages_are_about_no_communicator() -> None:
    job = Job()
    job.start(0)
    assert job.say(0, wire.Pace(3)) == []
    assert job.communicators.groups == {}


def test_who_has_no_place_yet_ends_that_of_no_other() -> None:
    job = failing(2)
    before = job.communicators.server_of(KEY, 2)
    job.say(2, wire.Ended(KEY, 2))
    assert job.communicators.server_of(KEY, 2) == before


def test_what_was_changed_from_outside_goes_on() -> None:
    job = failing(2)
    job.communicators.groups[KEY].queue.append(((2, job.epochs[2]), 2, False))
    actions: list[events.Action] = []
    job.communicators.go_on(actions)
    assert job.told(actions) == [(0, wire.DoExport(KEY, 2, 1))]
