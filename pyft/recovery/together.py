"""What servers and agent say to each other about rollback sets (rollback.py), as messages.

WANT_ID, MADE_AS: the id under which a communicator is made, as the library has it. LINE: the numbers
of one communicator, each followed by HELD for the cut itself. WITHDRAW: that cut cannot wait. PACE,
PACE_OF_OTHERS: how many cuts may lie between two that are captured.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from pyft.recovery.events import Action, Message, Received, Send
from pyft.recovery.rollback import Dropped, Line, MadeAs, Outcome, Paced, RollbackSets, Settled

PAIR = struct.Struct("<QQQ")  # rank in the communicator, messages sent to it, received from it


def line_of(event: Received) -> Line:
    """Return what a LINE says; what is no whole pair at its end is left out."""
    line = Line(event.rank, event.code)
    whole = len(event.payload) // PAIR.size * PAIR.size
    for rank, sent, received in PAIR.iter_unpack(event.payload[:whole]):
        line.sent[rank], line.received[rank] = sent, received
    return line


def heard(sets: RollbackSets, event: Received) -> list[Outcome]:
    """Take a message of a server that works or recovers."""
    if event.kind is Message.WANT_ID:
        return sets.want_id(event.id, event.key, event.rank, event.payload.hex())
    if event.kind is Message.MADE:
        sets.made(event.id, event.key, event.rank)
    elif event.kind is Message.ENDED:
        sets.ended(event.id, event.key)
    elif event.kind is Message.LINE:
        sets.told(event.id, event.key, line_of(event))
    elif event.kind is Message.HELD:
        return sets.came_to(event.id, event.key, event.code if event.rank else 0)
    elif event.kind is Message.WITHDRAW:
        return sets.withdraw(event.id, event.key)
    elif event.kind is Message.PACE:
        return sets.paced(event.id, event.key)
    return []


def orders(outcomes: Iterable[Outcome], epochs: Mapping[int, int]) -> list[Action]:
    """Return what servers are told; one that is gone hears of its line when it is started anew."""
    actions: list[Action] = []
    for outcome in outcomes:
        epoch = epochs.get(outcome.id)
        if epoch is None:
            continue
        if isinstance(outcome, MadeAs):
            id = bytes.fromhex(outcome.made_as)
            actions.append(Send(outcome.id, epoch, Message.MADE_AS, outcome.key, payload=id))
        elif isinstance(outcome, Settled):
            actions.append(Send(outcome.id, epoch, Message.SETTLED, outcome.step, 1))
        elif isinstance(outcome, Dropped):
            actions.append(Send(outcome.id, epoch, Message.DROPPED, outcome.step))
        elif isinstance(outcome, Paced):
            actions.append(Send(outcome.id, epoch, Message.PACE_OF_OTHERS, outcome.cuts))
    return actions
