#include "server/recovery/cut_orders.h"

#include "ring/wait.h"

namespace pyft::server {

namespace {

// Whatever an agent repeats that has taken over.
void raise(std::atomic<uint64_t>* step, uint64_t to) {
  if (step->load(std::memory_order_relaxed) < to) step->store(to, std::memory_order_release);
}

}  // namespace

// The dispatch thread may sleep. The thread that waits until a cut is settled looks at once whether
// it counts.
bool decide(ring::Channel& channel, const AgentMessage& message, Decided* decided) {
  if (const auto others = message.as<msg::PaceOfOthers>()) {
    const uint64_t known = decided->interval.load(std::memory_order_relaxed);
    if (others->cuts && (!known || others->cuts < known)) decided->interval.store(others->cuts);
    return true;
  }
  const auto abort = message.as<msg::Abort>();
  const auto commit = message.as<msg::Commit>();
  if (!abort && !commit) return false;
  if (commit && commit->final) raise(&decided->committed, commit->step);
  if (commit) raise(&decided->agreed, commit->step);
  if (abort) raise(&decided->aborted, abort->step);
  channel.control().doorbell.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(channel.control().doorbell);
  return true;
}

void CutMessages::staged(uint64_t step, uint64_t offset, uint64_t seq) {
  if (rebuilt_) return offset ? void() : rebuilt_->tell_passed(step);
  agent_.send(msg::Staged{.step = step, .table_offset = offset, .entry = seq});
}

void CutMessages::prepared(uint64_t step, uint64_t seq) {
  if (rebuilt_) return rebuilt_->tell_prepared(step, seq);
  agent_.send(msg::Prepared{.step = step, .whole = true, .entry = seq});
}

void CutMessages::request_decision(uint64_t step) {
  agent_.send(msg::DecisionRequest{.step = step});
}

void CutMessages::tell_pace(uint64_t cuts) {
  if (rebuilt_) agent_.send(msg::Pace{.cuts = cuts});
}

void Spilling::set(checkpoint::Snapshotter* snapshotter) {
  const std::lock_guard lock(mutex_);
  snapshotter_ = snapshotter;
}

bool Spilling::spill(const AgentMessage& message, AgentLink* agent) {
  const auto order = message.as<msg::Spill>();
  if (!order) return false;
  const std::lock_guard lock(mutex_);
  const uint64_t missing = snapshotter_ ? snapshotter_->spill(order->step) : 1;
  agent->send(msg::Spilled{.number = order->number, .missing = missing});
  return true;
}

}  // namespace pyft::server
