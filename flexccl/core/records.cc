#include "core/records.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/key.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kArenaMagic = 0x31736472656c6663;  // "cflerds1"
constexpr std::uint64_t kUnit = 64;

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

struct Records::Header {
  std::uint64_t magic, comm;
  std::uint32_t slot, slots;
  std::uint64_t bytes;
  alignas(64) std::atomic<std::uint64_t> tail;  // counts up for ever; modulo the room: a place
  std::atomic<std::uint32_t> current;           // which base is valid
  std::atomic<std::uint32_t> unrecorded;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The state before the first record; followed by one Pair per slot.
struct Records::Base {
  std::uint64_t head, operation, sequence, padding;
};

struct Records::Pair {
  std::uint64_t sent, received;
};

// Followed by `pairs` times (slot, Pair), then the outputs.
struct Records::Record {
  std::uint64_t bytes;  // in all, padded
  std::uint64_t operation, sequence;
  std::uint64_t payload;
  OpDescriptor op;  // all zeros and no operation: a filler at the end of the memory
  std::uint64_t pairs;
  std::uint64_t check;

  std::uint64_t sum() const {
    return keyed_hash64({}, bytes_of(*this).first(offsetof(Record, check)));
  }
};

namespace {
struct SlotPair {
  std::uint64_t slot, sent, received;
};
}  // namespace

Records::Base* Records::base(std::uint32_t which) const {
  const std::uint64_t each = padded(sizeof(Base) + header_->slots * sizeof(Pair));
  return reinterpret_cast<Base*>(reinterpret_cast<std::byte*>(header_) + padded(sizeof(Header)) +
                                 which * each);
}

Records::Pair* Records::pairs(Base* of) const {
  return reinterpret_cast<Pair*>(of + 1);
}

Standpoint Records::standpoint(Base* of) const {
  Standpoint now{of->operation, of->sequence, {}};
  for (int slot = 0; slot < static_cast<int>(header_->slots); ++slot)
    now.pairs[slot] = {pairs(of)[slot].sent, pairs(of)[slot].received};
  return now;
}

std::byte* Records::place(std::uint64_t offset) const {
  return data_ + offset % capacity_;
}

// Throws when the record is damaged: then the memory is not what this library wrote.
const Records::Record* Records::at(std::uint64_t offset) const {
  const auto* record = reinterpret_cast<const Record*>(place(offset));
  const std::uint64_t room = capacity_ - offset % capacity_;
  if (record->check != record->sum() || record->bytes > room || record->bytes < sizeof(Record) ||
      record->bytes % kUnit || record->pairs > header_->slots || record->payload > record->bytes ||
      sizeof(Record) + record->pairs * sizeof(SlotPair) + record->payload > record->bytes)
    fail(ncclInvalidArgument, "flexccl: the record at [", offset, "] is damaged");
  return record;
}

void Records::check_layout(std::span<std::byte> memory, const RecordOwner& owner) {
  header_ = reinterpret_cast<Header*>(memory.data());
  const std::uint64_t front =
      padded(sizeof(Header)) + 2 * padded(sizeof(Base) + owner.slots * sizeof(Pair));
  if (reinterpret_cast<std::uintptr_t>(header_) % kUnit || memory.size() < front + 4 * kUnit) {
    header_ = nullptr;
    fail(ncclInvalidArgument, "flexccl: [", memory.size(), "] bytes at [",
         static_cast<const void*>(memory.data()), "] cannot hold records: [", front + 4 * kUnit,
         "] at least, aligned to [", kUnit, "]");
  }
  data_ = memory.data() + front;
  capacity_ = (memory.size() - front) / kUnit * kUnit;
}

void Records::begin(std::span<std::byte> memory, const RecordOwner& owner, const Standpoint& now) {
  const std::scoped_lock lock(mutex_);
  check_layout(memory, owner);
  header_->magic = 0;  // until all of it is there
  header_->comm = owner.comm, header_->slot = owner.slot, header_->slots = owner.slots;
  header_->bytes = memory.size();
  header_->tail = 0, header_->current = 0, header_->unrecorded = 0;
  Base* first = base(0);
  *first = {0, now.operation, now.sequence, 0};
  std::fill_n(pairs(first), owner.slots, Pair{});
  for (const auto& [slot, pair] : now.pairs) pairs(first)[slot] = {pair.sent, pair.received};
  cursor_ = 0, last_operation_ = now.operation;
  std::atomic_ref(header_->magic).store(kArenaMagic, std::memory_order_release);
}

// Applies the records from `from` up to `operation` to `to`; returns where the next one begins.
std::uint64_t Records::advance(std::uint64_t from, std::uint64_t operation, Base* to) const {
  const std::uint64_t tail = header_->tail.load(std::memory_order_acquire);
  while (from < tail) {
    const Record* record = at(from);
    if (record->operation > operation) break;
    if (record->operation) {
      to->operation = record->operation, to->sequence = record->sequence;
      const auto* changed = reinterpret_cast<const SlotPair*>(record + 1);
      for (std::uint64_t i = 0; i < record->pairs; ++i)
        if (changed[i].slot < header_->slots)
          pairs(to)[changed[i].slot] = {changed[i].sent, changed[i].received};
    }
    from += record->bytes;
  }
  return from;
}

std::pair<Standpoint, Standpoint> Records::adopt(std::span<std::byte> memory,
                                                 const RecordOwner& owner,
                                                 std::uint64_t operation) {
  const std::scoped_lock lock(mutex_);
  check_layout(memory, owner);
  if (header_->magic != kArenaMagic || header_->comm != owner.comm || header_->slot != owner.slot ||
      header_->slots != owner.slots || header_->bytes != memory.size()) {
    header_ = nullptr;
    fail(ncclInvalidArgument, "flexccl: the memory does not hold the records of rank [", owner.slot,
         "] of this communicator");
  }
  if (header_->unrecorded)
    fail(ncclInvalidUsage, "flexccl: rank [", owner.slot,
         "] was unrecorded when it ended: its records are not complete");
  const Base* from = base(header_->current & 1);
  const std::uint64_t tail = header_->tail.load(std::memory_order_acquire);
  if (from->head % kUnit || tail % kUnit || tail - from->head > capacity_) {
    header_ = nullptr;
    fail(ncclInvalidArgument, "flexccl: the records are damaged: they go from [", from->head,
         "] to [", tail, "] in [", capacity_, "] bytes");
  }
  if (operation < from->operation)
    fail(ncclInvalidUsage, "flexccl: operation [", operation,
         "] cannot be gone back to, the records begin after [", from->operation, "]");
  std::vector<std::byte> scratch(sizeof(Base) + header_->slots * sizeof(Pair));
  auto* there = reinterpret_cast<Base*>(scratch.data());
  std::memcpy(scratch.data(), static_cast<const void*>(from), scratch.size());
  cursor_ = advance(from->head, operation, there);
  if (there->operation != operation)
    fail(ncclInvalidUsage, "flexccl: the records end with operation [", there->operation,
         "], before [", operation, "]");
  const Standpoint now = standpoint(there);
  advance(cursor_, UINT64_MAX, there);
  last_operation_ = there->operation;
  return {now, standpoint(there)};
}

void Records::give_up(std::uint64_t operation) {
  header_->unrecorded.store(1, std::memory_order_release);
  std::fprintf(stderr,
               "flexccl: rank [%u] of communicator [%llx] is unrecorded from operation [%llu] on: "
               "its [%llu] bytes for records are full\n",
               header_->slot, static_cast<unsigned long long>(header_->comm),
               static_cast<unsigned long long>(operation),
               static_cast<unsigned long long>(capacity_));
}

bool Records::put(const Standpoint& before, const OpDescriptor& op,
                  const std::map<int, PairCounters>& after,
                  std::span<const std::span<const std::byte>> outputs) {
  std::uint64_t payload = 0;
  for (const auto& output : outputs) payload += output.size();
  const std::uint64_t bytes = padded(sizeof(Record) + after.size() * sizeof(SlotPair) + payload);
  std::uint64_t tail = header_->tail.load(std::memory_order_relaxed);
  const std::uint64_t head = base(header_->current & 1)->head;
  const std::uint64_t rest = capacity_ - tail % capacity_;
  const std::uint64_t filler = rest < bytes ? rest : 0;
  if (tail - head + filler + bytes > capacity_) return false;
  if (filler) {
    Record last{.bytes = filler,
                .operation = 0,
                .sequence = 0,
                .payload = 0,
                .op = {},
                .pairs = 0,
                .check = 0};
    last.check = last.sum();
    std::memcpy(place(tail), &last, sizeof last);
    tail += filler;
  }
  const bool collective = op.collective != Collective::kSendRecv;
  Record record{.bytes = bytes,
                .operation = before.operation + 1,
                .sequence = before.sequence + collective,
                .payload = payload,
                .op = op,
                .pairs = after.size(),
                .check = 0};
  record.check = record.sum();
  std::byte* to = place(tail);
  std::memcpy(to, &record, sizeof record);
  to += sizeof record;
  for (const auto& [slot, pair] : after) {
    const SlotPair one{static_cast<std::uint64_t>(slot), pair.sent, pair.received};
    std::memcpy(to, &one, sizeof one);
    to += sizeof one;
  }
  for (const auto& output : outputs) {
    if (!output.empty()) std::memcpy(to, output.data(), output.size());
    to += output.size();
  }
  header_->tail.store(tail + bytes, std::memory_order_release);
  cursor_ = tail + bytes;
  return true;
}

void Records::append(const Standpoint& before, const OpDescriptor& op,
                     std::span<const std::span<const std::byte>> outputs) {
  const std::scoped_lock lock(mutex_);
  if (!header_) return;
  last_operation_ = before.operation + 1;
  if (!header_->unrecorded && !put(before, op, {}, outputs)) give_up(last_operation_);
}

void Records::append_batch(const Standpoint& before, const std::map<int, PairCounters>& after,
                           std::span<const std::span<const std::byte>> outputs) {
  const std::scoped_lock lock(mutex_);
  if (!header_) return;
  last_operation_ = before.operation + 1;
  const OpDescriptor op{.collective = Collective::kSendRecv};
  if (!header_->unrecorded && !put(before, op, after, outputs)) give_up(last_operation_);
}

void Records::commit(std::uint64_t operation) {
  const std::scoped_lock lock(mutex_);
  if (!header_) fail(ncclInvalidUsage, "flexccl: there are no records to commit");
  if (operation > last_operation_)
    fail(ncclInvalidArgument, "flexccl: operation [", operation, "] is not complete, the last is [",
         last_operation_, "]");
  const std::uint32_t now = header_->current.load(std::memory_order_relaxed) & 1;
  Base *from = base(now), *to = base(1 - now);
  std::memcpy(static_cast<void*>(to), from, sizeof(Base) + header_->slots * sizeof(Pair));
  to->head = advance(from->head, operation, to);
  header_->current.store(1 - now, std::memory_order_release);
}

bool Records::active() const {
  const std::scoped_lock lock(mutex_);
  return header_ != nullptr;
}

bool Records::replaying() const {
  const std::scoped_lock lock(mutex_);
  return header_ && cursor_ < header_->tail.load(std::memory_order_relaxed);
}

void Records::replay(const OpDescriptor& op, std::span<const std::span<std::byte>> outputs) {
  const std::scoped_lock lock(mutex_);
  if (at(cursor_)->operation == 0) cursor_ += at(cursor_)->bytes;
  const Record* record = at(cursor_);
  std::uint64_t payload = 0;
  for (const auto& output : outputs) payload += output.size();
  if (record->op != op || record->payload != payload)
    fail(ncclInvalidUsage, "flexccl: the replay diverged: operation [", record->operation, "] was ",
         describe(record->op), " with [", record->payload, "] bytes, now it is ", describe(op),
         " with [", payload, "]");
  const auto* changed = reinterpret_cast<const SlotPair*>(record + 1);
  const auto* from = reinterpret_cast<const std::byte*>(changed + record->pairs);
  for (const auto& output : outputs) {
    if (!output.empty()) std::memcpy(output.data(), from, output.size());
    from += output.size();
  }
  cursor_ += record->bytes;
}

RecordUsage Records::usage() const {
  const std::scoped_lock lock(mutex_);
  if (!header_) return {};
  const Base* now = base(header_->current & 1);
  return {header_->tail.load(std::memory_order_relaxed) - now->head, capacity_, now->operation,
          header_->unrecorded.load(std::memory_order_relaxed) == 0};
}

}  // namespace flexccl
