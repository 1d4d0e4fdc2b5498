"""The recovery part of a channel's control page and the figures of its store.

tests/unit/test_protocol.py compares the offsets with proxy/ring/layout.h and store_layout.h.
"""

from __future__ import annotations

import enum
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyft.agent import untrusted
from pyft.agent.protocol import CONTROL_DISPATCHING_SEQ, CONTROL_HEARTBEAT_NS, CONTROL_PHASE
from pyft.agent.protocol import Phase as Phase

FAULT_TEXT = 560
FAULT_TEXT_BYTES = 208
_FAULT_TEXT = (FAULT_TEXT, f"{FAULT_TEXT_BYTES}s")
# name -> offset and format.
FIELDS = {
    "epoch": (24, "<I"),
    "consumed": (320, "<Q"),
    "heartbeat_ns": (CONTROL_HEARTBEAT_NS, "<Q"),
    "dispatching_seq": (CONTROL_DISPATCHING_SEQ, "<Q"),
    "protect": (512, "<I"),
    "captured_cut": (520, "<Q"),
    "decided_cut": (528, "<Q"),
    "fault_kind": (540, "<I"),
    "fault_code": (544, "<i"),
    "fault_seq": (552, "<Q"),
    "phase": (CONTROL_PHASE, "<I"),
    "replay_mode": (772, "<I"),
    "phase_ns": (776, "<8Q"),
    "restored_bytes": (840, "<Q"),
    "restored_blocks": (848, "<Q"),
    "replayed_entries": (856, "<Q"),
    "compared": (864, "<Q"),
    "differed": (872, "<Q"),
    "differed_seq": (880, "<Q"),
    "unprotected": (888, "<Q"),
    "bounce_writer_waiting": (460, "<I"),
    "callback_asked": (896, "<Q"),
    "callback_done": (960, "<Q"),
    "device_progress": (1024, "<Q"),
    "fences_open": (1032, "<I"),
    "collectives_waiting": (1036, "<I"),
    "ready_modules": (1052, "<I"),
    "peer_bytes": (1056, "<Q"),
    "passed_bytes": (1064, "<Q"),
    "paused_ns": (1072, "<Q"),
    "paused_since": (1080, "<Q"),
    "pauses_version": (1088, "<I"),
    "communicator": (1096, "<Q"),
    "rank": (1104, "<I"),
    "shared": (1108, "<I"),
    "kill_cuts": (1216, "<Q"),
    "kill_entries": (1224, "<Q"),
    "kill_step_entries": (1232, "<Q"),
    "journal_lost": (1248, "<Q"),
    "corrected": (1256, "<Q"),
    "corrected_text": (1264, "<208s"),
}
FAULT_NOTES, FAULT_NOTES_BYTES = 1152, 64
STORE_FIELDS = {
    "captures": 192,
    "cancelled": 256,
    "live_blocks": 264,
    "live_bytes": 272,
    "hashed_bytes": 280,
    "copied_bytes": 288,
    "join_ns": 296,
    "hash_ns": 304,
    "copy_ns": 312,
    "heap_used": 320,
    "heap_backed": 328,
    "block_bytes": 336,
    "mapped_bytes": 344,
    "hidden_bytes": 352,
    "scratch_bytes": 360,
    "cut_every": 368,
    "skipped": 376,
    "unchanged_bytes": 384,
    "cut_ns": 392,
    "later_bytes": 408,
    "later_ns": 416,
    "gate_ns": 424,
    "compared_cuts": 440,
    "unchecked_cuts": 448,
    "kept_ns": 480,
    "elsewhere_bytes": 536,
    "fetched_bytes": 544,
    "shadow_bytes": 560,
    "spilled_bytes": 568,
    "lost_blocks": 576,
    "journal_used": 584,
    "journal_losses": 592,
}
# Written by the agent: name -> offset and format.
STORE_SETTINGS = {
    "seed": (400, "<Q"),
    "compares": (432, "<I"),
    "taken_step": (456, "<Q"),
    "taken_ns": (464, "<Q"),
    "disputed_step": (472, "<Q"),
    "shares_version": (504, "<Q"),
    "shares_rows": (512, "<Q"),
    "shares": (520, "<I"),
}
SHARES_AREA = (488, "<QQ")  # offset, bytes
SHARED_BLOCK = struct.Struct("<QQQ")  # address, bytes, id of the member whose store has it
WINDOW_BASE, WINDOW_BYTES = 0x7000_0000_0000, 1 << 40  # of device 0; the next ones follow
# Written by the server: offset and format.
STORE_DIGEST_KIND = (552, "<I")
TOGETHER = 2  # of `compares`: all ranks of a rollback set have to hold a cut
MANIFEST_BYTES = 64 << 20
_PAGE = 4096


