"""pyft/agent/protocol.py against the C++ headers, by way of the compiler."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from pyft.agent import channel, clients, comparison, page, protocol, untrusted
from pyft.errors import AttachError
from pyft.recovery import classify, events

ROOT = Path(__file__).resolve().parents[2]
ENUMS = {
    page.Phase: "Phase",
    page.Protect: "Protect",
    page.Shared: "Shared",
    events.Mode: "ReplayMode",
    events.Message: "MessageKind",
}
PROGRAM = r"""
#include <cstddef>
#include <cstdio>
#include "ring/attach.h"
#include "ring/layout.h"
#include "ring/store_layout.h"
using namespace pyft::ring;
#define SHOW(name, value) std::printf("%s %llu\n", name, (unsigned long long)(value))
int main() {
  SHOW("request_bytes", sizeof(AttachRequest));
  SHOW("reply_bytes", sizeof(AttachReply));
  SHOW("reply_text", offsetof(AttachReply, text));
  SHOW("reply_log_bytes", offsetof(AttachReply, log_bytes));
  SHOW("attach_magic", kAttachMagic);
  SHOW("attach_version", kAttachVersion);
  SHOW("environment_bytes", kMaxEnvironmentBytes);
  SHOW("log_magic", kLogMagic);
  SHOW("control_magic", kControlMagic);
  SHOW("layout_version", kLayoutVersion);
  SHOW("goodbye_bytes", sizeof(EntryHeader) + (sizeof(GateMark) + 15) / 16 * 16);
  SHOW("goodbye", Mark::kGoodbye);
  SHOW("STARTING", ChannelStatus::kStarting);
  SHOW("SERVING", ChannelStatus::kServing);
  SHOW("SERVER_DEAD", ChannelStatus::kServerDead);
  SHOW("AGENT_ENDING", ChannelStatus::kAgentEnding);
  SHOW("CLIENT_GONE", ChannelStatus::kClientGone);
  SHOW("RECOVERING", ChannelStatus::kRecovering);
  SHOW("message_bytes", sizeof(ServerMessage));
  SHOW("message_magic", kMessageMagic);
  SHOW("status", offsetof(ControlPage, status));
  SHOW("status_futex", offsetof(ControlPage, status_futex));
  SHOW("status_text", offsetof(ControlPage, status_text));
  SHOW("dispatching_seq", offsetof(ControlPage, dispatching_seq));
  SHOW("completion_offset", offsetof(ControlPage, completion_offset));
  SHOW("reply_offset", offsetof(ControlPage, reply_offset));
  SHOW("page", kPageBytes);
  SHOW("words_at", kPageBytes + kReplySlots * sizeof(ReplySlot));
  SHOW("consumed", offsetof(ControlPage, consumed));
  SHOW("sticky_error", offsetof(ControlPage, sticky_error));
  SHOW("heartbeat_ns", offsetof(ControlPage, heartbeat_ns));
  SHOW("completion_words", kCompletionWords);
  SHOW("completion_word_bytes", sizeof(CompletionWord));
  SHOW("word_waiters", offsetof(CompletionWord, waiters));
  SHOW("counters_offset", kCallCountersOffset);
  SHOW("counters", kCallCounters);
  SHOW("fault_text", offsetof(ControlPage, fault_text));
  SHOW("fault_text_bytes", sizeof(ControlPage::fault_text));
  SHOW("corrected_text_bytes", sizeof(ControlPage::corrected_text));
  SHOW("phase_ns_bytes", sizeof(ControlPage::phase_ns));
  SHOW("exit.fault", kFaultExit);
  SHOW("exit.unrecoverable", kUnrecoverableExit);
  SHOW("exit.diverged", kDivergedExit);
  SHOW("digest_kind", offsetof(StoreHeader, digest_kind));
  SHOW("digest_kind_bytes", sizeof(StoreHeader::digest_kind));
  SHOW("manifest", sizeof(Manifest));
  SHOW("manifest.blocks", offsetof(Manifest, blocks));
  SHOW("manifest_bytes", kManifestBytes);
  SHOW("block", sizeof(ManifestBlock));
  SHOW("block.digest", offsetof(ManifestBlock, digest));
  SHOW("elsewhere", kElsewhere);
  SHOW("shares_area", offsetof(StoreHeader, shares_offset));
  SHOW("shared_block", sizeof(SharedBlock));
  SHOW("shared_block.owner", offsetof(SharedBlock, owner));
  SHOW("window", kDeviceWindowBase);
  SHOW("pinned_stride", kPinnedStride);
  SHOW("window_bytes", kDeviceWindowBytes);
  @ENUMS@
  @LOG_FIELDS@
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("protocol")
    shows = [f'SHOW("log.{name}", offsetof(LogHeader, {name}));' for name in protocol.LOG_FIELDS]
    shows += [f'SHOW("control.{n}", offsetof(ControlPage, {n}));' for n in page.FIELDS]
    stores = (*page.STORE_FIELDS, *page.STORE_SETTINGS)
    shows += [f'SHOW("store.{n}", offsetof(StoreHeader, {n}));' for n in stores]
    enums = [
        f'SHOW("{ours.__name__}.{value.name}", {theirs}::k{value.name.title().replace("_", "")});'
        for ours, theirs in ENUMS.items()
        for value in ours
    ]
    source = folder / "show.cc"
    text = PROGRAM.replace("@LOG_FIELDS@", "\n  ".join(shows))
    source.write_text(text.replace("@ENUMS@", "\n  ".join(enums)))
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    flags = ["-std=c++20", "-Wno-invalid-offsetof", f"-I{ROOT / 'proxy'}"]
    flags.append(f"-I{ROOT / 'proxy' / 'include'}")
    subprocess.run([compiler, *flags, str(source), "-o", str(folder / "show")], check=True)
    output = subprocess.check_output([str(folder / "show")], text=True)
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_messages_match_the_header(header: dict[str, int]) -> None:
    assert protocol.REQUEST.size == header["request_bytes"]
    assert protocol.REPLY.size == header["reply_bytes"]
    assert header["attach_magic"] == protocol.ATTACH_MAGIC
    assert protocol.MESSAGE.size == header["message_bytes"]
    assert header["message_magic"] == protocol.MESSAGE_MAGIC
    assert header["attach_version"] == protocol.ATTACH_VERSION
    assert header["environment_bytes"] == protocol.MAX_ENVIRONMENT_BYTES
    refusal = protocol.pack_refusal(12, "no memory")
    assert refusal[header["reply_text"] :].startswith(b"no memory\0")
    reply = protocol.pack_reply(0, 1, 2, 3, protocol.Sizes(77, 0, 0, 0))
    assert reply[header["reply_log_bytes"]] == 77


def test_shared_memory_matches_the_header(header: dict[str, int]) -> None:
    assert header["log_magic"] == protocol.LOG_MAGIC
    assert header["control_magic"] == protocol.CONTROL_MAGIC
    assert header["layout_version"] == protocol.LAYOUT_VERSION
    assert header["status"] == protocol.CONTROL_STATUS
    assert header["status_futex"] == protocol.CONTROL_STATUS_FUTEX
    assert (header["reply_offset"], header["completion_offset"]) == (8, 16)
    assert struct.unpack("<QQ", protocol.CONTROL_PARTS) == (header["page"], header["words_at"])
    assert header["words_at"] == protocol.COMPLETION_WORDS_OFFSET
    assert header["consumed"] == protocol.CONTROL_CONSUMED
    assert header["sticky_error"] == protocol.CONTROL_STICKY_ERROR
    assert header["heartbeat_ns"] == protocol.CONTROL_HEARTBEAT_NS
    assert header["completion_words"] == protocol.COMPLETION_WORDS
    assert header["completion_word_bytes"] == protocol.COMPLETION_WORD.size
    assert header["word_waiters"] == 20  # the fourth field of COMPLETION_WORD
    assert header["counters_offset"] == protocol.CALL_COUNTERS_OFFSET
    assert header["counters"] == protocol.CALL_COUNTERS
    assert header["status_text"] == protocol.CONTROL_STATUS_TEXT
    assert header["dispatching_seq"] == protocol.CONTROL_DISPATCHING_SEQ
    assert header["goodbye"] == untrusted.GOODBYE
    assert header["goodbye_bytes"] == untrusted.GOODBYE_BYTES
    for name, offset in protocol.LOG_FIELDS.items():
        assert header[f"log.{name}"] == offset, name
    for status in protocol.ChannelStatus:
        assert header[status.name] == status


def test_recovery_part_matches_the_header(header: dict[str, int]) -> None:
    for name, (offset, form) in page.FIELDS.items():
        assert header[f"control.{name}"] == offset, name
        size = header.get(f"{name}_bytes")
        assert struct.calcsize(form) in ((size,) if size else (4, 8)), name
    for name, offset in page.STORE_FIELDS.items():
        assert header[f"store.{name}"] == offset, name
    for ours in ENUMS:
        for value in ours:
            assert header[f"{ours.__name__}.{value.name}"] == value
    assert header["fault_text"] == page.FAULT_TEXT
    assert header["fault_text_bytes"] == page.FAULT_TEXT_BYTES
    assert header["exit.fault"] == classify.FAULT_EXIT
    assert header["exit.unrecoverable"] == classify.UNRECOVERABLE_EXIT
    assert header["exit.diverged"] == classify.DIVERGED_EXIT


def test_tables_of_cuts_match_the_header(header: dict[str, int]) -> None:
    for name, (offset, _) in page.STORE_SETTINGS.items():
        assert header[f"store.{name}"] == offset, name
    offset, form = page.STORE_DIGEST_KIND
    assert (header["digest_kind"], header["digest_kind_bytes"]) == (offset, struct.calcsize(form))
    assert header["manifest_bytes"] == page.MANIFEST_BYTES
    assert header["manifest"] == comparison.MANIFEST.size
    assert header["manifest.blocks"] == 3 * 8
    assert header["block"] == comparison.BLOCK.size
    assert header["block.digest"] == 2 * 8
    assert header["elsewhere"] == comparison.ELSEWHERE
    assert header["shares_area"] == page.SHARES_AREA[0]
    assert header["shared_block"] == page.SHARED_BLOCK.size
    assert header["shared_block.owner"] == 2 * 8
    assert header["window"] == page.WINDOW_BASE
    assert header["window_bytes"] == page.WINDOW_BYTES
    assert header["pinned_stride"] == channel.MOST_PINNED_GB << 30


def test_messages_of_servers() -> None:
    data = protocol.pack_message(2, 1 << 63, 3, (1 << 64) - 1, b"payload")
    assert protocol.unpack_message(data) == (2, 1 << 63, 3, (1 << 64) - 1, b"payload")
    for damaged in (b"", data[:39], data[:-1], b"x" + data[1:], data + b"x"):
        with pytest.raises(ValueError, match="server's message"):
            protocol.unpack_message(damaged)


def request(environment: bytes = b"A=1\0B=x=y\0", **changes: int) -> bytes:
    fields = {
        "magic": protocol.ATTACH_MAGIC,
        "version": protocol.ATTACH_VERSION,
        "pid": 5,
        "device": 0,
    }
    fields |= {"size": len(environment), "reserved": 0} | changes
    return protocol.REQUEST.pack(*fields.values()) + environment


def test_request_is_parsed() -> None:
    parsed = protocol.AttachRequest.parse(request())
    assert (parsed.pid, parsed.device) == (5, 0)
    assert parsed.environment == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    "message",
    [b"", b"x" * 23, request(magic=1), request(version=1), request(size=3), request(size=1 << 31)],
)
def test_damaged_request_is_refused(message: bytes) -> None:
    with pytest.raises(AttachError):
        protocol.AttachRequest.parse(message)


def test_a_kernel_without_pidfds_is_named_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", missing)
    with pytest.raises(AttachError, match=r"\[pidfd_open\] of \[pid 7\] fails with \[Function not"):
        clients._pidfd(7)
