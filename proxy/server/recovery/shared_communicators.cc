#include "server/recovery/shared_communicators.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "server/nccl_config.h"
#include "server/recovery/digest.h"

namespace pyft::server {

namespace {

constexpr int kAgentAnswersMs = 60'000;  // docs/deadlines.md
static_assert(ring::kCommunicatorSettings == sizeof(NcclSettings));
constexpr uint64_t kKeySeed = 1;  // names need not be secret, only the same at all ranks

uint64_t name_of(const void* what, size_t bytes) {
  return digest(static_cast<const std::byte*>(what), bytes, kKeySeed).low;
}

std::string named(uint64_t key) {
  return "communicator [" + std::to_string(key) + "]";
}

}  // namespace

SharedCommunicators::SharedCommunicators(ring::Channel& channel, Recovery& recovery,
                                         const backend::Table& backend)
    : channel_(channel),
      recovery_(recovery),
      backend_(backend),
      header_(reinterpret_cast<ring::StoreHeader*>(channel.store())) {}

ring::StoredCommunicator* SharedCommunicators::table() const {
  return reinterpret_cast<ring::StoredCommunicator*>(channel_.store() +
                                                     header_->communicators_offset);
}

// The first rank that asks makes the id; what the program has may name a rank that is gone.
std::vector<std::byte> SharedCommunicators::ask_for_id(uint64_t key, int rank) {
  const auto number = static_cast<uint64_t>(rank);
  link_->send(ring::MessageKind::kWantId, key, number);
  auto answer = link_->wait(ring::MessageKind::kMadeAs, key, kAgentAnswersMs);
  if (!answer) recovery_.no_place("nobody says under which id " + named(key) + " is made");
  if (!answer->payload.empty()) return std::move(answer->payload);
  ncclUniqueId made{};
  if (const int code = backend_.ncclGetUniqueId(&made))
    recovery_.no_place(named(key) + ": no unique id, code [" + std::to_string(code) + "]");
  const auto bytes = std::as_bytes(std::span(&made, 1));
  link_->send(ring::MessageKind::kWantId, key, number, 0, bytes);
  return {bytes.begin(), bytes.end()};
}

// ---- taking over ----

// In the order of their keys, as the others do: each call waits for all of its ranks.
std::string SharedCommunicators::rejoin() {
  ring::Manifest line{};
  if (const uint32_t current = header_->current.load())
    std::memcpy(&line, channel_.store() + header_->manifest_offset[current - 1], sizeof line);
  std::vector<ring::StoredCommunicator*> again;
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i) {
    ring::StoredCommunicator& entry = table()[i];
    if (!entry.handle) continue;
    const bool repeated = entry.seq > line.seq;  // the replay makes it
    const bool over = entry.ended_seq && entry.ended_seq <= line.seq;
    if (repeated || over)
      std::atomic_ref(entry.handle).store(0, std::memory_order_release);
    else
      again.push_back(&entry);
  }
  std::ranges::sort(again, {}, &ring::StoredCommunicator::key);
  for (const ring::StoredCommunicator* entry : again) make_again(*entry);
  return {};
}

void SharedCommunicators::make_again(const ring::StoredCommunicator& entry) {
  const std::vector<std::byte> id = ask_for_id(entry.key, entry.rank);
  ncclUniqueId as{};
  std::memcpy(&as, id.data(), std::min(id.size(), sizeof as));
  const std::span settings(entry.settings, std::min(entry.settings_bytes, sizeof entry.settings));
  {
    const std::lock_guard lock(mutex_);
    live_[entry.handle] = {nullptr, entry.key, entry.rank,
                           0,       {},        {settings.begin(), settings.end()}};
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

void* SharedCommunicators::made_before(uint64_t handle, uint64_t) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  return found == live_.end() ? nullptr : found->second.comm;
}

// ---- steady state ----

std::vector<std::byte> SharedCommunicators::id_for(uint64_t handle, int rank,
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

void SharedCommunicators::number_from(std::span<const std::byte> id, Live* live) {
  if (flexccl_ && flexccl_->number_of(id, &live->number)) tell_who_left(*live);
}

void SharedCommunicators::tell_who_left(const Live& live) {
  const auto found = left_.find(live.key);
  if (!live.number || found == left_.end()) return;
  for (const int rank : found->second) flexccl_->left(live.number, rank);
}

// Who has made the program's id does not matter: the ranks meet under another one.
bool SharedCommunicators::order(const AgentMessage& message) {
  if (message.kind != ring::MessageKind::kLeft) return false;
  const std::lock_guard lock(mutex_);
  left_[message.a].insert(static_cast<int>(message.b));
  for (const auto& [handle, live] : live_)
    if (live.key == message.a) tell_who_left(live);
  return true;
}

// In the watchdog's thread.
void SharedCommunicators::failed(void* comm) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, live] : live_)
    if (live.comm == comm && !std::exchange(live.failed, true))
      link_->send(ring::MessageKind::kBroken, live.key, static_cast<uint64_t>(live.rank));
}

