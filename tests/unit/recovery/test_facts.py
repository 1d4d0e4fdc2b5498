"""What the next coordinator knows of communicators and repairs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_plan import die, killed, met, one, said, started  # noqa: E402

from pyft.recovery import events as ev  # noqa: E402
from pyft.recovery import facts  # noqa: E402
from pyft.recovery.gpus import Gpus  # noqa: E402
from pyft.recovery.plan import Plan  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402


def next_plan(plan: Plan) -> Plan:
    after = Plan(Gpus(1, 0))
    facts.restore(after, json.loads(json.dumps(facts.of_plan(plan))))
    return after


def test_servers_go_on_counting() -> None:
    plan = started()
    die(plan, killed())
    plan.handle(ev.ClientGone(0))
    start = one(ev.Start, next_plan(plan).handle(ev.Attached(4, 0, 0)))
    assert start.epoch == 3, "what the one before has said of epoch 2 is not about this server"


def test_repairs_go_on_counting() -> None:
    plan = met(2)
    die(plan, killed(), 1)
    said(plan, 1, wire.WantExport(7, 1))
    said(plan, 0, wire.Exported(7, 1, 0, 1))
    said(plan, 1, wire.Fresh(7, 1))
    said(plan, 0, wire.Replaced(7, 1, 0, 1))
    said(plan, 1, wire.Made(7, 1))
    said(plan, 0, wire.Made(8, 0))  # never repaired
    after = next_plan(plan)
    assert after.communicators.number == 1
    assert after.communicators.groups[7].repaired == {0: 1, 1: 1}
    assert after.communicators.groups[8].repaired == {0: 0}
    assert after.communicators.groups[7].members == {0: (0, 1), 1: (1, 3)}
    assert after.communicators.interrupted == [], "all have their places"


def test_who_was_getting_its_first_place_is_known() -> None:
    plan = started(devices=3)
    for id in range(3):
        said(plan, id, wire.Making(7, id))
    said(plan, 2, wire.WantExport(7, 2, wire.ExportReason.LOST_MEETING))
    said(plan, 0, wire.Made(7, 0))
    assert next_plan(plan).communicators.interrupted == [], "it may still meet the others"
    said(plan, 0, wire.Exported(7, 2, 0, 1))
    after = next_plan(plan)
    assert after.communicators.interrupted == [(2, 3)]
    assert after.communicators.groups[7].making == {1: (1, 2), 2: (2, 3)}


def test_who_has_records_asks_again_by_itself() -> None:
    plan = met(2)
    die(plan, killed(), 1)
    said(plan, 1, wire.WantExport(7, 1))
    said(plan, 0, wire.Exported(7, 1, 0, 1))
    assert next_plan(plan).communicators.interrupted == []
