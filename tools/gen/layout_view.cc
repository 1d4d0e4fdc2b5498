// Prints pyft/wire/layout.py: what Python knows of shared memory. Offsets,
// sizes and types are the compiler's; here stands only what Python looks at. See gen_layout.py.
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "flexccl.h"
#include "ring/attach.h"
#include "ring/kernel_counters.h"
#include "ring/layout.h"
#include "ring/store_layout.h"

// NOLINTBEGIN: a program of one file
using namespace pyft::ring;

namespace {

template <typename T>
struct Form {
  static std::string of() {
    if constexpr (std::is_enum_v<T>)
      return Form<std::underlying_type_t<T>>::of();
    else if constexpr (std::is_same_v<T, Digest>)
      return std::to_string(sizeof(T)) + "s";
    else if constexpr (sizeof(T) == 8)
      return std::is_signed_v<T> ? "q" : "Q";
    else if constexpr (sizeof(T) == 4)
      return std::is_signed_v<T> ? "i" : "I";
    else if constexpr (sizeof(T) == 2)
      return std::is_signed_v<T> ? "h" : "H";
    else
      return "B";
  }
};
template <typename T>
struct Form<std::atomic<T>> : Form<T> {};
template <typename T, std::size_t N>
struct Form<T[N]> {
  static std::string of() {
    const bool bytes = sizeof(T) == 1;
    return std::to_string(N) + (bytes ? "s" : Form<T>::of());
  }
};

// kServerDead as SERVER_DEAD.
std::string constant_name(const std::string& name) {
  std::string out;
  for (std::size_t i = 1; i < name.size(); ++i) {
    const char letter = name[i];
    const bool upper = letter >= 'A' && letter <= 'Z';
    if (upper && i > 1) out += '_';
    out += upper || letter < 'a' ? letter : static_cast<char>(letter - 'a' + 'A');
  }
  return out;
}

std::string view_name(const std::string& name) {
  return constant_name("k" + name);
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::string name;
  for (const char letter : list + ",")
    if (letter == ',')
      names.push_back(std::exchange(name, ""));
    else if (letter != ' ')
      name += letter;
  return names;
}

template <typename T>
unsigned long long number(T value) {
  return static_cast<unsigned long long>(value);
}

template <typename... T>
void values(const char* type, const char* base, const std::string& list, T... numbers) {
  std::printf("\n\nclass %s(enum.%s):\n    \"\"\"pyft::ring::%s.\"\"\"\n\n", type, base, type);
  const unsigned long long all[] = {number(numbers)...};
  const unsigned long long* next = all;
  for (const std::string& name : names_in(list))
    std::printf("    %s = %llu\n", constant_name(name).c_str(), *next++);
}

#define VALUES(type, base, ...)                     \
  {                                                 \
    using enum type;                                \
    values(#type, base, #__VA_ARGS__, __VA_ARGS__); \
  }
#define CONSTANT(name) std::printf("%s = %llu\n", constant_name(#name).c_str(), number(name))
#define BEGIN(type) \
  std::printf("\n%s = View(\n    %zu,\n    {\n", view_name(#type).c_str(), sizeof(type))
#define FIELD(type, name)                                                           \
  std::printf("        \"%s\": Field(%zu, \"%s\"),\n", #name, offsetof(type, name), \
              Form<std::remove_cv_t<decltype(type::name)>>::of().c_str())
// Of what lies further behind in the same memory.
#define FIELD_AT(at, type, name)                                                         \
  std::printf("        \"%s\": Field(%zu, \"%s\"),\n", #name, at + offsetof(type, name), \
              Form<std::remove_cv_t<decltype(type::name)>>::of().c_str())
#define END std::printf("    },\n)\n")

void constants() {
  CONSTANT(kAttachMagic);
  CONSTANT(kAttachVersion);
  CONSTANT(kMaxEnvironmentBytes);
  CONSTANT(kLogMagic);
  CONSTANT(kControlMagic);
  CONSTANT(kLayoutVersion);
  CONSTANT(kPageBytes);
  CONSTANT(kNoSlot);
  CONSTANT(kCompletionWords);
  CONSTANT(kDeviceWindowBase);
  CONSTANT(kDeviceWindowBytes);
  CONSTANT(kPinnedWindowBase);
  CONSTANT(kPinnedStride);
  CONSTANT(kManifestBytes);
  CONSTANT(kElsewhere);
  CONSTANT(kAttachExit);
  CONSTANT(kBackendExit);
  CONSTANT(kProtocolExit);
  CONSTANT(kStoreExit);
  CONSTANT(kFaultExit);
  CONSTANT(kUnrecoverableExit);
  CONSTANT(kDivergedExit);
  CONSTANT(kSelfTestExit);
  CONSTANT(kNoPlaceExit);
  CONSTANT(kMismatchExit);
  CONSTANT(kMismatchSpreadExit);
  const auto aligned = (sizeof(GateMark) + kEntryAlign - 1) / kEntryAlign * kEntryAlign;
  std::printf("GOODBYE_BYTES = %zu\n", sizeof(EntryHeader) + aligned);
  std::printf("FLEXCCL_REGION_MAGIC = %llu\n", number(FLEXCCL_REGION_MAGIC));
  std::printf("CALL_COUNTS = Field(%llu, \"%lluQ\")\n", number(kCallCountersOffset),
              number(kCallCounters));
  std::printf("REPLY_SLOTS_OFFSET = %llu\n", number(kPageBytes));
  std::printf("COMPLETION_WORDS_OFFSET = %llu\n",
              number(kPageBytes + kReplySlots * sizeof(ReplySlot)));
}

void enums() {
  VALUES(ChannelStatus, "IntEnum", kStarting, kServing, kServerDead, kAgentEnding, kClientGone,
         kRecovering)
  VALUES(FaultKind, "IntEnum", kNone, kDevice, kUnrecoverable, kDiverged, kUndecided, kMismatch,
         kMismatchSpread)
  VALUES(Phase, "IntEnum", kLive, kStarting, kObjects, kRestore, kCommunicators, kReplay)
  VALUES(Protect, "IntEnum", kNone, kSnapshot)
  VALUES(Mark, "IntEnum", kPad, kAlloc, kFree, kObserved, kGate, kCut, kFence, kGoodbye)
  VALUES(Shared, "IntFlag", kImports, kExports)
  VALUES(ReplayMode, "IntEnum", kNormal, kSerial, kDeliver)
  VALUES(EntryFlags, "IntFlag", kWantsReply, kHasPayload, kCreates, kDestroys, kFoldedDead,
         kStreamCaptured, kProfiled, kRefused)
}

void attach() {
  BEGIN(AttachRequest);
  FIELD(AttachRequest, magic);
  FIELD(AttachRequest, version);
  FIELD(AttachRequest, pid);
  FIELD(AttachRequest, device);
  FIELD(AttachRequest, environment_bytes);
  FIELD(AttachRequest, reserved);
  END;
  BEGIN(AttachReply);
  FIELD(AttachReply, magic);
  FIELD(AttachReply, version);
  FIELD(AttachReply, error);
  FIELD(AttachReply, device);
  FIELD(AttachReply, client_pid);
  FIELD(AttachReply, server_pid);
  FIELD(AttachReply, epoch);
  FIELD(AttachReply, reserved);
  FIELD(AttachReply, log_bytes);
  FIELD(AttachReply, control_bytes);
  FIELD(AttachReply, bounce_bytes);
  FIELD(AttachReply, pinned_bytes);
  FIELD(AttachReply, store_bytes);
  FIELD(AttachReply, text);
  END;
}

void log() {
  BEGIN(LogHeader);
  FIELD(LogHeader, magic);
  FIELD(LogHeader, version);
  FIELD(LogHeader, ring_offset);
  FIELD(LogHeader, ring_bytes);
  FIELD(LogHeader, object_log_offset);
  FIELD(LogHeader, object_log_bytes);
  FIELD(LogHeader, arena_offset);
  FIELD(LogHeader, arena_bytes);
  FIELD(LogHeader, appended);
  FIELD(LogHeader, committed);
  FIELD(LogHeader, arena_head);
  FIELD(LogHeader, arena_committed);
  FIELD(LogHeader, object_log_used);
  FIELD(LogHeader, next_seq);
  FIELD(LogHeader, cuts);
  FIELD(LogHeader, oldest);
  FIELD(LogHeader, object_log_begin);
  FIELD(LogHeader, object_log_lost);
  FIELD(LogHeader, entries_total);
  FIELD(LogHeader, forced_cuts);
  FIELD(LogHeader, local_calls);
  FIELD(LogHeader, space_waits);
  FIELD(LogHeader, unreplayable_from);
  FIELD(LogHeader, objects_missing);
  END;
}

// In sections, as the header has them.
void control_channel() {
  FIELD(ControlPage, magic);
  FIELD(ControlPage, version);
  FIELD(ControlPage, reply_offset);
  FIELD(ControlPage, completion_offset);
  FIELD(ControlPage, epoch);
  FIELD(ControlPage, status);
  FIELD(ControlPage, status_futex);
  FIELD(ControlPage, status_text);
  FIELD(ControlPage, consumed);
  FIELD(ControlPage, sticky_error);
  FIELD(ControlPage, heartbeat_ns);
  FIELD(ControlPage, dispatching_seq);
}

void control_recovery() {
  FIELD(ControlPage, protect);
  FIELD(ControlPage, snapshot_cut);
  FIELD(ControlPage, decided_cut);
  FIELD(ControlPage, fault_kind);
  FIELD(ControlPage, fault_code);
  FIELD(ControlPage, fault_seq);
  FIELD(ControlPage, fault_text);
  FIELD(ControlPage, phase);
  FIELD(ControlPage, replay_mode);
  FIELD(ControlPage, phase_ns);
  FIELD(ControlPage, restored_bytes);
  FIELD(ControlPage, restored_blocks);
  FIELD(ControlPage, replayed_entries);
  FIELD(ControlPage, compared);
  FIELD(ControlPage, differed);
  FIELD(ControlPage, differed_seq);
  FIELD(ControlPage, unprotected);
}

void control_device() {
  FIELD(ControlPage, callback_asked);
  FIELD(ControlPage, callback_done);
  FIELD(ControlPage, device_progress);
  FIELD(ControlPage, fences_open);
  FIELD(ControlPage, collectives_waiting);
  FIELD(ControlPage, ready_modules);
  FIELD(ControlPage, peer_bytes);
  FIELD(ControlPage, passed_bytes);
}

void control_job() {
  FIELD(ControlPage, paused_ns);
  FIELD(ControlPage, paused_since);
  FIELD(ControlPage, pauses_version);
  FIELD(ControlPage, communicator);
  FIELD(ControlPage, rank);
  FIELD(ControlPage, shared);
}

void control_faults() {
  FIELD(ControlPage, fault_notes);
  FIELD(ControlPage, kill_cuts);
  FIELD(ControlPage, kill_entries);
  FIELD(ControlPage, kill_step_entries);
  FIELD(ControlPage, journal_lost);
  FIELD(ControlPage, corrected);
  FIELD(ControlPage, corrected_text);
}

void control_holds() {
  FIELD(ControlPage, hold_step);
  FIELD(ControlPage, hold_until_ns);
  FIELD(ControlPage, hold_futex);
  FIELD(ControlPage, steps);
  FIELD(ControlPage, held_step);
  FIELD(ControlPage, held_cut);
  FIELD(ControlPage, held_position);
  FIELD(ControlPage, held_ns);
  FIELD(ControlPage, went_on_ns);
}

void control_redundancy() {
  FIELD(ControlPage, dmr_products);
  FIELD(ControlPage, dmr_pairs);
  FIELD(ControlPage, dmr_mismatches);
  FIELD(ControlPage, dmr_flops);
  FIELD(ControlPage, dmr_pair_flops);
  FIELD(ControlPage, dmr_opaque);
  FIELD(ControlPage, dmr_captured);
  FIELD(ControlPage, dmr_forgotten);
  FIELD(ControlPage, dmr_digest_ns);
}

void control_audits() {
  FIELD(ControlPage, audits);
  FIELD(ControlPage, audit_entries);
  FIELD(ControlPage, audit_bytes);
  FIELD(ControlPage, audit_fresh);
  FIELD(ControlPage, audit_ranks);
  FIELD(ControlPage, audit_auditors);
  FIELD(ControlPage, audit_undecided);
  FIELD(ControlPage, unaudited_first);
  FIELD(ControlPage, unaudited_log);
  FIELD(ControlPage, unaudited_spare);
  FIELD(ControlPage, unaudited_failed);
  FIELD(ControlPage, unaudited_undecided);
  FIELD(ControlPage, unaudited_collectives);
}

void control_second() {
  FIELD(ControlPage, dmr_again);
  FIELD(ControlPage, dmr_covered);
  FIELD(ControlPage, dmr_covered_flops);
  FIELD(ControlPage, dmr_expired);
  FIELD(ControlPage, dmr_no_room);
  FIELD(ControlPage, dmr_later);
  FIELD(ControlPage, dmr_refused);
  FIELD(ControlPage, dmr_kernels);
  FIELD(ControlPage, dmr_again_ns);
  FIELD(ControlPage, dmr_window_again_ns);
  FIELD(ControlPage, dmr_window_ns);
  FIELD(ControlPage, dmr_period);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_again);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_order);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_host);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_calls);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_clock);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_waits);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_room);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_later);
  FIELD_AT(kKernelCountersAt, KernelCounters, dmr_kernels_graphs);
}

