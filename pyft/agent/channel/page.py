"""The recovery part of a channel's control page and the figures of its store."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyft.agent.channel import untrusted
from pyft.wire import layout
from pyft.wire.layout import CONTROL_PAGE, MANIFEST, SHARED_BLOCK, STORE_HEADER
from pyft.wire.layout import Phase as Phase
from pyft.wire.layout import Protect as Protect
from pyft.wire.layout import Shared as Shared

LOOKS = 4  # at what may change meanwhile
MANIFESTS = STORE_HEADER["manifest_offset"]
TOGETHER = 2  # of `compares`: all ranks of a rollback set have to hold a cut
# Of a store's header: what the server counts, for status and report.
FIGURES = (
    *("snapshots", "cancelled", "live_blocks", "live_bytes", "hashed_bytes", "copied_bytes"),
    *("drain_ns", "hash_ns", "copy_ns", "heap_used", "heap_backed", "block_bytes"),
    *("mapped_bytes", "hidden_bytes", "scratch_bytes", "cut_every", "skipped", "unchanged_bytes"),
    *("cut_ns", "later_bytes", "later_ns", "gate_ns", "compared_cuts", "unchecked_cuts"),
    *("kept_ns", "elsewhere_bytes", "fetched_bytes", "pre_image_bytes", "spilled_bytes"),
    *("lost_blocks", "journal_used", "journal_losses"),
)


@dataclass(frozen=True)
class ControlState:
    """One look at the control page."""

    epoch: int
    consumed: int
    heartbeat_ns: int
    dispatching_seq: int
    protect: int
    snapshot_cut: int
    decided_cut: int
    fault_kind: int
    fault_code: int
    fault_seq: int
    fault_text: str
    phase: int
    replay_mode: int
    phase_ns: tuple[int, ...]
    restored_bytes: int
    restored_blocks: int
    replayed_entries: int
    compared: int
    differed: int
    differed_seq: int
    unprotected: int
    callback_asked: int
    callback_done: int
    device_progress: int
    fences_open: int
    collectives_waiting: int
    ready_modules: int
    peer_bytes: int
    passed_bytes: int
    paused_ns: int
    paused_since: int
    pauses_version: int
    communicator: int
    rank: int
    shared: int
    kill_cuts: int
    kill_entries: int
    kill_step_entries: int
    journal_lost: int
    corrected: int
    corrected_text: str
    steps: int
    held_step: int
    held_cut: int
    held_position: int
    held_ns: int
    went_on_ns: int
    dmr_products: int
    dmr_pairs: int
    dmr_mismatches: int
    dmr_flops: int
    dmr_pair_flops: int
    dmr_opaque: int
    dmr_captured: int
    dmr_forgotten: int
    dmr_digest_ns: int
    audits: int
    audit_entries: int
    audit_bytes: int
    audit_fresh: int
    audit_ranks: int
    audit_auditors: int
    audit_undecided: int
    unaudited_first: int
    unaudited_log: int
    unaudited_spare: int
    unaudited_failed: int
    unaudited_undecided: int
    unaudited_collectives: int
    dmr_again: int
    dmr_covered: int
    dmr_covered_flops: int
    dmr_expired: int
    dmr_no_room: int
    dmr_later: int
    dmr_refused: int
    dmr_kernels: int
    dmr_again_ns: int
    dmr_window_again_ns: int
    dmr_window_ns: int
    dmr_period: int
    dmr_kernels_again: int
    dmr_kernels_order: int
    dmr_kernels_host: int
    dmr_kernels_calls: int
    dmr_kernels_clock: int
    dmr_kernels_waits: int
    dmr_kernels_room: int
    dmr_kernels_later: int
    dmr_kernels_graphs: int


_NAMES = tuple(field.name for field in fields(ControlState))


def read(control_fd: int) -> ControlState:
    """Return what the control page says now, which the client can write as well."""
    found = CONTROL_PAGE.read(untrusted.first_page(control_fd), *_NAMES)
    texts = {name: untrusted.text(found[name]) for name in ("fault_text", "corrected_text")}
    return ControlState(**found | texts)


def read_one(control_fd: int, name: str) -> int:
    """Return one number of the control page."""
    return int(CONTROL_PAGE[name].read(untrusted.first_page(control_fd)))


def write(control_fd: int, **values: int | bytes) -> None:
    """Set fields that belong to the agent, or of which no server that could write them is left."""
    for name, value in values.items():
        field = CONTROL_PAGE[name]
        os.pwrite(control_fd, field.pack(value), field.offset)


def publish(control_fd: int, **counters: int) -> None:
    """Show counters of the agent, as far as their fields can."""
    largest = {name: (1 << 8 * CONTROL_PAGE[name].size) - 1 for name in counters}
    shown = {name: min(max(value, 0), largest[name]) for name, value in counters.items()}
    write(control_fd, **shown)


def read_fault_notes(control_fd: int) -> bytes:
    """Return which of the faults that were asked for have happened, a byte for each."""
    return untrusted.field_of(control_fd, CONTROL_PAGE["fault_notes"])


def clear_fault_note(control_fd: int, number: int) -> None:
    """Begin with a fault that has not happened."""
    os.pwrite(control_fd, b"\0", CONTROL_PAGE["fault_notes"].offset + number)


def prepare_for_next_server(control_fd: int, epoch: int, mode: int) -> None:
    """Reset what the next server reports; the one before is dead."""
    os.pwrite(control_fd, bytes(CONTROL_PAGE["phase_ns"].size), CONTROL_PAGE["phase_ns"].offset)
    counters = ("restored_bytes", "restored_blocks", "replayed_entries", "compared", "differed")
    write(control_fd, **dict.fromkeys(counters, 0), differed_seq=0)
    write(
        control_fd,
        peer_bytes=0,
        passed_bytes=0,
        corrected=0,
        corrected_text=b"",
        ready_modules=0,
        device_progress=0,
        fences_open=0,
        collectives_waiting=0,
    )
    write(control_fd, fault_text=b"")
    write(control_fd, fault_kind=0, fault_code=0, fault_seq=0, heartbeat_ns=time.monotonic_ns())
    write(control_fd, phase=Phase.STARTING, replay_mode=mode, epoch=epoch)


def prepare_for_restore(control_fd: int, until_ns: int) -> None:
    """Have a client that comes back wait until the agent releases it, and take no server for dead."""
    write(control_fd, heartbeat_ns=time.monotonic_ns(), hold_until_ns=until_ns)
    write(control_fd, status=layout.ChannelStatus.RECOVERING)


def write_store(store_fd: int, **values: int) -> None:
    """Set what the agent decides about a store."""
    for name, value in values.items():
        field = STORE_HEADER[name]
        os.pwrite(store_fd, field.pack(value), field.offset)


def window_base(device: int) -> int:
    """Return the first address of a device's window."""
    return layout.DEVICE_WINDOW_BASE + device * layout.DEVICE_WINDOW_BYTES


