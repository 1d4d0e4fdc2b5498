#include "server/recovery/rebuilt_communicators.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/memory/threads.h"
#include "pyft/log.h"
#include "ring/attach.h"
#include "server/session/nccl_config.h"

namespace pyft::server {

namespace {

constexpr size_t kAtOnce = 8;            // communicators that are being made
constexpr int kAgentAnswersMs = 60'000;  // docs/deadlines.md
static_assert(ring::kCommunicatorSettings == sizeof(NcclSettings));
constexpr uint64_t kKeySeed = 1;  // names need not be secret, only the same at all ranks

uint64_t name_of(const void* what, size_t bytes) {
  return checkpoint::digest(static_cast<const std::byte*>(what), bytes, kKeySeed).low;
}

std::string named(uint64_t key) {
  return "communicator [" + std::to_string(key) + "]";
}

}  // namespace

RebuiltCommunicators::RebuiltCommunicators(ring::Channel& channel, checkpoint::Recovery& recovery,
                                           const backend::Table& backend, DeviceThreads& device)
    : channel_(channel), recovery_(recovery), backend_(backend), device_(device), table_(channel) {}

// The first rank that asks makes the id; what the program has may name a rank that is gone.
std::vector<std::byte> RebuiltCommunicators::ask_for_id(uint64_t key, int rank) {
  link_->send(msg::WantId{.key = key, .rank = rank});
  auto answer = link_->wait<msg::MadeAs>(key, kAgentAnswersMs);
  if (!answer)
    recovery_.no_place("the agent does not say under which id " + named(key) + " is made");
  if (!answer->payload.empty()) return std::move(answer->payload);
  ncclUniqueId made{};
  if (const int code = backend_.ncclGetUniqueId(&made))
    recovery_.no_place(named(key) + ": no unique id, code [" + std::to_string(code) + "]");
  const auto bytes = std::as_bytes(std::span(&made, 1));
  link_->send(msg::WantId{.key = key, .rank = rank}, bytes);
  return {bytes.begin(), bytes.end()};
}

// ---- taking over ----

// Each call waits for all of its ranks, a second or more, so several are made at once. They are
// begun in the order of their keys, as the others do: of those that are not made the first one is
// in work at all of its ranks, however few threads there are.
std::string RebuiltCommunicators::rejoin() {
  const ring::Manifest line = table_.committed();
  std::vector<ring::StoredCommunicator*> again;
  for (ring::StoredCommunicator& entry : table_.all()) {
    if (!entry.handle) continue;
    const bool repeated = entry.seq > line.seq;  // the replay makes it
    const bool over = entry.ended_seq && entry.ended_seq <= line.seq;
    if (repeated || over)
      table_.drop(entry);
    else
      again.push_back(&entry);
  }
  std::ranges::sort(again, {}, &ring::StoredCommunicator::key);
  std::atomic<size_t> next = 0;
  const size_t threads = std::min(again.size(), kAtOnce);
  checkpoint::in_threads(static_cast<unsigned>(threads), [&](unsigned thread) {
    if (thread) device_.enter();
    for (size_t i; (i = next++) < again.size();) {
      make_again(*again[i]);
      checkpoint::pass_turn();  // the agent sees how they get on
    }
  });
  return {};
}

void RebuiltCommunicators::make_again(const ring::StoredCommunicator& entry) {
  const std::vector<std::byte> id = ask_for_id(entry.key, entry.rank);
  ncclUniqueId as{};
  std::memcpy(&as, id.data(), std::min(id.size(), sizeof as));
  const std::span settings(entry.settings, std::min(entry.settings_bytes, sizeof entry.settings));
  {
    const std::lock_guard lock(mutex_);
    Live& live = live_[entry.handle];
    live = {nullptr, entry.key, entry.rank, 0, {}, {settings.begin(), settings.end()}};
    // What is divided from it has a name by this, which nothing from before the line may have.
    live.collectives = checkpoint::CommunicatorTable::line(entry, table_.committed().cut);
    number_from(id, &live_[entry.handle]);
  }
  ncclComm_t comm = nullptr;
  NcclConfig config;
  if (!config.read(settings)) recovery_.no_place(named(entry.key) + " has damaged settings");
  if (const int code =
          backend_.ncclCommInitRankScalable(&comm, entry.size, entry.rank, 1, &as, config.get()))
    recovery_.no_place(named(entry.key) + " cannot be made again, code [" + std::to_string(code) +
                       "]: " + backend_.ncclGetLastError(nullptr));
  const std::lock_guard lock(mutex_);
  live_[entry.handle].comm = comm;
}

void* RebuiltCommunicators::made_before(uint64_t handle, uint64_t) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  return found == live_.end() ? nullptr : found->second.comm;
}

// ---- steady state ----

std::vector<std::byte> RebuiltCommunicators::id_for(uint64_t handle, int rank,
                                                    std::span<const std::byte> id) {
  const uint64_t key = name_of(id.data(), id.size());
  {
    const std::lock_guard lock(mutex_);
    live_[handle] = {nullptr, key, rank, 0, {}, {}};
  }
  std::vector<std::byte> made_as = ask_for_id(key, rank);
  const std::lock_guard lock(mutex_);
  number_from(made_as, &live_[handle]);
  return made_as;
}

