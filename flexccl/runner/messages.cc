// The part of OperationRunner for sends and receives, and what frees kept memory when nothing else
// does.
#include <algorithm>
#include <thread>

#include "base/waiting.h"
#include "runner/operation_runner.h"
#include "runner/reclaimer.h"
#include "runner/replay.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kGoodbyeMs = 3000;

int position_of(int slot, const Membership& self) {
  const int position = self.position(slot);
  if (position < 0)
    fail(ncclInvalidArgument, "flexccl: rank [", slot, "] was removed from the communicator");
  return position;
}

// Calls that name slots, as schedules want them.
std::vector<PointToPoint> by_position(std::vector<PointToPoint> calls, const Membership& self) {
  for (PointToPoint& call : calls) call.peer = position_of(call.peer, self);
  return calls;
}

}  // namespace

// A new rank goes on where its predecessor stopped, as far as its partners can tell. What they have
// sent since it came is for itself, also before a later step of the epoch.
void OperationRunner::meet_pairs(const std::vector<PointToPoint>& calls) {
  for (const PointToPoint& call : calls) {
    if (call.peer == membership_->slot || retention_->knows_pair(call.peer)) continue;
    static_cast<void>(position_of(call.peer, *membership_));  // or it would be asked in vain
    const Answer there = ask_about(call.peer);
    retention_->set_pair(call.peer, there.received, there.sent_before);
  }
}

void OperationRunner::run(const std::vector<PointToPoint>& calls) {
  const std::scoped_lock turn(turn_);
  catch_up();
  const LogPosition before = retention_->position_now();
  enter(before.operation + 1, before.sequence);
  if (records_.replaying()) return replay(calls);
  const Hash input = records_.active() ? input_hash(calls) : Hash();
  if (!keeps_) {
    const auto schedule = point_to_point(by_position(calls, *membership_), membership_->ring());
    once([&] { engine_.run(schedule, before.sequence); });
    for (const PointToPoint& call : calls)
      if (call.peer != membership_->slot)
        call.sends ? void(retention_->count_message(call.peer)) : retention_->receive(call.peer);
    record_batch(calls, before, input);
    return retention_->count_batch();
  }
  settle([&] { return meet_pairs(calls), true; });
  std::vector<Message> messages;
  std::map<int, std::uint64_t> received;
  for (const PointToPoint& call : calls) {
    Message message{.call = call};
    if (call.peer != membership_->slot && call.sends)
      message.index = retention_->keep_message(call.peer, call.buffers.in, message_bytes(call));
    else if (call.peer != membership_->slot)
      message.index = retention_->received(call.peer) + ++received[call.peer];
    messages.push_back(message);
  }
  settle([&] { return exchange(messages), true; });
  record_batch(calls, before, input);
  retention_->count_batch();
}

// Messages that were sent before this epoch are fetched, the others travel on the links.
bool OperationRunner::fetch_message(const PointToPoint& call, std::uint64_t index) {
  if (membership_->epoch == 0) return false;
  if (call.sends)
    return index <= retention_->sent_at_fence(call.peer) ||
           (joined_ && index <= ask_about(call.peer).received);
  static_cast<void>(position_of(call.peer, *membership_));
  if (index > ask_about(call.peer).sent_at_fence) return false;
  fetch({.verb = Verb::kMessage, .sequence = index}, call.peer,
        {call.buffers.out, message_bytes(call)});
  retention_->receive(call.peer);
  return true;
}

void OperationRunner::exchange(std::vector<Message>& messages) {
  std::vector<PointToPoint> open;
  std::vector<Message*> receives, own;
  for (Message& message : messages) {
    const bool to_itself = message.call.peer == membership_->slot;
    if (!message.done && !to_itself) message.done = fetch_message(message.call, message.index);
    if (message.done) continue;
    open.push_back(message.call);
    if (to_itself) own.push_back(&message);
    if (!to_itself && !message.call.sends) receives.push_back(&message);
  }
  const auto schedule = point_to_point(by_position(open, *membership_), membership_->ring());
  const auto note = [&] {
    for (Message* message : own) message->done = true;
    for (std::size_t i = 0; i < receives.size(); ++i)
      if (engine_.received()[i]) {
        receives[i]->done = true;
        retention_->receive(receives[i]->call.peer);
      }
  };
  try {
    engine_.run(schedule, retention_->counters().done);
  } catch (...) {
    note();
    throw;
  }
  note();
}

void OperationRunner::ask_around() {
  if (keeps_) hurry(this);
}

void OperationRunner::flush() {
  const Membership self = membership();
  const Counters counters = retention_->counters();
  std::uint64_t all = counters.done;
  const bool all_know = counters.all_done == counters.done;  // but for messages
  const std::vector<int> debtors = retention_->debtors();
  const auto owes = [&](int member) {
    return std::find(debtors.begin(), debtors.end(), member) != debtors.end();
  };
  for (const int member : self.members) {
    if (member == self.slot || (all_know && !owes(member))) continue;
    try {
      const Answer answer = exchange_membership(self, member);
      if (answer.availability != Availability::kHere) return;
      all = std::min(all, answer.done);
      if (owes(member)) retention_->release_messages(member, answer.received);
    } catch (const Error&) {
      // It is gone. What is kept may be needed, unless it has left, or had all when it asked last.
      if (has_left(member)) {
        if (owes(member)) retention_->release_messages(member, UINT64_MAX);
        continue;
      }
      if (owes(member) || retention_->heard(member, self.epoch) < counters.done) return;
    }
  }
  retention_->release(all);
}

void OperationRunner::say_goodbye() {
  if (!keeps_ || aborted_) return;
  const Membership self = membership();
  const Deadline deadline = in_ms(std::min(self.timeout_ms, kGoodbyeMs));
  for (const int member : self.members) {
    if (member == self.slot || !retention_->must_tell(member)) continue;
    if (has_passed(deadline)) return;
    try {
      exchange_membership(self, member);
    } catch (const Error&) {
      // It is gone, and keeps nothing any more.
    }
  }
}

}  // namespace flexccl
