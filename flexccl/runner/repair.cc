// The part of OperationRunner for steps of the epoch: agreeing to them, deciding them, taking them,
// and passing them on to ranks that are behind.
#include <algorithm>

#include "base/waiting.h"
#include "runner/operation_runner.h"
#include "transport/join.h"

namespace flexccl {
namespace {

// A new rank mostly calls at once; if it does not, it is asked whether it is there.
constexpr std::chrono::microseconds kCallsWithin(300);
constexpr std::chrono::milliseconds kLook(2), kDoubt(1), kQuestion(20);
constexpr std::uint64_t kAnswerMs = 3000;

Asked asked_at(const Membership& self, int slot, Deadline deadline) {
  return {OperationRunner::find_address(self, slot),
          self.comm,
          static_cast<std::uint32_t>(slot),
          self.transport,
          self.key,
          std::min(deadline, in_ms(kAnswerMs))};
}

// The live slots but its own, the nearest first, going up or down.
std::vector<int> others(const Membership& self, bool up) {
  const Ring ring = self.ring();
  std::vector<int> slots;
  for (int step = 1; step < ring.size; ++step)
    slots.push_back(self.slot_at(ring.wrap(ring.rank + (up ? step : -step))));
  return slots;
}

// A new rank's way to its neighbour on one side.
struct Side {
  std::vector<int> slots;  // that may be it, the nearest first
  std::optional<JoinCall> call = {};

