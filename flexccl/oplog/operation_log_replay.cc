// The part of OperationLog that a new process needs: taking over a predecessor's memory, and
// answering a repetition from it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>

#include "algo/operation.h"
#include "base/error.h"
#include "base/log.h"
#include "oplog/operation_log.h"

namespace flexccl {
namespace {

struct Reporter {
  std::mutex mutex;
  OperationLog::Report report;
};

Reporter& reporter() {
  static Reporter* const one = std::make_unique<Reporter>().release();
  return *one;
}

}  // namespace

// From the cursor on, every operation that was completed has a record.
void OperationLog::check_complete() {
  std::uint64_t last = 0;
  for (std::uint64_t from = current()->head; from < tail(); from += at(from)->bytes) {
    const Record* record = at(from);
    if (record->kind != RecordKind::kGap) continue;
    last = record->operation;
    if (from >= cursor_)
      fail(ncclInvalidUsage, "flexccl: rank [", header_->shown.slot,
           "] was unrecorded: its operations from [", header_->shown.unrecorded, "] to [", last,
           "] have no records");
  }
  if (header_->gap_from > last)
    fail(ncclInvalidUsage, "flexccl: rank [", header_->shown.slot,
         "] was unrecorded when it ended: its operations from [", header_->gap_from,
         "] on have no records");
  header_->gap_from = 0;
  resumed_ = last;
}

std::pair<LogPosition, LogPosition> OperationLog::adopt(std::span<std::byte> memory,
                                                        const RecordOwner& owner,
                                                        std::uint64_t operation) {
  const std::scoped_lock lock(mutex_);
  if (memory.size() >= sizeof(RegionHeader) &&
      reinterpret_cast<RegionHeader*>(memory.data())->shown.magic == 0 && operation == 0) {
    start(memory, owner, {});
    return {};
  }
  active_ = replaying_ = false;
  check_owner(memory, owner);
  const RegionBase* from = current();
  if (operation < from->operation)
    fail(ncclInvalidUsage, "flexccl: operation [", operation,
         "] cannot be gone back to, the records begin after [", from->operation, "]");
  std::vector<std::byte> scratch(base_bytes(owner.slots));
  auto* there = reinterpret_cast<RegionBase*>(scratch.data());
  std::memcpy(scratch.data(), static_cast<const void*>(from), scratch.size());
  cursor_ = advance(from->head, operation, there);
  if (there->operation != operation)
    fail(ncclInvalidUsage, "flexccl: the records end with operation [", there->operation,
         "], before [", operation, "]");
  check_complete();
  const LogPosition now = position_now(there);
  advance(cursor_, UINT64_MAX, there);
  each_content(from->head, tail(), [](std::uint64_t place, const ContentKey& key) {
    if (!ContentStore::process().find(place, key).empty())
      ContentStore::process().hold_again(place);
  });
  flexcclRegion_t& shown = header_->shown;
  shown.closed = 0;
  std::memcpy(shown.process, owner.process.data(), sizeof shown.process);
  last_operation_ = operation, wanted_ = 0;
  replaying_ = cursor_ < tail();
  active_ = true;
  return {now, position_now(there)};
}

void OperationLog::step_to(std::uint64_t offset) {
  cursor_ = offset;
  const std::uint64_t end = tail();
  while (cursor_ < end && at(cursor_)->kind == RecordKind::kFiller) cursor_ += at(cursor_)->bytes;
  replaying_ = cursor_ < end;
}

// Precondition: mutex_ is held. Throws ncclInvalidArgument when the content store lacks it.
std::span<const std::byte> OperationLog::output_of(const Record& record) const {
  if (!record.content)
    return {reinterpret_cast<const std::byte*>(&record + 1) + record.pairs * sizeof(SlotPair),
            record.payload};
  const auto content = ContentStore::process().find(
      record.content - 1, {header_->shown.comm, record.sequence, record.payload, record.output});
  if (content.empty())
    fail(ncclInvalidArgument, "flexccl: the content store lacks the output of operation [",
         record.operation, "] ", describe(record.op));
  return content;
}

// A rank that has completed a synchronising collective has seen all begin it, and so complete
// all before it.
std::uint64_t OperationLog::each_open(const VisitOpen& visit) const {
  const std::scoped_lock lock(mutex_);
  std::vector<const Record*> open;
  std::uint64_t next = current()->sequence + 1;
  for (std::uint64_t from = current()->head; from < cursor_; from += at(from)->bytes) {
    const Record* record = at(from);
    if (record->kind == RecordKind::kFiller) continue;
    const bool counts = record->sequence >= next;  // no batch, no child
    next = std::max(next, record->sequence + 1);
    if (!counts || record->kind != RecordKind::kOperation) continue;
    if (synchronising(record->op.collective)) open.clear();
    open.push_back(record);
  }
  for (const Record* record : open) visit(*record, output_of(*record));
  return open.empty() ? next : open.front()->sequence;
}

Ring OperationLog::next_ring() {
  const std::scoped_lock lock(mutex_);
  step_to(cursor_);
  const Record* record = at(cursor_);
  return {record->rank, record->ranks};
}

void OperationLog::note_divergence(const Record& record, const Hash& input) {
  flexcclRegion_t& shown = header_->shown;
  if (!shown.diverged) std::atomic_ref(shown.diverged_operation).store(record.operation);
  std::atomic_ref(shown.diverged).store(shown.diverged + 1);
  std::ostringstream sentence;
  sentence << "rank [" << shown.slot << "] repeats operation [" << record.operation
           << "] with inputs of hash [" << std::hex << input.low << "], not [" << record.input.low
           << std::dec << "]: " << describe(record.op) << " of communicator [" << std::hex
           << shown.comm << "]";
  if (shown.diverged == 1) log_line(kWarning, "the replay diverged: %s", sentence.str().c_str());
  const std::scoped_lock lock(reporter().mutex);
  if (reporter().report) reporter().report(shown.comm, record.operation, sentence.str().c_str());
}

void OperationLog::set_report(Report report) {
  const std::scoped_lock lock(reporter().mutex);
  reporter().report = std::move(report);
}

void OperationLog::replay(const OperationResult& now,
                          std::span<const std::span<std::byte>> outputs) {
  const std::scoped_lock lock(mutex_);
  step_to(cursor_);
  const Record* record = at(cursor_);
  std::uint64_t payload = 0;
  for (const auto& output : outputs) payload += output.size();
  if (record->op != now.op || record->payload != payload)
    fail(ncclInvalidUsage, "flexccl: the replay diverged: operation [", record->operation, "] was ",
         describe(record->op), " with [", record->payload, "] bytes, now it is ", describe(now.op),
         " with [", payload, "]");
  const std::byte* from = output_of(*record).data();
  Hash hash;
  for (const auto& output : outputs) {
    if (!output.empty()) std::memcpy(output.data(), from, output.size());
    from += output.size();
    hash = content_hash(output, hash);
  }
  if (hash != record->output)
    fail(ncclInvalidArgument, "flexccl: the recorded output of operation [", record->operation,
         "] is damaged");
  if (now.input != record->input) note_divergence(*record, now.input);
  last_operation_ = record->operation;
  step_to(cursor_ + record->bytes);
}

}  // namespace flexccl