// All ranks of the parent divide it after the same number of collectives.
void SharedCommunicators::divides(uint64_t handle, uint64_t parent, uint64_t how) {
  const std::lock_guard lock(mutex_);
  const Live& from = live_[parent];
  const uint64_t what[] = {from.key, from.collectives, how};
  live_[handle] = {nullptr, name_of(what, sizeof what), 0, 0, {}, {}};
}

// What has none is made with those of what it was divided from.
void SharedCommunicators::configures(uint64_t handle, uint64_t parent,
                                     std::span<const std::byte> settings) {
  const std::lock_guard lock(mutex_);
  const auto from = live_.find(parent);
  if (!settings.empty())
    live_[handle].settings.assign(settings.begin(), settings.end());
  else if (from != live_.end())
    live_[handle].settings = from->second.settings;
}

void SharedCommunicators::collective(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  ++live_[handle].collectives;
}

void SharedCommunicators::message(uint64_t handle, int peer, bool sends) {
  const std::lock_guard lock(mutex_);
  Messages& messages = live_[handle].messages[peer];
  ++(sends ? messages.sent : messages.received);
}

// All ranks begin again; whether that was for want of one that has died is the agent's to know. For
// want of one that never comes it would be in vain.
void SharedCommunicators::lost_peer(int code, const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (!left_.empty()) return;
  }
  if (code == ncclRemoteError || code == ncclSystemError) recovery_.no_place(sentence);
}

ring::StoredCommunicator* SharedCommunicators::entry_for(uint64_t handle, uint64_t seq) {
  ring::StoredCommunicator* unused = nullptr;
  for (uint32_t i = ring::kMaxCommunicators; i-- > 0;) {
    ring::StoredCommunicator& entry = table()[i];
    if (entry.handle == handle && entry.seq == seq) return &entry;
    if (!entry.handle) unused = &entry;
  }
  return unused;
}

void SharedCommunicators::made(void* comm, uint64_t handle, uint64_t seq, int rank, int size) {
  const std::lock_guard lock(mutex_);
  Live& live = live_[handle];
  live.comm = comm;
  live.rank = rank;
  backend::CommunicatorState state;
  if (flexccl_ && flexccl_->state(comm, &state)) live.number = state.key, tell_who_left(live);
  ring::StoredCommunicator* const entry = entry_for(handle, seq);
  if (!entry) {
    if (!std::exchange(full_, true))
      std::fprintf(stderr,
                   "pyft-server: device [%u]: more than [%u] communicators: a failure ends the "
                   "job\n",
                   channel_.device(), ring::kMaxCommunicators);
    return;
  }
  if (entry->handle != handle) {
    *entry = {};
    entry->seq = seq;
    entry->key = live.key;
    entry->rank = rank;
    entry->size = size;
    entry->settings_bytes = std::min(live.settings.size(), sizeof entry->settings);
    std::copy_n(live.settings.begin(), entry->settings_bytes, entry->settings);
    std::atomic_ref(entry->handle).store(handle, std::memory_order_release);
  }
  entry->ended_seq = 0;
  link_->send(ring::MessageKind::kMade, live.key, static_cast<uint64_t>(rank),
              static_cast<uint64_t>(size));
}

void SharedCommunicators::ended(uint64_t handle, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  if (found == live_.end()) return;
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table()[i].handle == handle && !table()[i].ended_seq) table()[i].ended_seq = seq;
  link_->send(ring::MessageKind::kEnded, found->second.key,
              static_cast<uint64_t>(found->second.rank));
  live_.erase(found);
}

void SharedCommunicators::tell(uint64_t step, bool held, uint64_t seq) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, live] : live_) {
      if (!live.comm) continue;
      std::vector<uint64_t> pairs;
      for (const auto& [peer, messages] : live.messages)
        pairs.insert(pairs.end(), {static_cast<uint64_t>(peer), messages.sent, messages.received});
      link_->send(ring::MessageKind::kLine, live.key, static_cast<uint64_t>(live.rank),
                  live.collectives, std::as_bytes(std::span(pairs)));
    }
  }
  link_->send(ring::MessageKind::kHeld, step, held, seq);
}

void SharedCommunicators::captured(uint64_t seq) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < ring::kMaxCommunicators; ++i)
    if (table()[i].handle && table()[i].ended_seq && table()[i].ended_seq < seq)
      std::atomic_ref(table()[i].handle).store(0, std::memory_order_release);
}

}  // namespace pyft::server
