#include "nccl_engine/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace flexccl::nccl_engine {
namespace {

constexpr std::uint64_t kTimeoutMs = 600000;  // as the host engine's
constexpr auto kLook = std::chrono::microseconds(200);

std::mutex registry_mutex;
std::map<ncclComm_t, Comm>& registry() {
  static std::map<ncclComm_t, Comm> all;
  return all;
}

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  char* end;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end || end == text)
    fail(ncclInvalidArgument, "flexccl: ", name, " is [", text, "], not a number");
  return value;
}

Settings& current() {
  static Settings all{number_from_environment("FLEXCCL_TIMEOUT_MS", kTimeoutMs),
                      static_cast<int>(number_from_environment("FLEXCCL_RESERVED_SLOTS", 0))};
  return all;
}

}  // namespace

Members Members::first(int nranks, int reserved) {
  Members made;
  made.live.resize(static_cast<std::size_t>(nranks + reserved));
  std::fill_n(made.live.begin(), nranks, true);
  return made;
}

bool Members::has(int slot) const {
  return slot >= 0 && static_cast<std::size_t>(slot) < live.size() &&
         live[static_cast<std::size_t>(slot)];
}

int Members::count() const {
  return static_cast<int>(std::count(live.begin(), live.end(), true));
}

int Members::position(int slot) const {
  return static_cast<int>(std::count(live.begin(), live.begin() + slot, true));
}

int Members::slot_at(int position) const {
  for (int slot = 0; static_cast<std::size_t>(slot) < live.size(); ++slot)
    if (has(slot) && position-- == 0) return slot;
  return -1;
}

Members Members::with(int slot) const {
  Members changed = *this;
  changed.live[static_cast<std::size_t>(slot)] = true;
  return changed;
}

Members Members::without(int slot) const {
  Members changed = *this;
  changed.live[static_cast<std::size_t>(slot)] = false;
  return changed;
}

Config::Config(const ncclConfig_t* given) {
  ncclConfig_t made{};
  made.size = sizeof made;
  made.magic = 0xcafebeef;
  made.version = NCCL_VERSION_CODE;
  for (int* field :
       {&made.blocking, &made.cgaClusterSize, &made.minCTAs, &made.maxCTAs, &made.splitShare,
        &made.trafficClass, &made.collnetEnable, &made.CTAPolicy, &made.shrinkShare, &made.nvlsCTAs,
        &made.nChannelsPerNetPeer, &made.nvlinkCentricSched})
    *field = NCCL_CONFIG_UNDEF_INT;
  if (given && (given->magic != made.magic || given->size < offsetof(ncclConfig_t, cgaClusterSize)))
    fail(ncclInvalidArgument, "flexccl: a config of [", given->size, "] bytes with magic [",
         given->magic, "] was not made with NCCL_CONFIG_INITIALIZER");
  const ncclConfig_t& from = given ? *given : made;
  bytes_.resize(std::max(from.size, sizeof made));
  std::memcpy(bytes_.data(), &made, sizeof made);
  std::memcpy(bytes_.data(), &from, from.size);
  ncclConfig_t& mine = *get();
  mine.blocking = 0;
  // A repair may need the names long after the caller has freed them.
  if (mine.netName) net_name_ = mine.netName, mine.netName = net_name_.c_str();
  if (mine.commName) comm_name_ = mine.commName, mine.commName = comm_name_.c_str();
}

Comm live(ncclComm_t comm) {
  const std::scoped_lock lock(registry_mutex);
  const auto found = registry().find(comm);
  if (found == registry().end())
    fail(ncclInvalidArgument, "flexccl: [", static_cast<const void*>(comm),
         "] is not a communicator");
  return found->second;
}

ncclComm_t publish(Comm comm) {
  const ncclComm_t handle = comm.get();
  const std::scoped_lock lock(registry_mutex);
  registry()[handle] = std::move(comm);
  return handle;
}

Comm withdraw(ncclComm_t comm) {
  Comm found = live(comm);
  const std::scoped_lock lock(registry_mutex);
  registry().erase(comm);
  return found;
}

Settings settings() {
  const std::scoped_lock lock(registry_mutex);
  return current();
}

void change_settings(const std::function<void(Settings&)>& change) {
  const std::scoped_lock lock(registry_mutex);
  change(current());
}

Deadline deadline() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(settings().timeout_ms);
}

int position_of(const ncclComm& comm, int slot) {
  if (!comm.members.has(slot))
    fail(ncclInvalidArgument, "flexccl: rank [", slot, "] is not one of the [",
         comm.members.count(), "] ranks of this communicator");
  return comm.members.position(slot);
}

std::string& last_sentence() {
  thread_local std::string sentence;
  return sentence;
}

ncclResult_t note(const Error& error) {
  last_sentence() = error.what();
  return error.code;
}

void check(ncclResult_t code, ncclComm_t real, const char* what) {
  if (code == ncclSuccess) return;
  const char* sentence = library().ncclGetLastError(real);
  fail(code, "flexccl: ", what, " of NCCL [", library().version_text(), "] failed with [",
       int(code), "]: ", sentence && *sentence ? sentence : library().ncclGetErrorString(code));
}

void settle_new(ncclComm_t real, ncclResult_t code, const char* what) {
  try {
    const Deadline end = deadline();
    while (code == ncclInProgress) {
      if (std::chrono::steady_clock::now() > end)
        fail(ncclRemoteError, "flexccl: ", what, " is not finished after [", settings().timeout_ms,
             "] ms");
      std::this_thread::sleep_for(kLook);
      check(library().ncclCommGetAsyncError(real, &code), real, what);
    }
    check(code, real, what);
  } catch (const Error&) {
    if (real) library().ncclCommAbort(real);
    throw;
  }
}

void settle(ncclComm& comm, std::uint64_t generation, ncclResult_t code, const char* what) {
  const Deadline end = deadline();
  while (code == ncclInProgress) {
    if (std::chrono::steady_clock::now() > end)
      fail(ncclRemoteError, "flexccl: ", what, " is not taken after [", settings().timeout_ms,
           "] ms");
    std::this_thread::sleep_for(kLook);
    const std::scoped_lock lock(comm.mutex);
    if (comm.generation != generation)
      fail(ncclRemoteError, "flexccl: ", what, " was ended by a repair or an abort, the epoch is [",
           comm.epoch, "]");
    check(library().ncclCommGetAsyncError(comm.real, &code), comm.real, what);
  }
  check(code, nullptr, what);
}

}  // namespace flexccl::nccl_engine