void control() {
  BEGIN(ControlPage);
  control_channel();
  control_recovery();
  control_device();
  control_job();
  control_faults();
  control_holds();
  control_redundancy();
  control_audits();
  control_second();
  END;
}

void store() {
  BEGIN(StoreHeader);
  FIELD(StoreHeader, manifest_offset);
  FIELD(StoreHeader, current);
  FIELD(StoreHeader, snapshots);
  FIELD(StoreHeader, cancelled);
  FIELD(StoreHeader, live_blocks);
  FIELD(StoreHeader, live_bytes);
  FIELD(StoreHeader, hashed_bytes);
  FIELD(StoreHeader, copied_bytes);
  FIELD(StoreHeader, drain_ns);
  FIELD(StoreHeader, hash_ns);
  FIELD(StoreHeader, copy_ns);
  FIELD(StoreHeader, heap_used);
  FIELD(StoreHeader, heap_backed);
  FIELD(StoreHeader, block_bytes);
  FIELD(StoreHeader, mapped_bytes);
  FIELD(StoreHeader, hidden_bytes);
  FIELD(StoreHeader, scratch_bytes);
  FIELD(StoreHeader, cut_every);
  FIELD(StoreHeader, skipped);
  FIELD(StoreHeader, unchanged_bytes);
  FIELD(StoreHeader, cut_ns);
  FIELD(StoreHeader, seed);
  FIELD(StoreHeader, later_bytes);
  FIELD(StoreHeader, later_ns);
  FIELD(StoreHeader, gate_ns);
  FIELD(StoreHeader, compares);
  FIELD(StoreHeader, compared_cuts);
  FIELD(StoreHeader, unchecked_cuts);
  FIELD(StoreHeader, taken_step);
  FIELD(StoreHeader, taken_ns);
  FIELD(StoreHeader, disputed_step);
  FIELD(StoreHeader, kept_ns);
  FIELD(StoreHeader, shares_offset);
  FIELD(StoreHeader, shares_bytes);
  FIELD(StoreHeader, shares_version);
  FIELD(StoreHeader, shares_rows);
  FIELD(StoreHeader, shares);
  FIELD(StoreHeader, elsewhere_bytes);
  FIELD(StoreHeader, fetched_bytes);
  FIELD(StoreHeader, digest_kind);
  FIELD(StoreHeader, pre_image_bytes);
  FIELD(StoreHeader, spilled_bytes);
  FIELD(StoreHeader, lost_blocks);
  FIELD(StoreHeader, journal_used);
  FIELD(StoreHeader, journal_losses);
  END;
}

