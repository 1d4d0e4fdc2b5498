#include "oplog/retention_buffer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::size_t kSpareBuffers = 3;

// Whether others may fetch this rank's input, or its own redo needs it where the output goes.
bool needs_copy(const Operation& operation) {
  switch (operation.op.collective) {
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kSplit:
      return false;
    case Collective::kAllReduce:
      return operation.buffers.in == operation.buffers.out;
    default:
      return true;
  }
}

}  // namespace

RetentionBuffer::RetentionBuffer(std::shared_ptr<const Membership> self, std::uint64_t position)
    : joined_(self->epoch > 0),
      self_(std::move(self)),
      counters_{
          .entered = position, .done = position, .all_done = position, .operations = position},
      done_at_fence_(position),
      serves_after_(position) {}

std::shared_ptr<RetentionBuffer::Buffer> RetentionBuffer::fill(std::shared_ptr<Buffer> reuse,
                                                               const std::byte* from,
                                                               std::size_t bytes) {
  const auto unread = [](const Buffer& buffer) {
    return buffer.readers.load(std::memory_order_acquire) == 0;
  };
  if (!reuse || reuse->capacity < bytes || !unread(*reuse)) {
    const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const auto& buffer) {
      return buffer->capacity >= bytes && buffer->capacity / 4 <= bytes && unread(*buffer);
    });
    if (reuse) counters_.kept_bytes -= reuse->bytes;
    if (fits != spare_.end()) {
      reuse = std::move(*fits);
      spare_.erase(fits);
    } else {
      reuse = std::make_shared<Buffer>();
      reuse->data = std::make_unique_for_overwrite<std::byte[]>(bytes);
      reuse->capacity = bytes;
    }
    reuse->bytes = 0;
  }
  counters_.kept_bytes += bytes - reuse->bytes;
  reuse->bytes = bytes;
  if (bytes) std::memcpy(reuse->data.get(), from, bytes);
  return reuse;
}

void RetentionBuffer::drop(std::shared_ptr<Buffer> buffer) {
  if (!buffer) return;
  counters_.kept_bytes -= buffer->bytes;
  spare_.push_back(std::move(buffer));
  if (spare_.size() > kSpareBuffers) spare_.erase(spare_.begin());
}

std::uint64_t RetentionBuffer::next_sequence() const {
  const std::scoped_lock lock(mutex_);
  return counters_.entered + 1;
}

void RetentionBuffer::begin(std::uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  counters_.entered = sequence;
}

void RetentionBuffer::complete(std::uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  counters_.done = sequence;
  ++counters_.operations;
}

void RetentionBuffer::count_batch() {
  const std::scoped_lock lock(mutex_);
  ++counters_.operations;
  for (auto& [slot, pair] : pairs_)
    pair.received_for_good = std::max(pair.received_for_good, pair.received);
}

std::uint64_t RetentionBuffer::count_child() {
  const std::scoped_lock lock(mutex_);
  ++counters_.operations;
  return ++children_;
}

Buffers RetentionBuffer::keep(std::uint64_t sequence, const Operation& operation, Ring ring) {
  const std::scoped_lock lock(mutex_);
  // Both under one lock: what was begun and is not kept is taken for gone.
  counters_.entered = sequence;
  Kept& kept = kept_[sequence];
  kept.operation = operation, kept.ranks = ring.size;
  const std::size_t bytes = input_bytes(operation, ring);
  if (!needs_copy(operation)) return operation.buffers;
  kept.input = fill(nullptr, operation.buffers.in, bytes);
  return {bytes ? kept.input->data.get() : operation.buffers.in, operation.buffers.out};
}

void RetentionBuffer::complete(std::uint64_t sequence, const Operation& operation, Ring ring,
                               bool recorded) {
  const std::scoped_lock lock(mutex_);
  counters_.done = sequence;
  Kept& kept = kept_[sequence];
  kept.number = ++counters_.operations, kept.recorded = recorded;
  if (identical_output(operation.op.collective))
    kept.output = fill(std::move(kept.input), operation.buffers.out, output_bytes(operation, ring));
}

std::uint64_t RetentionBuffer::heard(int slot, std::uint32_t epoch) const {
  const std::scoped_lock lock(mutex_);
  const auto found = heard_.find(slot);
  return found != heard_.end() && found->second.epoch == epoch ? found->second.done : 0;
}

// Precondition: mutex_ is held.
RetentionBuffer::MembershipUpdate RetentionBuffer::news(int slot) const {
  const auto pair = pairs_.find(slot);
  return {counters_.done, pair == pairs_.end() ? 0 : pair->second.received_for_good};
}

RetentionBuffer::MembershipUpdate RetentionBuffer::membership_for(int slot) const {
  const std::scoped_lock lock(mutex_);
  return news(slot);
}