void RebuiltCommunicators::number_from(std::span<const std::byte> id, Live* live) {
  if (flexccl_ && flexccl_->number_of(id, &live->number)) tell_who_left(*live);
}

void RebuiltCommunicators::tell_who_left(const Live& live) {
  const auto found = left_.find(live.key);
  if (!live.number || found == left_.end()) return;
  for (const int rank : found->second) flexccl_->left(live.number, rank);
}

// Which rank has made the program's id does not matter: the ranks meet under another one.
bool RebuiltCommunicators::order(const AgentMessage& message) {
  const auto left = message.as<msg::Left>();
  if (!left) return false;
  const std::lock_guard lock(mutex_);
  left_[left->key].insert(left->rank);
  for (const auto& [handle, live] : live_)
    if (live.key == left->key) tell_who_left(live);
  return true;
}

// In the watchdog's thread.
void RebuiltCommunicators::failed(void* comm) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_)
    if (live.comm == comm && !std::exchange(live.failed, true))
      link_->send(msg::Broken{.key = live.key, .rank = live.rank});
}

// All ranks of the parent divide it after the same number of collectives.
void RebuiltCommunicators::divides(uint64_t handle, uint64_t parent, uint64_t how) {
  const std::lock_guard lock(mutex_);
  const Live& from = live_[parent];
  const uint64_t what[] = {from.key, from.collectives, how};
  live_[handle] = {nullptr, name_of(what, sizeof what), 0, 0, {}, {}};
}

// What has none is made with those of what it was divided from.
void RebuiltCommunicators::configures(uint64_t handle, uint64_t parent,
                                      std::span<const std::byte> settings) {
  const std::lock_guard lock(mutex_);
  const auto from = live_.find(parent);
  if (!settings.empty())
    live_[handle].settings.assign(settings.begin(), settings.end());
  else if (from != live_.end())
    live_[handle].settings = from->second.settings;
}

void RebuiltCommunicators::collective(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  ++live_[handle].collectives;
}

void RebuiltCommunicators::message(uint64_t handle, int peer, bool sends) {
  const std::lock_guard lock(mutex_);
  Messages& messages = live_[handle].messages[peer];
  ++(sends ? messages.sent : messages.received);
}

// All ranks begin again; whether that was for want of one that has died is the agent's to know. For
// want of one that never comes it would be in vain.
void RebuiltCommunicators::lost_peer(int code, const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (!left_.empty()) return;
  }
  if (code == ncclRemoteError || code == ncclSystemError) recovery_.no_place(sentence);
}

void RebuiltCommunicators::made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) {
  const std::lock_guard lock(mutex_);
  Live& live = live_[handle];
  live.comm = comm;
  live.rank = rank;
  backend::CommunicatorState state;
  if (flexccl_ && flexccl_->state(comm, &state)) live.number = state.key, tell_who_left(live);
  ring::StoredCommunicator* const entry = table_.entry_for(handle, seq);
  if (!entry) return;
  if (!entry->handle) {
    ring::StoredCommunicator fresh{};
    fresh.handle = handle;
    fresh.seq = seq;
    fresh.key = live.key;
    fresh.rank = rank;
    fresh.size = size;
    fresh.settings_bytes = std::min(live.settings.size(), sizeof fresh.settings);
    std::copy_n(live.settings.begin(), fresh.settings_bytes, fresh.settings);
    table_.put(entry, fresh);
  }
  entry->ended_seq = 0;
  link_->send(msg::Made{.key = live.key, .rank = rank, .size = size});
}

void RebuiltCommunicators::ended(uint64_t handle, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  if (found == live_.end()) return;
  if (ring::StoredCommunicator* const entry = table_.living(handle)) entry->ended_seq = seq;
  link_->send(msg::Ended{.key = found->second.key, .rank = found->second.rank});
  live_.erase(found);
}

std::vector<RebuiltCommunicators::Reached> RebuiltCommunicators::reached() const {
  std::vector<Reached> all;
  for (const auto& [handle, live] : live_) {
    if (!live.comm) continue;
    Reached& one = all.emplace_back();
    one.line = {.key = live.key, .rank = live.rank, .collectives = live.collectives};
    for (const auto& [peer, messages] : live.messages)
      one.pairs.push_back({static_cast<uint64_t>(peer), messages.sent, messages.received});
  }
  return all;
}

void RebuiltCommunicators::tell(const std::vector<Reached>& reached) {
  for (const Reached& one : reached) link_->send(one.line, std::as_bytes(std::span(one.pairs)));
}

// Copies may end when the program is long past the cut.
void RebuiltCommunicators::at_cut(uint64_t cut) {
  const std::lock_guard lock(mutex_);
  at_cut_ = reached();
  for (const auto& [handle, live] : live_)
    if (ring::StoredCommunicator* const entry = table_.living(handle))
      table_.note_line(entry, cut, live.collectives);
}

void RebuiltCommunicators::tell_prepared(uint64_t step, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  tell(at_cut_);
  link_->send(msg::Prepared{.step = step, .whole = true, .entry = seq});
}

void RebuiltCommunicators::tell_passed(uint64_t step) {
  const std::lock_guard lock(mutex_);
  tell(reached());
  link_->send(msg::Prepared{.step = step, .whole = false, .entry = 0});
}

void RebuiltCommunicators::published(uint64_t, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  table_.ended_before(seq, checkpoint::CommunicatorTable::drop);
}

}  // namespace pyft::server