void records() {
  BEGIN(EntryHeader);
  FIELD(EntryHeader, size);
  FIELD(EntryHeader, call);
  FIELD(EntryHeader, flags);
  FIELD(EntryHeader, seq);
  FIELD(EntryHeader, thread);
  FIELD(EntryHeader, reply_slot);
  FIELD(EntryHeader, payload_position);
  FIELD(EntryHeader, payload_bytes);
  FIELD(EntryHeader, time_ns);
  END;
  BEGIN(CompletionWord);
  FIELD(CompletionWord, value);
  FIELD(CompletionWord, time_ns);
  FIELD(CompletionWord, futex);
  FIELD(CompletionWord, waiters);
  END;
  BEGIN(Manifest);
  FIELD(Manifest, cut);
  FIELD(Manifest, seq);
  FIELD(Manifest, position);
  FIELD(Manifest, blocks);
  FIELD(Manifest, places);
  FIELD(Manifest, bytes);
  FIELD(Manifest, step);
  FIELD(Manifest, checksum);
  END;
  BEGIN(ManifestBlock);
  FIELD(ManifestBlock, address);
  FIELD(ManifestBlock, bytes);
  FIELD(ManifestBlock, digest);
  FIELD(ManifestBlock, heap_offset);
  FIELD(ManifestBlock, since);
  END;
  BEGIN(AllocMark);
  FIELD(AllocMark, address);
  FIELD(AllocMark, requested_bytes);
  END;
  BEGIN(CutMark);
  FIELD(CutMark, number);
  FIELD(CutMark, arena_head);
  FIELD(CutMark, object_log_used);
  FIELD(CutMark, forced);
  FIELD(CutMark, passed_over);
  FIELD(CutMark, scope_us);
  FIELD(CutMark, step);
  END;
  BEGIN(ObservedMark);
  FIELD(ObservedMark, word);
  FIELD(ObservedMark, kind);
  FIELD(ObservedMark, value);
  END;
  BEGIN(FenceMark);
  FIELD(FenceMark, stream);
  FIELD(FenceMark, word);
  FIELD(FenceMark, reserved);
  FIELD(FenceMark, value);
  END;
  BEGIN(SharedBlock);
  FIELD(SharedBlock, address);
  FIELD(SharedBlock, bytes);
  FIELD(SharedBlock, owner);
  END;
  BEGIN(PairCounters);
  FIELD(PairCounters, rank);
  FIELD(PairCounters, sent);
  FIELD(PairCounters, received);
  END;
}

