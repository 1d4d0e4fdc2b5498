#include "oplog/operation_log.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::size_t kAlignment = 64;

void show_members(RegionHeader* in, std::span<const int> members) {
  for (std::uint32_t slot = 0; slot < in->shown.slots; ++slot)
    std::atomic_ref(live_slots(in)[slot])
        .store(std::find(members.begin(), members.end(), int(slot)) != members.end());
}

}  // namespace

RegionBase* OperationLog::base(std::uint64_t which) const {
  auto* first = reinterpret_cast<std::byte*>(live_slots(header_)) +
                region_padded(header_->shown.slots * sizeof(std::uint32_t));
  return reinterpret_cast<RegionBase*>(first + (which & 1) * base_bytes(header_->shown.slots));
}

RegionBase* OperationLog::current() const {
  return base(std::atomic_ref(header_->current).load(std::memory_order_acquire));
}

std::uint64_t OperationLog::tail() const {
  return std::atomic_ref(header_->tail).load(std::memory_order_acquire);
}

LogPosition OperationLog::position_now(RegionBase* of) const {
  LogPosition now{of->operation, of->sequence, of->children, {}};
  for (int slot = 0; slot < static_cast<int>(header_->shown.slots); ++slot)
    now.pairs[slot] = {pairs_of(of)[slot].sent, pairs_of(of)[slot].received};
  return now;
}

std::byte* OperationLog::place(std::uint64_t offset) const {
  return data_ + offset % capacity_;
}

// Throws when the record is damaged: then the memory is not what this library wrote.
const Record* OperationLog::at(std::uint64_t offset) const {
  const auto* record = reinterpret_cast<const Record*>(place(offset));
  const std::uint64_t room = capacity_ - offset % capacity_;
  const std::uint64_t inside = record->content ? 0 : record->payload;
  if (record->check != record->sum() || record->bytes > room || record->bytes < sizeof(Record) ||
      record->bytes % kRegionUnit || record->pairs > header_->shown.slots ||
      inside > record->bytes ||
      sizeof(Record) + record->pairs * sizeof(SlotPair) + inside > record->bytes)
    fail(ncclInvalidArgument, "flexccl: the record at [", offset, "] is damaged");
  return record;
}

void OperationLog::lay_out(std::span<std::byte> memory, std::uint32_t slots) {
  const std::uint64_t front = front_bytes(slots);
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment ||
      memory.size() < front + 4 * kRegionUnit)
    fail(ncclInvalidArgument, "flexccl: [", memory.size(), "] bytes at [",
         static_cast<const void*>(memory.data()), "] cannot hold records: [",
         front + 4 * kRegionUnit, "] at least, aligned to [", kAlignment, "]");
  header_ = reinterpret_cast<RegionHeader*>(memory.data());
  data_ = memory.data() + front;
  capacity_ = (memory.size() - front) / kRegionUnit * kRegionUnit;
}

void OperationLog::begin(std::span<std::byte> memory, const RecordOwner& owner,
                         const LogPosition& now) {
  const std::scoped_lock lock(mutex_);
  start(memory, owner, now);
}

// Records that go on elsewhere are of no use where they were.
void OperationLog::leave() {
  if (!active_) return;
  active_ = replaying_ = false;
  each_content(current()->head, tail(), [](std::uint64_t place, const ContentKey& key) {
    ContentStore::process().release(place, key);
  });
  std::atomic_ref(header_->shown.magic).store(0);
}

void OperationLog::start(std::span<std::byte> memory, const RecordOwner& owner,
                         const LogPosition& now) {
  leave();
  lay_out(memory, owner.slots);
  const std::atomic_ref magic(header_->shown.magic);
  magic.store(0);  // until all of it is there
  *header_ = {};
  flexcclRegion_t& shown = header_->shown;
  shown.bytes = memory.size(), shown.comm = owner.comm, shown.parent = owner.parent;
  shown.slot = owner.slot, shown.slots = owner.slots, shown.epoch = owner.epoch;
  shown.entered = shown.done = shown.committed = now.operation;
  shown.entered_collectives = shown.done_collectives = now.sequence;
  shown.budget_bytes = capacity_;
  std::memcpy(shown.process, owner.process.data(), sizeof shown.process);
  header_->key = owner.key;
  show_members(header_, owner.members);
  RegionBase* first = base(0);
  *first = {0, now.operation, now.sequence, now.children};
  std::fill_n(pairs_of(first), owner.slots, RegionPair{});
  for (const auto& [slot, pair] : now.pairs) pairs_of(first)[slot] = {pair.sent, pair.received};
  cursor_ = 0, last_operation_ = now.operation, wanted_ = 0, resumed_ = 0;
  magic.store(FLEXCCL_REGION_MAGIC, std::memory_order_release);
  active_ = true;
}