  bool talks_with_next_of(const Side& other) const {
    return call && call->slot() == other.slots.front();
  }
};

}  // namespace

Membership OperationRunner::newest() const {
  const auto self = view();
  return after(*self, steps_->decided(self->epoch));
}

std::shared_ptr<const Membership> OperationRunner::expected() const {
  const auto self = view();
  const std::vector<Change> steps = steps_->expected(self->epoch);
  if (steps.empty()) return self;
  for (const Change& step : steps)
    if (step.slot == self->slot) return self;  // the next operation says that
  return std::make_shared<const Membership>(after(*self, steps));
}

void OperationRunner::learn(const std::vector<Change>& steps) {
  if (!steps.empty() && !steps_->learn(steps))
    fail(ncclInvalidUsage, "flexccl: rank [", view()->slot, "] knows another step to epoch [",
         steps.back().epoch, "] than the one for slot [", steps.back().slot,
         "]: begin again from a rank with the highest epoch");
}

void OperationRunner::change(const std::vector<Change>& steps) {
  const std::scoped_lock control(control_);
  learn(steps);
  steps_->agree(steps.back());
  while (!take_if_idle()) {
    Lock lock(mutex_);
    if (published_->epoch >= steps.back().epoch) return;
    interrupt(lock);
    changed_.wait_for(lock, kLook);
  }
}

void OperationRunner::agree(const std::vector<Change>& steps) {
  const Change& last = steps.back();
  learn({steps.begin(), steps.end() - 1});
  const Steps::Vote vote = steps_->vote(last);
  if (vote != Steps::Vote::kOpen && vote != Steps::Vote::kAgreed) return change(steps);
  const Membership self = newest();
  const auto [before, behind] = neighbours(self, last.slot);
  if (self.slot == before || self.slot == behind) greet(self, last);
  steps_->agree(last);
  look();
}

// It must be there before any rank waits for its decision.
void OperationRunner::greet(const Membership& self, const Change& step) {
  if (steps_->wait_for_voter(step, kCallsWithin)) return;
  try {
    const Answer there = status_of(step.slot, step.address);
    if (there.epoch != step.epoch)
      fail(ncclRemoteError, "it is in epoch [", there.epoch, "], not in [", step.epoch, "]");
  } catch (const Error& error) {
    fail(error.code, "flexccl: rank [", self.slot, "] stays in epoch [", self.epoch,
         "], the new rank [", step.slot, "] does not answer: ", error.what());
  }
}

void OperationRunner::look() {
  try {
    if (steps_->any_ready(view()->epoch) && !take_if_idle()) interrupt(Lock(mutex_));
  } catch (const Error&) {
    // It has lost its place: the next operation says so.
  }
}

bool OperationRunner::take_if_idle() {
  const Lock turn(turn_, std::try_to_lock);
  if (turn) apply(true);
  return turn.owns_lock();
}

// Under the lock: an interruption after its repair would have no end.
void OperationRunner::interrupt(const Lock&) {
  if (keeps_ && steps_->any_ready(published_->epoch)) engine_.interrupt();
  changed_.notify_all();
}

// Precondition of what follows: the calling thread has the turn.
void OperationRunner::catch_up() {
  apply();
  if (steps_->in_doubt(membership_->epoch)) wait_for_decision();
}

void OperationRunner::wait_for_decision() {
  const std::uint64_t longest_ms = membership_->timeout_ms + membership_->repair_ms;
  const Deadline deadline = in_ms(longest_ms);
  for (Every question(kQuestion); steps_->in_doubt(membership_->epoch) && !aborted_;) {
    {
      Lock lock(mutex_);
      changed_.wait_for(lock, kDoubt);
    }
    if (question.is_due()) {
      ask_for_news();
      // The rank that was to decide has ended before: there was no such step.
      const std::vector<Change> doubtful = steps_->expected(membership_->epoch);
      if (!doubtful.empty() && has_left(doubtful.back().slot)) break;
    }
    if (has_passed(deadline))
      fail(ncclRemoteError, "flexccl: rank [", membership_->slot, "] waited [", longest_ms,
           "] ms for the new rank to which it had agreed in epoch [", membership_->epoch, "]");
  }
  apply();
}

void OperationRunner::hear_of(int slot, std::uint32_t epoch) {
  if (steps_->newest() >= epoch) return;
  std::byte told[Info::kMaxChanges * sizeof(Change)] = {};
  ask_slot(slot, {.verb = Verb::kSteps}, told);
  learn(steps_in(told));
}

void OperationRunner::ask_for_news() {
  for (const int slot : others(*membership_, true)) {
    try {
      hear_of(slot, membership_->epoch + 1);
    } catch (const Error&) {
      // That one is gone, or knows something else.
    }
  }
}

void OperationRunner::inform(int slot) {
  if (!informed_.insert(slot).second) return;
  try {
    tell(*membership_, slot, locate(slot));
  } catch (const Error&) {
    informed_.erase(slot);
  }
}

bool OperationRunner::has_taken(int slot) {
  const bool has = ask_slot(slot, {}, {}).epoch >= membership_->epoch;
  if (!has) inform(slot);
  return has;
}

// One conversation with the nearest rank on each side that can be reached; those that are gone are
// passed over, another repair will be theirs. Step by step with both, so that they wake together.
// Where one rank is nearest on both sides, one of them talks with it.
std::vector<JoinCall> OperationRunner::call_both_sides(const Membership& self, Deadline deadline) {
  const auto step = std::as_bytes(std::span(&self.changes.back(), 1));
  const auto own = static_cast<std::uint32_t>(self.slot);
  const std::function<void(Side&)> talk[] = {
      [&](Side& side) {
        side.call.emplace(asked_at(self, side.slots.front(), deadline), own, self.epoch);
      },
      [&](Side& side) { side.call->speak(step); },
      [](Side& side) { side.call->wait_for_welcome(); }};
  const auto advance = [&](Side& side, const Side& other, int stage) {
    while (!side.slots.empty() && !other.talks_with_next_of(side)) {
      try {
        for (int next = side.call ? stage : 0; next <= stage; ++next) talk[next](side);
        return;
      } catch (const Error& error) {
        if (error.code != ncclRemoteError || has_passed(deadline)) throw;
        side.call.reset();
        side.slots.erase(side.slots.begin());
      }
    }
  };
  Side up{others(self, true)}, down{others(self, false)};
  for (int stage = 0; stage < static_cast<int>(std::size(talk)); ++stage) {
    advance(up, down, stage);
    advance(down, up, stage);
  }
  std::vector<JoinCall> calls;
  for (Side* side : {&up, &down})
    if (side->call) calls.push_back(std::move(*side->call));
  if (calls.empty())
    fail(ncclRemoteError, "flexccl: the new rank [", self.slot, "] reaches none of the others");
  return calls;
}

void OperationRunner::take_place() {
  const auto self = view();
  const Deadline deadline = in_ms(self->timeout_ms);
  std::vector<JoinCall> calls = call_both_sides(*self, deadline);
  std::shared_ptr<MembershipLog> log = steps_->log();
  for (JoinCall& call : calls) {
    Fd there;
    const Answer answer = call.wait_for_answer(deadline, &there);
    if (answer.availability != Availability::kHere)
      fail(ncclInvalidUsage, "flexccl: the new rank [", self->slot, "] was to come with epoch [",
           self->epoch, "], rank [", call.slot(), "] knows another step of epoch [", answer.epoch,
           "]: begin again from a rank with the highest epoch");
    if (!log) log = MembershipLog::adopt(std::move(there), *self);
  }
  if (log && !log->publish(self->changes))
    fail(ncclInvalidUsage, "flexccl: the new rank [", self->slot, "] was to come with epoch [",
         self->epoch, "], for which something else was decided meanwhile");
  if (log) placed_.store(true, std::memory_order_release);
  for (JoinCall& call : calls) {
    call.decide();
    placed_.store(true, std::memory_order_release);  // the thread that hears of it first
  }
  if (log) {
    log->set_reader(self->slot, true);
    return steps_->set_log(std::move(log));
  }
  for (JoinCall& call : calls) call.wait_for_receipt(deadline);
}

}  // namespace flexccl
