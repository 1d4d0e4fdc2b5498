#include "server/recovery/communicators.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr uint64_t kLetGoNs = 5'000'000'000;  // docs/deadlines.md
// What one interval fills a third with fits twice behind a commit that comes one interval late.
constexpr uint64_t kCrowdedPart = 3;
// The next operation's frames tell it without a question, in most programs.
constexpr uint64_t kAskNs = 2'000'000, kAskSeldomNs = 64'000'000;

checkpoint::Recovery* reports_to = nullptr;

// The operation stands in a stream: the dispatch thread has come to its entry, and may have gone
// on.
void report_divergence(uint64_t, uint64_t, const char* sentence) {
  if (reports_to) reports_to->differed({reports_to->dispatching(), 0, sentence});
}

// A named point of rank R is `communicator.STAGE.R`.
void fault_point(const char* stage, int rank) {
  if (fault::armed.load(std::memory_order_relaxed))
    fault::reached((std::string("communicator.") + stage + "." + std::to_string(rank)).c_str());
}

}  // namespace

std::string RepairedCommunicators::named(uint64_t key) {
  return "communicator [" + std::to_string(key) + "]";
}

RepairedCommunicators::RepairedCommunicators(ring::Channel& channel, checkpoint::Recovery& recovery)
    : channel_(channel), recovery_(recovery), table_(channel) {
  if (recovery.repairs()) repair_ = backend::Repair::load();
}

void RepairedCommunicators::start(AgentLink* link) {
  link_ = link;
  if (!active()) return;
  reports_to = &recovery_;
  repair_->set_diverged(report_divergence);
  tell_when_making();
}

void RepairedCommunicators::made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  backend::CommunicatorState state;
  if (!repair_->state(comm, &state)) return;
  fault_point("exists", rank);
  ring::StoredCommunicator* const entry = table_.entry_for(handle, seq);
  if (!entry) return;
  if (!entry->handle) {
    ring::StoredCommunicator fresh{};
    fresh.handle = handle;
    fresh.seq = seq;
    fresh.key = state.key;
    fresh.rank = rank;
    fresh.size = size;
    table_.put(entry, fresh);
    fault_point("in_table", rank);
  }
  entry->ended_seq = 0;
  const std::span<std::byte> region = table_.records(*entry);
  if (repair_->set_records(comm, region.data(), region.size()))
    PYFT_LOG(kRecovery, kWarning, "device [%u]: %s is not recorded: %s", channel_.device(),
             named(state.key).c_str(), repair_->last_error());
  live_[handle] = {comm, state.key, rank};
  fault_point("recorded", rank);
  link_->send(msg::Made{.key = state.key, .rank = rank, .size = size});
  fault_point("made", rank);
}

void RepairedCommunicators::ended(uint64_t handle, uint64_t seq) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  live_.erase(handle);
  ring::StoredCommunicator* const entry = table_.living(handle);
  if (!entry) return;
  entry->ended_seq = seq;
  link_->send(msg::Ended{.key = entry->key, .rank = entry->rank});
}

// In the watchdog's thread.
void RepairedCommunicators::failed(void* comm) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_)
    if (live.comm == comm && !std::exchange(live.failed, true))
      link_->send(msg::Broken{.key = live.key, .rank = live.rank});
}

void RepairedCommunicators::minted(std::span<const std::byte> id) {
  uint64_t key = 0;
  if (active() && repair_->number_of(id, &key)) link_->send(msg::Minted{.key = key});
}

void RepairedCommunicators::let_go(uint64_t handle) {
  if (!active()) return;
  void* comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found != live_.end()) comm = found->second.comm;
  }
  const uint64_t deadline = ring::now_ns() + kLetGoNs;
  backend::CommunicatorState state;
  for (int turn = 0; comm && repair_->state(comm, &state) && state.kept_bytes; ++turn) {
    if (ring::now_ns() > deadline) break;
    if (turn % 16 == 0) repair_->ask_around(comm);
    usleep(1000);
  }
}

void RepairedCommunicators::at_cut(uint64_t cut) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_) {
    ring::StoredCommunicator* const entry = table_.living(handle);
    backend::CommunicatorState state;
    if (!entry || !repair_->state(live.comm, &state)) continue;
    table_.note_line(entry, cut, state.operation);
    live.uncommitted.push_back({cut, state.operation, state.done});
    live.ask_ns = ring::now_ns() + kAskNs;
    live.pause_ns = kAskNs;
  }
}

bool RepairedCommunicators::acknowledged(uint64_t cut) {
  if (!active()) return true;
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (auto& [handle, live] : live_) {
    const auto line = std::find_if(live.uncommitted.begin(), live.uncommitted.end(),
                                   [cut](const Line& one) { return one.cut == cut; });
    backend::CommunicatorState state;
    if (line == live.uncommitted.end() || !repair_->state(live.comm, &state)) continue;
    if (!state.owed || state.owed > line->operation) continue;
    all = false;
    if (ring::now_ns() < live.ask_ns) continue;
    live.pause_ns = std::min(live.pause_ns * 2, kAskSeldomNs);
    live.ask_ns = ring::now_ns() + live.pause_ns;
    repair_->ask_around(live.comm);
  }
  return all;
}

bool RepairedCommunicators::log_pressure() {
  if (!active()) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(live_, [this](const auto& one) {
    backend::CommunicatorState state;
    return repair_->state(one.second.comm, &state) &&
           state.record_bytes > state.record_budget / kCrowdedPart;
  });
}

// Records are given up when no replay of this rank reaches back to them, and no other rank needs
// anything that only such a replay could make again.
void RepairedCommunicators::published(uint64_t cut, uint64_t seq) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_) {
    backend::CommunicatorState state;
    if (!repair_->state(live.comm, &state)) continue;
    uint64_t operation = 0;
    while (!live.uncommitted.empty() && live.uncommitted.front().cut <= cut &&
           state.all_done >= live.uncommitted.front().done) {
      operation = live.uncommitted.front().operation;
      live.uncommitted.pop_front();
    }
    if (operation) repair_->committed(live.comm, operation);
  }
  table_.ended_before(seq, [this](ring::StoredCommunicator& entry) {
    const std::span<std::byte> region = table_.records(entry);
    repair_->forget(region.data(), region.size());
    table_.drop(entry);
    table_.drop_records(entry);
  });
}

}  // namespace pyft::server