void RetentionBuffer::has_told(int slot, std::uint32_t epoch, MembershipUpdate news) {
  const std::scoped_lock lock(mutex_);
  told_[slot] = {epoch, news};
}

bool RetentionBuffer::must_tell(int slot) const {
  const std::scoped_lock lock(mutex_);
  const MembershipUpdate now = news(slot);
  const auto found = told_.find(slot);
  if (found == told_.end()) return now.done || now.received;
  const MembershipUpdate& then = found->second.news;
  return found->second.epoch != self_->epoch || now.done > then.done ||
         now.received > then.received;
}

void RetentionBuffer::release(std::uint64_t all_done) {
  const std::scoped_lock lock(mutex_);
  counters_.all_done = std::max(counters_.all_done, std::min(all_done, counters_.done));
  while (!kept_.empty() && kept_.begin()->first <= counters_.all_done) {
    drop(std::move(kept_.begin()->second.input));
    drop(std::move(kept_.begin()->second.output));
    kept_.erase(kept_.begin());
  }
}

std::uint64_t RetentionBuffer::keep_message(int to, const std::byte* from, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  Pair& pair = pairs_[to];
  pair.messages[++pair.sent] = {fill(nullptr, from, bytes), counters_.operations + 1};
  return pair.sent;
}

std::uint64_t RetentionBuffer::count_message(int to) {
  const std::scoped_lock lock(mutex_);
  return ++pairs_[to].sent;
}

void RetentionBuffer::release_messages(int to, std::uint64_t received) {
  const std::scoped_lock lock(mutex_);
  forget_messages(to, received);
}

// Precondition: mutex_ is held.
void RetentionBuffer::forget_messages(int to, std::uint64_t received) {
  auto& messages = pairs_[to].messages;
  while (!messages.empty() && messages.begin()->first <= received) {
    drop(std::move(messages.begin()->second.buffer));
    messages.erase(messages.begin());
  }
}

std::uint64_t RetentionBuffer::sent_at_fence(int to) const {
  const std::scoped_lock lock(mutex_);
  const auto found = pairs_.find(to);
  return found == pairs_.end() ? 0 : found->second.sent_at_fence;
}

std::uint64_t RetentionBuffer::received(int from) const {
  const std::scoped_lock lock(mutex_);
  const auto found = pairs_.find(from);
  return found == pairs_.end() ? 0 : found->second.received;
}

void RetentionBuffer::receive(int from) {
  const std::scoped_lock lock(mutex_);
  ++pairs_[from].received;
}

bool RetentionBuffer::knows_pair(int slot) const {
  const std::scoped_lock lock(mutex_);
  return !joined_ || pairs_.contains(slot);
}

void RetentionBuffer::set_pair(int slot, std::uint64_t sent, std::uint64_t received) {
  const std::scoped_lock lock(mutex_);
  Pair& pair = pairs_[slot];
  pair.sent = pair.sent_at_fence = sent;
  pair.received = pair.received_for_good = received;
}

void RetentionBuffer::restart(const LogPosition& now, const LogPosition& end, std::uint64_t open,
                              const std::vector<Inherited>& inherited) {
  const std::scoped_lock lock(mutex_);
  counters_ = {.entered = now.sequence,
               .done = now.sequence,
               .all_done = std::min(open - 1, now.sequence),
               .operations = now.operation};
  for (const Inherited& one : inherited)
    kept_[one.sequence] = {.operation = one.operation,
                           .ranks = one.ring.size,
                           .input = nullptr,
                           .output = fill(nullptr, one.output.data(), one.output.size()),
                           .number = now.operation,
                           .recorded = true};
  children_ = now.children;
  serves_after_ = counters_.all_done;
  claimed_ = done_at_fence_ = std::max(now.sequence, end.sequence);
  for (int slot = 0; slot < self_->slots(); ++slot) pairs_[slot];
  for (const auto& [slot, pair] : now.pairs)
    pairs_[slot].sent = pair.sent, pairs_[slot].received = pair.received;
  for (const auto& [slot, pair] : end.pairs) {
    Pair& here = pairs_[slot];
    here.sent_before = here.sent_at_fence = pair.sent, here.received_for_good = pair.received;
  }
}

LogPosition RetentionBuffer::position_now() const {
  const std::scoped_lock lock(mutex_);
  LogPosition now{counters_.operations, counters_.done, children_, {}};
  for (const auto& [slot, pair] : pairs_) now.pairs[slot] = {pair.sent, pair.received};
  return now;
}

