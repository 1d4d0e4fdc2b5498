"""Where a client is when an image is wanted: its cut, its rank's place in communicators."""

from __future__ import annotations

from pyft._native import NativeError
from pyft.agent.channel import page
from pyft.agent.lifecycle import collectives
from pyft.agent.members.member import Member
from pyft.recovery.images import ClientState
from pyft.recovery.line import ENDED, NOT_MADE
from pyft.recovery.rank import Rank, State
from pyft.recovery.rollback import RollbackSets
from pyft.trace.reader import TraceReader


def client_state_of(member: Member, rank: Rank | None, sets: RollbackSets | None) -> ClientState:
    """Return what pyft.recovery.images decides by."""
    state = page.read(member.channel.control_fd)
    works = rank is not None and rank.state is State.RUNNING and state.phase == page.Phase.LIVE
    return ClientState(
        member.id,
        state.steps,
        state.held_step,
        state.held_cut,
        sets.line(member.id) if sets else state.snapshot_cut,
        member.drained(),
        _behind_cut(member, state.held_position) if state.held_step else "",
        works,
        _rows_of(sets, member.id) if sets and state.held_step else (),
        member.channel.rank,
        signs=_signs_of(member, state),
        seen_at=state.heartbeat_ns / 1e9,
    )


def stands(member: Member) -> bool:
    """Say whether only others can move a rank: it is held and its device rests, or it waits.

    That takes a while to see.
    """
    state = page.read(member.channel.control_fd)
    if not state.device_progress or state.callback_asked != state.callback_done:
        return False
    if not state.held_step:
        return collectives.waits_for_others(member, state)
    rests = member.drained() and not state.fences_open
    return rests or state.collectives_waiting > 0


def _signs_of(member: Member, state: page.ControlState) -> tuple[int, ...]:
    done = (state.device_progress, state.consumed, state.dispatching_seq, state.fences_open)
    return (member.id, state.steps, state.held_step, *done, state.passed_bytes, state.decided_cut)


def _behind_cut(member: Member, position: int) -> str:
    """Return what a client has written behind its cut that involves other ranks, or may have."""
    if member.channel.header()["appended"] <= position:
        return ""
    try:
        with TraceReader(member.channel.log_fd) as trace:
            for entry in trace.entries():
                if entry.position >= position and entry.call.startswith("nccl"):
                    return entry.call
    except (NativeError, OSError, ValueError):
        return "its log cannot be read"
    return ""


def _rows_of(sets: RollbackSets, id: int) -> tuple[tuple[int, int, int, int, int], ...]:
    """Return where a rank is in its communicators: key, rank, peer, sent, received."""
    rows = []
    for key, line in (sets.ranks[id].at if id in sets.ranks else {}).items():
        if line.collectives not in (NOT_MADE, ENDED):
            rows.append((key, line.rank, -1, line.collectives, line.collectives))
        for peer in line.sent.keys() | line.received.keys():
            counts = (line.sent.get(peer, 0), line.received.get(peer, 0))
            rows.append((key, line.rank, peer, *counts))
    return tuple(rows)