class Shared(enum.IntFlag):
    """Mirror of pyft::ring::Shared."""

    IMPORTS = 1
    EXPORTS = 2


class Protect(enum.IntEnum):
    """Mirror of pyft::ring::Protect."""

    NONE = 0
    CAPTURE = 1


@dataclass(frozen=True)
class ControlState:
    """One look at the control page."""

    epoch: int
    consumed: int
    heartbeat_ns: int
    dispatching_seq: int
    protect: int
    captured_cut: int
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
    bounce_writer_waiting: int
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


def read(control_fd: int) -> ControlState:
    """Return what the control page says now, which the client can write as well."""
    found = untrusted.fields(control_fd, {**FIELDS, "fault_text": _FAULT_TEXT})
    texts = {name: untrusted.text(found[name]) for name in ("fault_text", "corrected_text")}
    return ControlState(**found | texts)


def write(control_fd: int, **values: int | bytes) -> None:
    """Set fields that belong to the agent, or of which no server that could write them is left."""
    for name, value in values.items():
        offset, form = FIELDS[name]
        os.pwrite(control_fd, struct.pack(form, value), offset)


def read_fault_notes(control_fd: int) -> bytes:
    """Return which of the faults that were asked for have happened, a byte for each."""
    return os.pread(control_fd, FAULT_NOTES_BYTES, FAULT_NOTES)


def clear_fault_note(control_fd: int, number: int) -> None:
    """Begin with a fault that has not happened."""
    os.pwrite(control_fd, b"\0", FAULT_NOTES + number)


def prepare_for_next_server(control_fd: int, epoch: int, mode: int) -> None:
    """Reset what the next server reports; the one before is dead."""
    os.pwrite(control_fd, bytes(FAULT_TEXT_BYTES), FAULT_TEXT)
    os.pwrite(control_fd, bytes(64), FIELDS["phase_ns"][0])
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
    write(control_fd, fault_kind=0, fault_code=0, fault_seq=0, heartbeat_ns=time.monotonic_ns())
    write(control_fd, phase=Phase.STARTING, replay_mode=mode, epoch=epoch)


def write_store(store_fd: int, **values: int) -> None:
    """Set what the agent decides about a store."""
    for name, value in values.items():
        offset, form = STORE_SETTINGS[name]
        os.pwrite(store_fd, struct.pack(form, value), offset)


def window_base(device: int) -> int:
    """Return the first address of a device's window."""
    return WINDOW_BASE + device * WINDOW_BYTES


def write_shares(store_fd: int, rows: Sequence[tuple[int, int, int]]) -> None:
    """Say which blocks other stores keep: address, bytes, id of their member. Largest ones first.

    What does not fit into the area is left out. The server may be reading: while it is written the
    version is odd.
    """
    at, form = SHARES_AREA
    area, size = struct.unpack(form, os.pread(store_fd, struct.calcsize(form), at))
    fitting = sorted(rows, key=lambda row: -row[1])[: size // SHARED_BLOCK.size]
    at, form = STORE_SETTINGS["shares_version"]
    (version,) = struct.unpack(form, os.pread(store_fd, struct.calcsize(form), at))
    write_store(store_fd, shares_version=version | 1)
    os.pwrite(store_fd, b"".join(SHARED_BLOCK.pack(*row) for row in fitting), area)
    write_store(store_fd, shares_rows=len(fitting))
    write_store(store_fd, shares_version=(version | 1) + 1)


def read_seed(store_fd: int) -> int:
    """Return the key of a store's digests."""
    return _read_store(store_fd, *STORE_SETTINGS["seed"])


def read_digest_kind(store_fd: int) -> int:
    """Return which digest the blocks of a store have (ring/store_layout.h)."""
    return _read_store(store_fd, *STORE_DIGEST_KIND)


def _read_store(store_fd: int, offset: int, form: str) -> int:
    return struct.unpack(form, os.pread(store_fd, struct.calcsize(form), offset))[0]


def store_figures(store_fd: int) -> dict[str, int]:
    """Return the figures of a store; nothing without one."""
    if store_fd < 0:
        return {}
    page = os.pread(store_fd, _PAGE, 0)
    return {name: struct.unpack_from("<Q", page, at)[0] for name, at in STORE_FIELDS.items()}
