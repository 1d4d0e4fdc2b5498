#include "api/state.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "base/settings.h"

namespace flexccl {
namespace {

std::mutex mutex;
std::map<ncclComm_t, std::unique_ptr<ncclComm>>& comms() {
  static std::map<ncclComm_t, std::unique_ptr<ncclComm>> all;
  return all;
}

flexcclTransport_t transport_from_environment() {
  switch (settings::transport()) {
    case settings::Transport::kLoopback:
      return flexcclLoopback;
    case settings::Transport::kShm:
      return flexcclShm;
    case settings::Transport::kTcp:
      return flexcclTcp;
    default:
      return flexcclAuto;
  }
}

Settings& current() {
  static Settings all{transport_from_environment(),
                      settings::timeout_ms(),
                      {},
                      static_cast<int>(settings::reserved_slots()),
                      settings::repair_ms(),
                      settings::abort().has_value()};
  return all;
}

// Eight bytes for each communicator that this process ever had.
std::set<std::uint64_t>& ended() {
  static std::set<std::uint64_t> all;
  return all;
}

std::map<std::uint64_t, std::set<int>>& left() {
  static std::map<std::uint64_t, std::set<int>> all;
  return all;
}

// The parts that were made of it as well.
void mark(Communicator& communicator, int slot) {
  if (slot < 0) return;
  communicator.runner().note_left(slot);
  for (const auto& child : communicator.children()) {
    const auto seat = std::find(child.members.begin(), child.members.end(), slot);
    const auto made = child.communicator.lock();
    if (made && seat != child.members.end())
      mark(*made, static_cast<int>(seat - child.members.begin()));
  }
}

struct Later {
  std::uint64_t number;
  int slot;
  flexcclInfo_t info;
};
std::vector<Later>& later() {
  static std::vector<Later> all;
  return all;
}

}  // namespace

Settings current_settings() {
  const std::scoped_lock lock(mutex);
  return current();
}

void change_settings(const std::function<void(Settings&)>& change) {
  const std::scoped_lock lock(mutex);
  change(current());
}

void rank_left(std::uint64_t number, int slot) {
  std::vector<std::shared_ptr<Communicator>> here;
  {
    const std::scoped_lock lock(mutex);
    left()[number].insert(slot);
    for (const auto& [handle, owner] : comms())
      if (owner->communicator->view()->comm == number) here.push_back(owner->communicator);
  }
  for (const auto& communicator : here) mark(*communicator, slot);
}

std::optional<int> anybody_left(std::uint64_t number, int but) {
  const std::scoped_lock lock(mutex);
  const auto found = left().find(number);
  if (found == left().end()) return std::nullopt;
  for (auto slot = found->second.rbegin(); slot != found->second.rend(); ++slot)
    if (*slot != but) return *slot;
  return std::nullopt;
}

void tell_who_left(const std::shared_ptr<Communicator>& communicator) {
  std::set<int> slots;
  {
    const std::scoped_lock lock(mutex);
    const auto found = left().find(communicator->view()->comm);
    if (found != left().end()) slots = found->second;
  }
  for (const int slot : slots) mark(*communicator, slot);
}

ncclComm_t publish(std::shared_ptr<Communicator> communicator) {
  const auto made = communicator;
  auto owner = std::make_unique<ncclComm>(std::move(communicator));
  const ncclComm_t handle = owner.get();
  {
    const std::scoped_lock lock(mutex);
    comms()[handle] = std::move(owner);
  }
  tell_who_left(made);
  return handle;
}

std::shared_ptr<Communicator> live(ncclComm_t comm) {
  const std::scoped_lock lock(mutex);
  const auto found = comms().find(comm);
  if (found == comms().end())
    fail(ncclInvalidArgument, "flexccl: [", static_cast<const void*>(comm),
         "] is not a communicator");
  return found->second->communicator;
}

std::shared_ptr<Communicator> withdraw(ncclComm_t comm) {
  auto communicator = live(comm);
  const std::scoped_lock lock(mutex);
  comms().erase(comm);
  ended().insert(communicator->view()->comm);
  return communicator;
}

ncclComm_t find(std::uint64_t number, int slot) {
  const std::scoped_lock lock(mutex);
  for (const auto& [handle, owner] : comms()) {
    const auto view = owner->communicator->view();
    if (view->comm == number && (slot < 0 || view->slot == slot)) return handle;
  }
  return nullptr;
}

bool has_ended(std::uint64_t number) {
  const std::scoped_lock lock(mutex);
  return ended().contains(number);
}

ncclComm_t claim(std::uint64_t number, int slot) {
  const ncclComm_t found = find(number, slot);
  return found && live(found)->claim() ? found : nullptr;
}

void replace_later(std::uint64_t number, int slot, const flexcclInfo_t& info) {
  const std::scoped_lock lock(mutex);
  later().push_back({number, slot, info});
}

void replace_now(ncclComm_t comm) {
  const std::uint64_t number = live(comm)->view()->comm;
  std::vector<Later> mine;
  {
    const std::scoped_lock lock(mutex);
    std::erase_if(later(), [&](const Later& one) {
      if (one.number == number) mine.push_back(one);
      return one.number == number;
    });
  }
  for (const Later& one : mine)
    if (const ncclResult_t code = ncclReplaceNode(comm, one.slot, &one.info); code != ncclSuccess)
      fail(code, last_sentence());
}

std::string& last_sentence() {
  thread_local std::string sentence;
  return sentence;
}

ncclResult_t note(const Error& error) {
  last_sentence() = error.what();
  return error.code;
}

int current_device() {
  const flexcclStreamTable streams = current_settings().streams;
  return streams.device ? streams.device() : 0;
}

}  // namespace flexccl
