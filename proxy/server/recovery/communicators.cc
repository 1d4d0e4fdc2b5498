#include "server/recovery/communicators.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

// Longer than any recovery: the agent's deadlines end a rank's wait, not flexccl's.
constexpr uint64_t kPatienceMs = 3'600'000;
constexpr uint64_t kLetGoNs = 5'000'000'000;  // docs/deadlines.md
// What one interval fills a third with fits twice behind a commit that comes one interval late.
constexpr uint64_t kCrowdedPart = 3;
// The next operation's frames tell it without a question, in most programs.
constexpr uint64_t kAskNs = 2'000'000, kAskSeldomNs = 64'000'000;

Recovery* reports_to = nullptr;

// The operation stands in a stream: the dispatch thread has come to its entry, and may have gone
// on.
void report_divergence(uint64_t, uint64_t, const char* sentence) {
  if (reports_to) reports_to->differed({reports_to->dispatching(), 0, sentence});
}

ring::StoredCommunicator* entry_of(ring::StoredCommunicator* table, uint64_t handle) {
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table[i].handle == handle && !table[i].ended_seq) return &table[i];
  return nullptr;
}

// A named point of rank R is `communicator.STAGE.R`.
void fault_point(const char* stage, int rank) {
  if (fault::armed.load(std::memory_order_relaxed))
    fault::reached((std::string("communicator.") + stage + "." + std::to_string(rank)).c_str());
}

}  // namespace

std::string LastingCommunicators::named(uint64_t key) {
  return "communicator [" + std::to_string(key) + "]";
}

LastingCommunicators::LastingCommunicators(ring::Channel& channel, Recovery& recovery)
    : channel_(channel), recovery_(recovery) {
  if (!recovery.repairs()) return;
  repair_ = backend::Repair::load();
  header_ = reinterpret_cast<ring::StoreHeader*>(channel.store());
}

void LastingCommunicators::start(AgentLink* link) {
  link_ = link;
  if (!active()) return;
  repair_->set_patience(kPatienceMs);
  reports_to = &recovery_;
  repair_->set_diverged(report_divergence);
  tell_when_making();
}

ring::StoredCommunicator* LastingCommunicators::table() const {
  return reinterpret_cast<ring::StoredCommunicator*>(channel_.store() +
                                                     header_->communicators_offset);
}

uint64_t LastingCommunicators::region_bytes() const {
  return header_->records_bytes / ring::kMaxCommunicators / ring::kPageBytes * ring::kPageBytes;
}

std::byte* LastingCommunicators::region(const ring::StoredCommunicator& entry) const {
  const auto index = static_cast<uint64_t>(&entry - table());
  return channel_.store() + header_->records_offset + index * region_bytes();
}

uint64_t LastingCommunicators::operation_at(const ring::StoredCommunicator& entry,
                                            uint64_t cut) const {
  for (int i = 0; i < 2; ++i)
    if (cut && entry.line_cut[i] == cut) return entry.line_operation[i];
  return 0;  // made after the cut
}

void LastingCommunicators::made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  backend::CommunicatorState state;
  if (!repair_->state(comm, &state)) return;
  fault_point("exists", rank);
  ring::StoredCommunicator* entry = nullptr;
  for (uint32_t i = 0; i < ring::kMaxCommunicators && !entry; ++i)
    if (table()[i].handle == handle && table()[i].seq == seq) entry = &table()[i];
  const bool again = entry != nullptr;
  for (uint32_t i = 0; i < ring::kMaxCommunicators && !entry; ++i)
    if (!table()[i].handle) entry = &table()[i];
  if (!entry) {
    if (!std::exchange(full_, true))
      std::fprintf(stderr,
                   "pyft-server: device [%u]: more than [%u] communicators: the others are not "
                   "recorded, and a failure of this rank ends the job\n",
                   channel_.device(), ring::kMaxCommunicators);
    return;
  }
  if (!again) {
    *entry = {};
    entry->seq = seq;
    entry->key = state.key;
    entry->rank = rank;
    entry->size = size;
    std::atomic_ref(entry->handle).store(handle, std::memory_order_release);
    fault_point("in_table", rank);
  }
  entry->ended_seq = 0;
  if (repair_->set_records(comm, region(*entry), region_bytes()))
    std::fprintf(stderr, "pyft-server: device [%u]: %s is not recorded: %s\n", channel_.device(),
                 named(state.key).c_str(), repair_->last_error());
  live_[handle] = {comm, state.key, rank};
  fault_point("recorded", rank);
  link_->send(ring::MessageKind::kMade, state.key, static_cast<uint64_t>(rank),
              static_cast<uint64_t>(size));
  fault_point("made", rank);
}

