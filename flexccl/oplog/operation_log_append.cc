// The part of OperationLog that writes: operations as they complete, and what commits free.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "oplog/operation_log.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kShareBytes = 4096;  // less is not worth an entry in the content store

void show(std::uint64_t& field, std::uint64_t value) {
  std::atomic_ref(field).store(value, std::memory_order_release);
}

bool is_collective(const OpDescriptor& op) {
  return op.collective != Collective::kSendRecv && op.collective != Collective::kNone;
}

// Where the rank stands then.
LogPosition after(LogPosition before, const OperationResult& outcome) {
  ++before.operation;
  before.sequence += is_collective(outcome.op);
  before.children += outcome.op.collective == Collective::kNone;
  for (const auto& [slot, pair] : outcome.changed) before.pairs[slot] = pair;
  return before;
}

}  // namespace

// Up to the end of the memory.
std::uint64_t OperationLog::fill(std::uint64_t end) {
  Record last{};
  last.bytes = capacity_ - end % capacity_, last.kind = RecordKind::kFiller;
  last.check = last.sum();
  std::memcpy(place(end), &last, sizeof last);
  return end + last.bytes;
}

bool OperationLog::put(Record record, const std::map<int, PairCounters>& pairs,
                       std::span<const std::span<const std::byte>> outputs) {
  record.pairs = static_cast<std::uint32_t>(pairs.size());
  record.bytes = region_padded(sizeof(Record) + pairs.size() * sizeof(SlotPair) +
                               (record.content ? 0 : record.payload));
  std::uint64_t end = tail();
  const std::uint64_t head = current()->head, rest = capacity_ - end % capacity_;
  const std::uint64_t filler = rest < record.bytes ? rest : 0;
  if (end - head + filler + record.bytes > capacity_) return false;
  if (filler) end = fill(end);
  record.check = record.sum();
  std::byte* to = place(end);
  std::memcpy(to, &record, sizeof record);
  to += sizeof record;
  for (const auto& [slot, pair] : pairs) {
    const SlotPair one{static_cast<std::uint64_t>(slot), pair.sent, pair.received};
    std::memcpy(to, &one, sizeof one);
    to += sizeof one;
  }
  for (const auto& output : outputs) {
    if (record.content) break;
    if (!output.empty()) std::memcpy(to, output.data(), output.size());
    to += output.size();
  }
  end += record.bytes;
  show(header_->tail, end);
  show(header_->shown.used_bytes, end - head);
  return true;
}

bool OperationLog::put_operation(const LogPosition& before, const OperationResult& outcome) {
  Record record{};
  for (const auto& output : outcome.outputs) {
    record.payload += output.size();
    record.output = content_hash(output, record.output);
  }
  record.kind = RecordKind::kOperation, record.op = outcome.op;
  record.operation = before.operation + 1;
  record.sequence = before.sequence + is_collective(outcome.op);
  record.children = before.children + (outcome.op.collective == Collective::kNone);
  record.rank = outcome.ring.rank, record.ranks = outcome.ring.size;
  record.input = outcome.input;
  const ContentKey key{header_->shown.comm, record.sequence, record.payload, record.output};
  if (outcome.identical && record.payload >= kShareBytes && outcome.outputs.size() == 1)
    if (const auto place = ContentStore::process().hold(key, outcome.outputs[0]))
      record.content = *place + 1;
  if (put(record, outcome.changed, outcome.outputs)) return true;
  if (record.content) ContentStore::process().release(record.content - 1, key);
  return false;
}

// Ends a gap: what follows is recorded, and can be replayed from here on.
bool OperationLog::end_gap(const LogPosition& here) {
  Record gap{};
  gap.kind = RecordKind::kGap;
  gap.operation = here.operation, gap.sequence = here.sequence;
  gap.children = here.children;
  if (!put(gap, here.pairs, {})) return false;
  show(header_->gap_from, 0);
  resumed_ = here.operation;
  if (std::has_single_bit(gaps_))
    log_line(kWarning, "rank [%u] of communicator [%llx] records again, from [%llu] on",
             header_->shown.slot, static_cast<unsigned long long>(header_->shown.comm),
             static_cast<unsigned long long>(here.operation + 1));
  if (wanted_ >= resumed_) commit_now();
  return true;
}

void OperationLog::give_up(std::uint64_t operation) {
  show(header_->gap_from, operation);
  if (!header_->shown.unrecorded) show(header_->shown.unrecorded, operation);
  may_resume_ = false;
  // A region that is always too small says so seldom, not at every step.
  if (!std::has_single_bit(++gaps_)) return;
  log_line(kWarning,
           "rank [%u] of communicator [%llx] is unrecorded from operation [%llu] on: "
           "its [%llu] bytes for records are full",
           header_->shown.slot, static_cast<unsigned long long>(header_->shown.comm),
           static_cast<unsigned long long>(operation), static_cast<unsigned long long>(capacity_));
}

bool OperationLog::append(const LogPosition& before, const OperationResult& outcome) {
  const std::scoped_lock lock(mutex_);
  if (!active()) return false;
  const std::uint64_t operation = before.operation + 1;
  const bool resumes = header_->gap_from && std::exchange(may_resume_, false);
  if (resumes && !end_gap(before)) give_up(operation);
  if (!header_->gap_from && !put_operation(before, outcome)) give_up(operation);
  last_operation_ = operation;
  if (header_->gap_from) stands_ = after(before, outcome);
  show(header_->shown.done_collectives, before.sequence + is_collective(outcome.op));
  show(header_->shown.done, operation);
  return !header_->gap_from;
}

void OperationLog::commit(std::uint64_t operation) {
  const std::scoped_lock lock(mutex_);
  if (!active()) fail(ncclInvalidUsage, "flexccl: there are no records to commit");
  if (operation > last_operation_)
    fail(ncclInvalidArgument, "flexccl: operation [", operation, "] is not complete, the last is [",
         last_operation_, "]");
  wanted_ = std::max(wanted_, operation);
  may_resume_ = true;
  commit_now();
  // Nothing after it lacks its record: it can be gone back to now, not only after one more.
  if (header_->gap_from && operation == last_operation_) may_resume_ = !end_gap(stands_);
}

void OperationLog::commit_now() {
  const std::uint64_t now = std::atomic_ref(header_->current).load(std::memory_order_acquire) & 1;
  RegionBase *from = base(now), *to = base(1 - now);
  std::memcpy(static_cast<void*>(to), from,
              sizeof(RegionBase) + header_->shown.slots * sizeof(RegionPair));
  to->head = advance(from->head, wanted_, to);
  // Nothing is left: from the front again, so that no more memory is touched than one interval
  // needs.
  const std::uint64_t end = tail(), rest = capacity_ - end % capacity_;
  if (to->head == end && rest < capacity_ && end - from->head + rest <= capacity_) {
    to->head = fill(end);
    show(header_->tail, to->head);
  }
  // Before the records go: no process will replay them any more, and a content without a record
  // would stay for ever.
  each_content(from->head, to->head, [](std::uint64_t place, const ContentKey& key) {
    ContentStore::process().release(place, key);
  });
  show(header_->current, 1 - now);
  show(header_->shown.committed, to->operation);
  show(header_->shown.used_bytes, tail() - to->head);
  if (!header_->gap_from && to->operation >= resumed_) show(header_->shown.unrecorded, 0);
}

}  // namespace flexccl