void RetentionBuffer::fence(std::shared_ptr<const Membership> self, std::span<const int> changed) {
  const std::scoped_lock lock(mutex_);
  self_ = std::move(self);
  done_at_fence_ = std::max(counters_.done, claimed_);
  for (auto& [slot, pair] : pairs_) pair.sent_at_fence = std::max(pair.sent_at_fence, pair.sent);
  for (const int slot : changed) {
    const auto pair = pairs_.find(slot);
    if (pair == pairs_.end()) continue;
    pair->second.sent_before = pair->second.sent_at_fence;
    if (self_->position(slot) < 0) forget_messages(slot, UINT64_MAX);  // it was removed
  }
}

Counters RetentionBuffer::counters() const {
  const std::scoped_lock lock(mutex_);
  Counters now = counters_;
  now.owed = owed();
  return now;
}

// Precondition: mutex_ is held.
std::uint64_t RetentionBuffer::owed() const {
  std::uint64_t first = 0;
  const auto owe = [&first](std::uint64_t number) {
    if (number && (!first || number < first)) first = number;
  };
  for (const auto& [sequence, kept] : kept_)
    if (!kept.recorded) owe(kept.number);
  for (const auto& [slot, pair] : pairs_)
    if (!pair.messages.empty()) owe(pair.messages.begin()->second.number);
  return first;
}

std::vector<int> RetentionBuffer::debtors() const {
  const std::scoped_lock lock(mutex_);
  std::vector<int> slots;
  for (const auto& [slot, pair] : pairs_)
    if (!pair.messages.empty()) slots.push_back(slot);
  return slots;
}

// Precondition: mutex_ is held.
Availability RetentionBuffer::find(const Question& question, std::shared_ptr<Buffer>* found) {
  if (question.verb == Verb::kMessage) {
    const auto known = pairs_.find(static_cast<int>(question.slot));
    if (known == pairs_.end()) return Availability::kNotYet;
    const Pair& pair = known->second;
    const auto message = pair.messages.find(question.sequence);
    if (message == pair.messages.end())
      return question.sequence > pair.sent ? Availability::kNotYet : Availability::kGone;
    *found = message->second.buffer;
    return Availability::kHere;
  }
  const auto kept = kept_.find(question.sequence);
  if (kept == kept_.end())
    return question.sequence > counters_.entered ? Availability::kNotYet : Availability::kGone;
  *found = question.verb == Verb::kOutput ? kept->second.output : kept->second.input;
  if (*found) return Availability::kHere;
  return question.sequence > counters_.done ? Availability::kNotYet : Availability::kGone;
}

Answer RetentionBuffer::answer(const Question& question, std::shared_ptr<const void>* owner,
                               std::span<const std::byte>* payload) {
  const std::scoped_lock lock(mutex_);
  Answer answer{.epoch = self_->epoch,
                .done = counters_.done,
                .done_at_fence = done_at_fence_,
                .serves_after = serves_after_};
  if (question.verb == Verb::kAddress) {
    if (question.offset < self_->addresses.size())
      answer.address = self_->addresses[question.offset];
    return answer;
  }
  if (question.epoch != self_->epoch) return answer.availability = Availability::kNotYet, answer;
  if (question.verb == Verb::kStatus) {
    const auto known = pairs_.find(static_cast<int>(question.slot));
    if (question.offset == kForGood) {
      heard_[static_cast<int>(question.slot)] = {question.epoch, question.sequence};
      if (known != pairs_.end()) forget_messages(known->first, question.bytes);
    }
    if (known == pairs_.end()) return answer;
    const Pair& pair = known->second;
    answer.sent_at_fence = pair.sent_at_fence;
    answer.sent = pair.sent;
    answer.sent_before = pair.sent_before;
    // What a rank repeats has come to its predecessor: it must not come again.
    answer.received = question.offset == kForGood ? pair.received_for_good
                                                  : std::max(pair.received, pair.received_for_good);
    return answer;
  }
  std::shared_ptr<Buffer> found;
  answer.availability = find(question, &found);
  if (!found) return answer;
  if (question.bytes > found->bytes || question.offset > found->bytes - question.bytes)
    return answer.availability = Availability::kGone, answer;
  *payload = {found->data.get() + question.offset, question.bytes};
  *owner = std::make_shared<Reader>(found);
  if (question.verb == Verb::kMessage) return answer;
  const Kept& kept = kept_[question.sequence];
  answer.ranks = static_cast<std::uint32_t>(kept.ranks);
  if (question.verb != Verb::kInput) return answer;
  Reduction reduction = kept.operation.reduction;
  if (!reduction.premultiplies) return answer;
  // The asking rank averages over those that are left in its epoch, which is this one's.
  if (kept.operation.op.redop == ncclAvg) reduction = average(reduction.dtype, self_->ring().size);
  const auto scaled = std::make_shared<std::vector<std::byte>>(question.bytes);
  premultiply(reduction, payload->data(), scaled->data(),
              question.bytes / element_size(reduction.dtype));
  *payload = *scaled;
  *owner = scaled;
  return answer;
}

}  // namespace flexccl