void LastingCommunicators::ended(uint64_t handle, uint64_t seq) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  live_.erase(handle);
  ring::StoredCommunicator* const entry = entry_of(table(), handle);
  if (!entry) return;
  entry->ended_seq = seq;
  link_->send(ring::MessageKind::kEnded, entry->key, static_cast<uint64_t>(entry->rank));
}

// In the watchdog's thread.
void LastingCommunicators::failed(void* comm) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_)
    if (live.comm == comm && !std::exchange(live.failed, true))
      link_->send(ring::MessageKind::kBroken, live.key, static_cast<uint64_t>(live.rank));
}

void LastingCommunicators::minted(std::span<const std::byte> id) {
  uint64_t key = 0;
  if (active() && repair_->number_of(id, &key)) link_->send(ring::MessageKind::kMinted, key);
}

void LastingCommunicators::let_go(uint64_t handle) {
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

void LastingCommunicators::at_cut(uint64_t cut, uint64_t current) {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_) {
    ring::StoredCommunicator* const entry = entry_of(table(), handle);
    backend::CommunicatorState state;
    if (!entry || !repair_->state(live.comm, &state)) continue;
    // The line of the present recovery point stays until this cut takes its place, if it ever does.
    const int other = current && entry->line_cut[0] == current ? 1 : 0;
    entry->line_cut[other] = 0;
    entry->line_operation[other] = state.operation;
    entry->line_cut[other] = cut;
    live.uncommitted.push_back({cut, state.operation, state.done});
    live.ask_ns = ring::now_ns() + kAskNs;
    live.pause_ns = kAskNs;
  }
}

bool LastingCommunicators::delivered(uint64_t cut) {
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

bool LastingCommunicators::crowded() {
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
void LastingCommunicators::captured(uint64_t cut, uint64_t seq) {
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
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table()[i].handle && table()[i].ended_seq && table()[i].ended_seq < seq)
      free_entry(table()[i]);
}

void LastingCommunicators::free_entry(ring::StoredCommunicator& entry) {
  std::byte* const base = region(entry);
  repair_->forget(base, region_bytes());
  std::atomic_ref(entry.handle).store(0, std::memory_order_release);
  const auto offset = static_cast<off_t>(base - channel_.store());
  fallocate(channel_.store_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
            static_cast<off_t>(region_bytes()));
}

// The result code, below the number of the repair for which the agent has asked.
uint64_t LastingCommunicators::answer(const AgentMessage& message, int code) const {
  if (code)
    std::fprintf(stderr, "pyft-server: device [%u]: %s: no part in the repair of rank [%llu]: %s\n",
                 channel_.device(), named(message.a).c_str(),
                 static_cast<unsigned long long>(message.b), repair_->last_error());
  return message.c << 32 | static_cast<uint32_t>(code);
}

bool LastingCommunicators::order(const AgentMessage& message) {
  if (!active()) return false;
  const auto rank = static_cast<int>(message.b);
  if (message.kind == ring::MessageKind::kLeft) {
    repair_->left(message.a, message.b == ring::kMinter ? -1 : rank);
    return true;
  }
  if (message.kind == ring::MessageKind::kDoExport) {
    backend::InfoBytes info;
    const int code = repair_->export_info(message.a, rank, &info);
    link_->send(ring::MessageKind::kExported, message.a, message.b, answer(message, code), info);
    return true;
  }
  if (message.kind == ring::MessageKind::kDoReplace) {
    const int code = repair_->replace(message.a, rank, message.payload);
    link_->send(ring::MessageKind::kReplaced, message.a, message.b, answer(message, code));
    return true;
  }
  return false;
}

}  // namespace pyft::server
