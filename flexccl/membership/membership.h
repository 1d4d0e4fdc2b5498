// Which rank this is, which the others are, and where. A rank's number is its slot; positions in
// the ring follow the order of the live slots, so a replacement in the same slot changes no result.
#ifndef FLEXCCL_MEMBERSHIP_MEMBERSHIP_H_
#define FLEXCCL_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/key.h"
#include "base/ring.h"
#include "flexccl.h"
#include "membership/address_book.h"
#include "transport/address.h"

namespace flexccl {

enum class Repair : std::uint32_t { kReplace = 1, kAdd = 2, kRemove = 3 };

// One step of the epoch. Travels between processes.
struct Change {
  std::uint32_t epoch = 0;
  std::int32_t slot = 0;
  Repair repair = Repair::kReplace;
  std::uint32_t padding = 0;
  Address address = {};
};
static_assert(sizeof(Change) == 48);
// Whether both put the same process into the same slot, in the same way.
bool same_step(const Change& a, const Change& b);

struct Membership {
  std::uint64_t comm = 0;
  std::uint32_t epoch = 0;
  int slot = 0;
  SharedVector<int> members = {};  // the live slots, ascending
  AddressBook addresses = {};
  Key key = {};
  flexcclTransport_t transport = flexcclAuto;
  std::uint64_t timeout_ms = 0, repair_ms = 0;
  bool partial = false;  // nothing is kept: what an interrupted operation leaves is a mixture
  std::vector<Change> changes = {};  // the last ones, oldest first

  int slots() const { return static_cast<int>(addresses.size()); }
  // -1: not a live slot.
  int position(int of) const;
  Ring ring() const { return {position(slot), static_cast<int>(members.size())}; }
  int slot_at(int position) const { return members[static_cast<std::size_t>(position)]; }
  const Address& address(int of) const { return addresses[static_cast<std::size_t>(of)]; }
  // As far back as `changes` go.
  bool has_removed(int of) const;
  // Throws ncclInvalidUsage when it is not the next step, or makes no sense.
  void check(const Change& change) const;
  void take(const Change& change);
};

// What is in a flexcclInfo_t: exported by a live rank (with the key), or made by the new one.
// The mac covers what is used of it: unused rows are neither read nor hashed.
struct Info {
  static constexpr std::size_t kMaxSlots = 8192, kMaxKnown = 32, kMaxChanges = 32;
  std::uint32_t magic, version;
  std::uint64_t comm;
  Change change;           // the step that this info is for
  Key key;                 // zeros in the info of a new node
  std::uint64_t position;  // collectives complete at the exporting rank
  std::uint64_t timeout_ms, repair_ms;
  std::uint32_t transport, slots, known_count, change_count;
  struct Known {
    std::int32_t slot;
    std::uint32_t padding;
    Address address;
  } known[kMaxKnown];
  Change changes[kMaxChanges];
  std::uint8_t live[kMaxSlots / 8];
  std::uint64_t mac;
};
static_assert(sizeof(Info) <= FLEXCCL_INFO_BYTES);

// Throws as Membership::take().
Membership after(Membership self, std::span<const Change> steps);
// Before and after `slot` in the ring, be it live or not.
std::pair<int, int> neighbours(const Membership& from, int slot);
// `position`: collectives that are complete here.
Info export_info(const Membership& from, int slot, std::uint64_t position);
// Both throw ncclInvalidArgument. For the new process: from its exporter's info.
Membership join_as(const flexcclInfo_t& exported, int slot, const Address& own,
                   std::uint64_t* position);
Info new_node_info(const Membership& self);
int slot_of(const flexcclInfo_t& info);
// For a survivor: the steps that it lacks, none when it has taken them all.
std::vector<Change> missing_steps(const Membership& self, const flexcclInfo_t& info, Repair repair,
                                  int slot);

}  // namespace flexccl

#endif  // FLEXCCL_MEMBERSHIP_MEMBERSHIP_H_