using FlexcclRegion = flexcclRegion_t;

void region() {
  BEGIN(FlexcclRegion);
  FIELD(FlexcclRegion, magic);
  FIELD(FlexcclRegion, bytes);
  FIELD(FlexcclRegion, comm);
  FIELD(FlexcclRegion, parent);
  FIELD(FlexcclRegion, slot);
  FIELD(FlexcclRegion, slots);
  FIELD(FlexcclRegion, epoch);
  FIELD(FlexcclRegion, closed);
  FIELD(FlexcclRegion, entered);
  FIELD(FlexcclRegion, done);
  FIELD(FlexcclRegion, entered_collectives);
  FIELD(FlexcclRegion, done_collectives);
  FIELD(FlexcclRegion, committed);
  FIELD(FlexcclRegion, unrecorded);
  FIELD(FlexcclRegion, diverged);
  FIELD(FlexcclRegion, diverged_operation);
  FIELD(FlexcclRegion, used_bytes);
  FIELD(FlexcclRegion, budget_bytes);
  FIELD(FlexcclRegion, process);
  END;
}

}  // namespace
// NOLINTEND

int main() {
  std::printf(
      "\"\"\"Shared memory as C++ lays it out (proxy/ring, flexccl): where each field is, and its "
      "form.\n\n"
      "Generated by tools/gen/gen_layout.py from the headers. Do not edit.\n\"\"\"\n\n"
      "from __future__ import annotations\n\nimport enum\n\nfrom pyft.wire.view import Field, "
      "View\n\n");
  constants();
  enums();
  std::printf("\n");
  attach();
  log();
  control();
  store();
  records();
  region();
}
