"""What a coordinator leaves to the next one, in plain values (A21).

Kept are facts: which GPUs may be used, which rank has a place in which communicator, the epoch.
What is under way is not: a rank whose new server does not work yet begins again, and so does a
repair. Until its new rank decides, a repair of a communicator changes nothing, so it can be begun
again as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyft.recovery.blame import History
from pyft.recovery.classify import Fault, row_named
from pyft.recovery.communicators import Communicators, Group
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan
from pyft.recovery.rank import Rank, State
from pyft.recovery.report import Incident


def of_plan(plan: Plan) -> dict[str, Any]:
    """Return what has to be kept before the actions of a decision are carried out."""
    gpus = plan.gpus
    return {
        "epoch": plan.starting.epoch,
        "behind": sorted(gpus.behind.items()),
        "known": sorted(gpus.known),
        "lost": sorted(gpus.lost.items()),
        "drained": sorted(gpus.drained),
        "strikes": gpus.strikes.note(),
        "communicators": [
            [key, _members(group), sorted(group.making.items()), _placed(group)]
            for key, group in plan.communicators.groups.items()
        ],
        "departures": plan.departures.note(),
        "rollback": plan.rollback.note() if plan.rollback else None,
        "gone": _gone(plan) if plan.rollback else [],
    }


def restore(plan: Plan, facts: dict[str, Any]) -> None:
    """Give a new plan what the one before has left."""
    plan.starting.epoch = int(facts["epoch"])
    _restore_gpus(plan.gpus, facts)
    _restore_communicators(plan.communicators, facts)
    plan.departures.restore(facts["departures"])
    if plan.rollback:
        plan.rollback.restore(facts["rollback"])
        for id, rank, *where in facts["gone"]:  # or nothing would say why no other can go back
            plan.ranks[id] = Rank(id, rank, *where, state=State.GONE)


def history_of(incidents: Iterable[Incident]) -> History:
    """Return what the faults of a rank tell about the next one."""
    history = History()
    for incident in incidents:
        history.judge(fault_of(incident))
        if incident.outcome in ("recovered", "error delivered"):
            history.lived()
    return history


def fault_of(incident: Incident) -> Fault:
    """Return the fault that an incident tells of."""
    return Fault(row_named(incident.fault), incident.evidence, incident.seq, incident.cut)


def _gone(plan: Plan) -> list[list[int]]:
    gone = [rank for rank in plan.ranks.values() if rank.state is State.GONE]
    return [[rank.id, rank.rank, rank.device, rank.gpu, rank.epoch] for rank in gone]


def _members(group: Group) -> list[list[int]]:
    return [
        [rank, id, epoch, group.repaired.get(rank, 0)]
        for rank, (id, epoch) in group.members.items()
    ]


def _placed(group: Group) -> list[int]:
    """Return the server, if any, that works and is getting its place: nothing else ends it."""
    repair = group.repair
    told = repair and repair.lost and repair.stage != "export"
    return list(repair.new) if repair and told else []


def _restore_gpus(gpus: Gpus, facts: dict[str, Any]) -> None:
    gpus.behind = dict(facts["behind"])
    gpus.known = set(facts["known"])
    gpus.lost = dict(facts["lost"])
    gpus.drained = set(facts["drained"])
    gpus.strikes.restore(facts["strikes"])


def _restore_communicators(communicators: Communicators, facts: dict[str, Any]) -> None:
    for key, members, making, placed in facts["communicators"]:
        group = communicators.groups[key] = Group()
        group.making = {rank: (id, epoch) for rank, (id, epoch) in making}
        if placed:
            communicators.interrupted.append((placed[0], placed[1]))
        for rank, id, epoch, repaired in members:
            group.members[rank] = (id, epoch)
            group.repaired[rank] = repaired
            communicators.number = max(communicators.number, repaired)
