// The part of OperationRunner that completes operations from what other members keep.
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/waiting.h"
#include "runner/operation_runner.h"

namespace flexccl {
namespace {

constexpr std::chrono::milliseconds kAskAgain(1), kAskTheSilent(10), kAskForNews(50);
constexpr std::uint64_t kAnswerMs = 3000;
constexpr std::size_t kPieceBytes = 4 << 20;  // between two looks whether there is a repair

Asked asked(const Membership& self, int slot, const Address& address) {
  return {address,        self.comm, static_cast<std::uint32_t>(slot),
          self.transport, self.key,  in_ms(std::min(self.timeout_ms, kAnswerMs))};
}

}  // namespace

Address OperationRunner::find_address(const Membership& self, int slot) {
  if (self.address(slot).port) return self.address(slot);
  for (const int member : self.members) {
    if (member == self.slot || !self.address(member).port) continue;
    try {
      const Answer answer =
          ask({self.address(member), self.comm, static_cast<std::uint32_t>(member), self.transport,
               self.key, in_ms(kAnswerMs)},
              {.verb = Verb::kAddress,
               .slot = static_cast<std::uint32_t>(self.slot),
               .epoch = self.epoch,
               .offset = static_cast<std::uint64_t>(slot)});
      if (answer.address.port) return answer.address;
    } catch (const Error&) {
      // That one is gone; the next may know.
    }
  }
  fail(ncclRemoteError, "flexccl: no rank that rank [", self.slot, "] knows has the address of [",
       slot, "]");
}

Address OperationRunner::locate(int slot) {
  if (membership_->address(slot).port) return membership_->address(slot);
  const Address found = find_address(*membership_, slot);
  Membership next = *membership_;
  next.addresses.set(static_cast<std::size_t>(slot), found);
  const std::scoped_lock lock(mutex_);
  published_ = membership_ = std::make_shared<const Membership>(std::move(next));
  return found;
}

Answer OperationRunner::ask_slot(int slot, Question question, std::span<std::byte> to) {
  question.slot = static_cast<std::uint32_t>(membership_->slot);
  question.epoch = membership_->epoch;
  const Address& known = membership_->address(slot);
  return ask({known.port ? known : locate(slot), membership_->comm,
              static_cast<std::uint32_t>(slot), membership_->transport, membership_->key,
              in_ms(std::min(membership_->timeout_ms, kAnswerMs))},
             question, to);
}

Answer OperationRunner::status_of(int slot, const Address& address) const {
  const auto now = view();
  return ask(asked(*now, slot, address),
             {.slot = static_cast<std::uint32_t>(now->slot), .epoch = now->epoch});
}

Answer OperationRunner::exchange_membership(const Membership& self, int slot) {
  const RetentionBuffer::MembershipUpdate news = retention_->membership_for(slot);
  const Answer answer = ask(asked(self, slot, find_address(self, slot)),
                            {.slot = static_cast<std::uint32_t>(self.slot),
                             .epoch = self.epoch,
                             .sequence = news.done,
                             .offset = kForGood,
                             .bytes = news.received});
  if (answer.availability == Availability::kHere) retention_->has_told(slot, self.epoch, news);
  return answer;
}

void OperationRunner::never_comes(int slot, const Error& error) {
  set_paused(std::nullopt);
  throw NeverComes(error.code,
                   "flexccl: rank [" + std::to_string(membership_->slot) +
                       "] needs something of rank [" + std::to_string(slot) +
                       "], which has ended, and no rank takes its place: " + error.what());
}

// A rank that does not answer is gone, and will be replaced; or it has not made this communicator
// yet, because it needs the operation of another one that this rank repeats first; or too many ask
// it at once.
Answer OperationRunner::ask_patiently(int slot, const Question& question, std::span<std::byte> to,
                                      std::optional<Deadline> until) {
  const Deadline deadline = until.value_or(in_ms(membership_->repair_ms));
  for (Every news(kAskForNews);; std::this_thread::sleep_for(kAskTheSilent)) {
    look_up();
    try {
      const Answer answer = ask_slot(slot, question, to);
      set_paused(std::nullopt);
      return answer;
    } catch (const Error& error) {
      if (has_left(slot) && error.code == ncclRemoteError) never_comes(slot, error);
      if (error.code != ncclRemoteError) {
        set_paused(std::nullopt);
        throw;
      }
      const bool over = has_passed(deadline);
      set_paused(over ? std::nullopt : std::optional<int>(slot));
      if (over)
        throw NoRepair(error.code, std::string(error.what()) + "; no repair came within [" +
                                       std::to_string(membership_->repair_ms) + "] ms");
    }
    if (news.is_due()) ask_for_news();
  }
}

Answer OperationRunner::ask_about(int slot, std::optional<Deadline> until) {
  if (const auto known = answers_.find(slot); known != answers_.end()) return known->second;
  const Deadline deadline = in_ms(membership_->timeout_ms + membership_->repair_ms);
  for (;;) {
    look_up();
    const Answer answer = ask_patiently(slot, {}, {}, until);
    if (answer.availability == Availability::kHere) return answers_[slot] = answer;
    if (answer.epoch < membership_->epoch) inform(slot);
    if (answer.epoch > membership_->epoch) hear_of(slot, answer.epoch);
    if (has_passed(deadline))
      fail(ncclRemoteError, "flexccl: rank [", membership_->slot, "]: rank [", slot,
           "] is still in epoch [", answer.epoch, "], not in [", membership_->epoch, "]");
    std::this_thread::sleep_for(kAskAgain);
  }
}

// One that has restarted behind a gap of its records has nothing of what lies in the gap.
bool OperationRunner::keeps_result(int slot, std::uint64_t sequence) {
  return ask_patiently(slot, {.verb = Verb::kOutput, .sequence = sequence}, {}).availability !=
         Availability::kGone;
}

// A rank that had completed the operation before this epoch; -1: none.
int OperationRunner::find_source(std::uint64_t sequence, const Operation& operation) {
  const Ring ring = membership_->ring();
  // Without its root the operation fails wherever it has no source, and a rank that fails answers
  // no more.
  std::optional<Deadline> until;
  if (lacks_root(operation)) until = in_ms(kAnswerMs);
  int lost = -1;
  for (int step = 1; step < ring.size; ++step) {
    const int slot = membership_->slot_at(ring.wrap(ring.rank - step));
    try {
      const Answer answer = ask_about(slot, until);
      if (answer.done_at_fence < sequence) continue;
      if (answer.serves_after < sequence &&
          (!identical_output(operation.op.collective) || keeps_result(slot, sequence)))
        return slot;
      lost = slot;
    } catch (const NeverComes&) {
      // Another one may have it; if none has, the operation says what it lacks.
    } catch (const NoRepair&) {
      if (!until) throw;
    }
  }
  if (lost >= 0)
    fail(ncclInvalidUsage, "flexccl: rank [", membership_->slot, "] needs operation [", sequence,
         "], which only the predecessor of rank [", lost,
         "] had completed; it has to replay from an"
         " earlier operation, or with records");
  settled_ = true, behind_ = false;
  return -1;
}

void OperationRunner::fetch(Question question, int slot, std::span<std::byte> to, bool blocks) {
  const Deadline deadline = in_ms(membership_->timeout_ms + membership_->repair_ms);
  const std::uint64_t begin = question.offset;
  for (std::size_t at = 0; at < to.size();) {
    look_up();
    const std::size_t piece = std::min(kPieceBytes, to.size() - at);
    question.offset = begin + at, question.bytes = piece;
    const Answer answer = ask_patiently(slot, question, to.subspan(at, piece));
    const auto ranks = static_cast<std::uint32_t>(membership_->ring().size);
    if (answer.availability == Availability::kHere && blocks && answer.ranks != ranks)
      fail(ncclInvalidUsage, "flexccl: rank [", membership_->slot, "]: rank [", slot,
           "] completed operation [", question.sequence, "] among [", answer.ranks,
           "] ranks, now there are [", ranks, "]");
    if (answer.availability == Availability::kHere) {
      at += piece;
      continue;
    }
    if (answer.availability == Availability::kGone)
      fail(ncclInvalidUsage, "flexccl: rank [", membership_->slot, "] needs operation [",
           question.sequence, "] of rank [", slot, "], which does not keep it any more");
    if (has_passed(deadline))
      fail(ncclRemoteError, "flexccl: rank [", membership_->slot, "]: rank [", slot,
           "] does not come to operation [", question.sequence, "]");
    std::this_thread::sleep_for(kAskAgain);
  }
}

// Sums what the schedules sum, in their order: positions c+1, c+2, ..., c.
void OperationRunner::fetch_sum(std::uint64_t sequence, const Operation& operation, Ring ring,
                                std::size_t offset, std::span<std::byte> to) {
  std::vector<std::byte> operand(to.size());
  Reduction plain = operation.reduction;
  plain.premultiplies = false;  // what is fetched is premultiplied
  const std::size_t count = to.size() / element_size(plain.dtype);
  for (int step = 1; step < ring.size; ++step) {
    const int slot = membership_->slot_at(ring.wrap(ring.rank + step));
    const std::span<std::byte> target = step == 1 ? to : std::span<std::byte>(operand);
    fetch({.verb = Verb::kInput, .sequence = sequence, .offset = offset}, slot, target,
          has_blocks(operation.op.collective));
    if (step > 1) combine(plain, to.data(), operand.data(), to.data(), count);
  }
  combine(operation.reduction, to.data(), operation.buffers.in + offset, to.data(), count);
  finish(operation.reduction, to.data(), count);
}

void OperationRunner::fetch_blocks(std::uint64_t sequence, const Operation& operation, Ring ring,
                                   Buffers buffers) {
  const std::size_t unit = operation.unit();
  const auto block = [unit](int position) { return static_cast<std::size_t>(position) * unit; };
  const bool whole = operation.op.collective == Collective::kGather;
  for (int position = 0; position < ring.size; ++position) {
    const std::size_t from = whole ? 0 : block(ring.rank);
    if (position == ring.rank) {
      if (unit) std::memmove(buffers.out + block(position), buffers.in + from, unit);
      continue;
    }
    fetch({.verb = Verb::kInput, .sequence = sequence, .offset = from},
          membership_->slot_at(position), {buffers.out + block(position), unit}, true);
  }
}

// Completes a collective that `source` had completed. Everything needed is still kept: this rank's
// counter says that it is not done here.
void OperationRunner::fetch_all(int source, std::uint64_t sequence, const Operation& operation,
                                Ring ring, Buffers buffers) {
  const std::size_t unit = operation.unit();
  const bool is_root = ring.rank == operation.op.root;
  switch (operation.op.collective) {
    case Collective::kReduceScatter:
      return fetch_sum(sequence, operation, ring, static_cast<std::size_t>(ring.rank) * unit,
                       {buffers.out, unit});
    case Collective::kReduce:
      if (is_root) fetch_sum(sequence, operation, ring, 0, {buffers.out, unit});
      return;
    case Collective::kAllToAll:
      return fetch_blocks(sequence, operation, ring, buffers);
    case Collective::kGather:
      if (is_root) fetch_blocks(sequence, operation, ring, buffers);
      return;
    case Collective::kScatter: {
      const std::size_t offset = static_cast<std::size_t>(ring.rank) * unit;
      if (!is_root)
        fetch({.verb = Verb::kInput, .sequence = sequence, .offset = offset},
              membership_->slot_at(operation.op.root), {buffers.out, unit}, true);
      else if (unit)
        std::memmove(buffers.out, buffers.in + offset, unit);
      return;
    }
    default:
      return fetch({.verb = Verb::kOutput, .sequence = sequence}, source,
                   {buffers.out, output_bytes(operation, ring)},
                   has_blocks(operation.op.collective));
  }
}

}  // namespace flexccl