RecordOwner OperationLog::owner_of(std::span<std::byte> memory) {
  if (memory.size() < sizeof(RegionHeader) ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment)
    fail(ncclInvalidArgument, "flexccl: [", memory.size(), "] bytes at [",
         static_cast<const void*>(memory.data()), "] hold no records");
  auto* header = reinterpret_cast<RegionHeader*>(memory.data());
  const flexcclRegion_t shown = header->shown;
  if (shown.magic != FLEXCCL_REGION_MAGIC || shown.bytes != memory.size() ||
      shown.slot >= shown.slots || shown.slots > memory.size() / sizeof(RegionPair) ||
      front_bytes(shown.slots) + 4 * kRegionUnit > memory.size())
    fail(ncclInvalidArgument, "flexccl: the memory holds no records, or others: magic [",
         shown.magic, "], [", shown.bytes, "] bytes instead of [", memory.size(), "]");
  RecordOwner owner{.comm = shown.comm,
                    .parent = shown.parent,
                    .slot = shown.slot,
                    .slots = shown.slots,
                    .epoch = shown.epoch,
                    .key = header->key};
  for (std::uint32_t slot = 0; slot < shown.slots; ++slot)
    if (live_slots(header)[slot] || slot == shown.slot) owner.members.push_back(int(slot));
  std::memcpy(owner.process.data(), shown.process, sizeof shown.process);
  return owner;
}

// Applies the records from `from` up to `operation` to `to`; returns where the next one begins.
std::uint64_t OperationLog::advance(std::uint64_t from, std::uint64_t operation,
                                    RegionBase* to) const {
  for (const std::uint64_t end = tail(); from < end;) {
    const Record* record = at(from);
    if (record->kind != RecordKind::kFiller) {
      if (record->operation > operation) break;
      to->operation = record->operation, to->sequence = record->sequence;
      to->children = record->children;
      const auto* changed = reinterpret_cast<const SlotPair*>(record + 1);
      for (std::uint64_t i = 0; i < record->pairs; ++i)
        if (changed[i].slot < header_->shown.slots)
          pairs_of(to)[changed[i].slot] = {changed[i].sent, changed[i].received};
    }
    from += record->bytes;
  }
  return from;
}

void OperationLog::each_content(std::uint64_t from, std::uint64_t until, const Visit& visit) const {
  while (from < until) {
    const Record* record = at(from);
    if (record->content)
      visit(record->content - 1,
            ContentKey{header_->shown.comm, record->sequence, record->payload, record->output});
    from += record->bytes;
  }
}

// The layout is known to fit from here on.
void OperationLog::check_owner(std::span<std::byte> memory, const RecordOwner& owner) {
  const RecordOwner there = owner_of(memory);
  if (there.comm != owner.comm || there.slot != owner.slot || there.slots != owner.slots)
    fail(ncclInvalidArgument, "flexccl: the memory holds the records of rank [", there.slot,
         "] of communicator [", std::hex, there.comm, "], not of rank [", std::dec, owner.slot,
         "] of [", std::hex, owner.comm, "]");
  lay_out(memory, owner.slots);
  const std::uint64_t head = current()->head, end = tail();
  if (head % kRegionUnit || end % kRegionUnit || end - head > capacity_)
    fail(ncclInvalidArgument, "flexccl: the records are damaged: they go from [", head, "] to [",
         end, "] in [", capacity_, "] bytes");
}

void OperationLog::forget(std::span<std::byte> memory) {
  OperationLog records;
  const std::scoped_lock lock(records.mutex_);
  records.check_owner(memory, owner_of(memory));
  records.each_content(records.current()->head, records.tail(),
                       [](std::uint64_t place, const ContentKey& key) {
                         ContentStore::process().hold_again(place);
                         ContentStore::process().release(place, key);
                       });
  std::atomic_ref(records.header_->shown.magic).store(0);
}

void OperationLog::close() {
  const std::scoped_lock lock(mutex_);
  if (!active_) return;
  active_ = replaying_ = false;
  each_content(current()->head, tail(), [](std::uint64_t place, const ContentKey&) {
    ContentStore::process().abandon(place);
  });
  std::atomic_ref(header_->shown.closed).store(1, std::memory_order_release);
}

void OperationLog::enter(std::uint64_t operation, std::uint64_t sequence, std::uint32_t epoch,
                         std::span<const int> members) {
  if (!active()) return;
  flexcclRegion_t& shown = header_->shown;
  if (shown.epoch != epoch) {
    show_members(header_, members);
    std::atomic_ref(shown.epoch).store(epoch, std::memory_order_release);
  }
  if (operation <= shown.entered) return;  // a replay
  std::atomic_ref(shown.entered_collectives).store(sequence, std::memory_order_release);
  std::atomic_ref(shown.entered).store(operation, std::memory_order_release);
}

void OperationLog::set_parent(std::uint64_t comm) {
  const std::scoped_lock lock(mutex_);
  if (active()) std::atomic_ref(header_->shown.parent).store(comm, std::memory_order_release);
}

bool OperationLog::lies_at(const void* memory) const {
  const std::scoped_lock lock(mutex_);
  return active() && memory == header_;
}

RecordUsage OperationLog::usage() const {
  if (!active()) return {};
  flexcclRegion_t& shown = header_->shown;
  const auto load = [](std::uint64_t& of) {
    return std::atomic_ref(of).load(std::memory_order_relaxed);
  };
  return {.used = load(shown.used_bytes),
          .budget = load(shown.budget_bytes),
          .committed = load(shown.committed),
          .diverged = load(shown.diverged),
          .recorded = load(shown.unrecorded) == 0,
          .replaying = replaying()};
}

}  // namespace flexccl