def write_shares(store_fd: int, rows: Sequence[tuple[int, int, int]]) -> None:
    """Say which blocks other stores keep: address, bytes, id of their member. Largest ones first.

    What does not fit into the area is left out; where that is a server says. The server may be
    reading: while it is written the version is odd.
    """
    area, size = _read_store(store_fd, "shares_offset"), _read_store(store_fd, "shares_bytes")
    if not untrusted.lies_in(store_fd, area, size):
        return
    fitting = sorted(rows, key=lambda row: -row[1])[: size // SHARED_BLOCK.size]
    packed = [SHARED_BLOCK.pack(address=row[0], bytes=row[1], owner=row[2]) for row in fitting]
    largest = (1 << 8 * STORE_HEADER["shares_version"].size) - 1
    version = _read_store(store_fd, "shares_version")
    write_store(store_fd, shares_version=version | 1)
    os.pwrite(store_fd, b"".join(packed), area)
    write_store(store_fd, shares_rows=len(fitting))
    write_store(store_fd, shares_version=(version | 1) + 1 & largest)


def read_seed(store_fd: int) -> int:
    """Return the key of a store's digests."""
    return _read_store(store_fd, "seed")


def read_digest_kind(store_fd: int) -> int:
    """Return which digest the blocks of a store have (ring/store_layout.h)."""
    return _read_store(store_fd, "digest_kind")


def _read_store(store_fd: int, name: str) -> int:
    field = STORE_HEADER[name]
    return field.unpack(untrusted.field_of(store_fd, field))


def snapshot_position(store_fd: int) -> int:
    """Return where in the ring a replay begins, 0 without a snapshot. A server may just change it."""
    head, current = b"", 0
    for _ in range(LOOKS):
        current = _read_store(store_fd, "current") if store_fd >= 0 else 0
        if current not in (1, 2):
            return 0
        offsets = MANIFESTS.unpack(untrusted.field_of(store_fd, MANIFESTS))
        head = untrusted.bytes_at(store_fd, MANIFEST.size, offsets[current - 1])
        if _read_store(store_fd, "current") == current:
            break
    return MANIFEST.unpack(head).position if len(head) == MANIFEST.size else 0


def store_figures(store_fd: int) -> dict[str, int]:
    """Return the figures of a store; nothing without one."""
    if store_fd < 0:
        return {}
    return STORE_HEADER.read(untrusted.first_page(store_fd), *FIGURES)
