// How a region of records is laid out, after the part that each process may read (flexcclRegion_t).
// Position independent: offsets only. Where it changes, so does
// FLEXCCL_REGION_MAGIC: regions never outlive the job, whose processes are all of one version.
#ifndef FLEXCCL_OPLOG_REGION_H_
#define FLEXCCL_OPLOG_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "base/key.h"
#include "flexccl.h"
#include "transport/frame.h"

namespace flexccl {

inline constexpr std::uint64_t kRegionUnit = 128;  // a filler fits everywhere

constexpr std::uint64_t region_padded(std::uint64_t bytes) {
  return (bytes + kRegionUnit - 1) / kRegionUnit * kRegionUnit;
}

// Followed by one uint32_t per slot (1: there is a rank), two bases with their pairs, the records.
struct RegionHeader {
  flexcclRegion_t shown;
  std::uint64_t tail;      // of the records: counts up for ever; modulo the room: a place
  std::uint64_t current;   // which base is valid: 0 or 1
  std::uint64_t gap_from;  // the first operation of a gap that was not ended; 0: none
  Key key;                 // of the job
};
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(flexcclRegion_t) == 144);

// The state before the first record; followed by one RegionPair per slot.
struct RegionBase {
  std::uint64_t head, operation, sequence, children;
};

struct RegionPair {
  std::uint64_t sent, received;
};

enum class RecordKind : std::uint32_t {
  kOperation = 1,
  kFiller,  // up to the end of the memory
  kGap,     // operations up to this one have no record
};

struct SlotPair {
  std::uint64_t slot, sent, received;
};

// Followed by `pairs` times SlotPair (messages so far, of those that changed), then, unless the
// content store has it, the output.
struct Record {
  std::uint64_t bytes;  // in all, padded
  std::uint64_t operation, sequence, children;
  std::uint64_t payload;  // bytes of output
  OpDescriptor op;        // Collective::kNone: a communicator was shrunk from this one
  RecordKind kind;
  std::int32_t rank, ranks;  // the ring at that time
  std::uint32_t pairs;
  std::uint64_t content;  // 1 + its place in the content store; 0: the output follows
  Hash input, output;
  std::uint64_t check;

  std::uint64_t sum() const {
    return keyed_hash64({}, bytes_of(*this).first(offsetof(Record, check)));
  }
};
static_assert(sizeof(Record) <= kRegionUnit);

inline std::uint64_t base_bytes(std::uint32_t slots) {
  return region_padded(sizeof(RegionBase) + slots * sizeof(RegionPair));
}

inline std::uint64_t front_bytes(std::uint32_t slots) {
  return region_padded(sizeof(RegionHeader)) + region_padded(slots * sizeof(std::uint32_t)) +
         2 * base_bytes(slots);
}

inline RegionPair* pairs_of(RegionBase* of) {
  return reinterpret_cast<RegionPair*>(of + 1);
}

inline std::uint32_t* live_slots(RegionHeader* of) {
  return reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(of) +
                                          region_padded(sizeof(RegionHeader)));
}

}  // namespace flexccl

#endif  // FLEXCCL_OPLOG_REGION_H_
