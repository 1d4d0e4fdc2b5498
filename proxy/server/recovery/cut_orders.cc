#include "server/recovery/cut_orders.h"

#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr int kStoreAnswerMs = 10'000;
constexpr int kRoomAnswerMs = 5'000;
constexpr int kPeerAnswerMs = 2'000;  // the stores have it all

// Whatever an agent repeats that has taken over.
void raise(std::atomic<uint64_t>* step, uint64_t to) {
  if (step->load(std::memory_order_relaxed) < to) step->store(to, std::memory_order_release);
}

}  // namespace

// The dispatch thread may sleep. Who waits until a cut is settled looks at once whether it counts.
bool decide(ring::Channel& channel, const AgentMessage& message, Decided* decided) {
  if (message.kind == ring::MessageKind::kPaceOfOthers) {
    const uint64_t known = decided->pace.load(std::memory_order_relaxed);
    if (message.a && (!known || message.a < known)) decided->pace.store(message.a);
    return true;
  }
  const bool dropped = message.kind == ring::MessageKind::kDropped;
  if (!dropped && message.kind != ring::MessageKind::kSettled) return false;
  if (!dropped && message.b) raise(&decided->committed, message.a);
  raise(dropped ? &decided->dropped : &decided->settled, message.a);
  channel.control().doorbell.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(channel.control().doorbell);
  return true;
}

void Spilling::set(Capture* capture) {
  const std::lock_guard lock(mutex_);
  capture_ = capture;
}

bool Spilling::spill(const AgentMessage& message, AgentLink* agent) {
  if (message.kind != ring::MessageKind::kSpill) return false;
  const std::lock_guard lock(mutex_);
  const uint64_t missing = capture_ ? capture_->spill(message.b) : 1;
  agent->send(ring::MessageKind::kSpilled, message.a, missing);
  return true;
}

void tell_of_cuts(AgentLink& agent, SharedCommunicators* shared, RecoveryCalls* calls) {
  calls->captured = [&agent, shared](uint64_t step, uint64_t offset, uint64_t seq) {
    if (shared) return shared->tell(step, offset != 0, seq);
    agent.send(ring::MessageKind::kCaptured, step, offset, seq);
  };
  calls->withdraw = [&agent](uint64_t step) { agent.send(ring::MessageKind::kWithdraw, step); };
  if (shared) {
    calls->tell_pace = [&agent](uint64_t cuts) { agent.send(ring::MessageKind::kPace, cuts); };
    return;
  }
  calls->held = [&agent](uint64_t step, uint64_t seq) {
    agent.send(ring::MessageKind::kHeld, step, 1, seq);
  };
}

int ask_for_store(AgentLink& agent, uint64_t owner, uint64_t attempt) {
  agent.send(ring::MessageKind::kWantStore, owner, attempt);
  const auto answer = agent.wait(ring::MessageKind::kStore, owner, kStoreAnswerMs);
  return answer ? answer->fd : -1;
}

int ask_for_peer(AgentLink& agent, uint64_t attempt) {
  agent.send(ring::MessageKind::kWantPeer, attempt);
  const auto answer = agent.wait(ring::MessageKind::kPeer, attempt, kPeerAnswerMs);
  return answer ? answer->fd : -1;
}

bool ask_for_room(AgentLink& agent, uint64_t number) {
  agent.send(ring::MessageKind::kShort, number);
  const auto answer = agent.wait(ring::MessageKind::kRoom, number, kRoomAnswerMs);
  return !answer || answer->b;
}

}  // namespace pyft::server
