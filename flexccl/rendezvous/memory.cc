#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "rendezvous/rendezvous.h"

namespace flexccl::rendezvous {
namespace {

constexpr std::uint64_t kLookMs = 20;

struct Table {
  std::vector<std::optional<Address>> members;
  int present = 0;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::uint64_t, std::shared_ptr<Table>> tables;

void enter(Table& table, const Member& self) {
  if (table.members.empty()) table.members.resize(static_cast<std::size_t>(self.nranks));
  if (table.members.size() != static_cast<std::size_t>(self.nranks))
    fail(ncclInvalidArgument, "flexccl: rank [", self.rank, "] says there are [", self.nranks,
         "] ranks, an earlier one said [", table.members.size(), "]");
  auto& place = table.members[static_cast<std::size_t>(self.rank)];
  if (place) fail(ncclInvalidUsage, "flexccl: two callers say they are rank [", self.rank, "]");
  place = self.address;
  ++table.present;
}

}  // namespace

std::vector<Address> meet_in_memory(const UniqueId& id, const Member& self, Deadline deadline) {
  std::unique_lock lock(mutex);
  auto& entry = tables[id.comm];
  if (!entry) entry = std::make_shared<Table>();
  const auto table = entry;
  enter(*table, self);
  changed.notify_all();
  const auto complete = [&] { return table->present == self.nranks; };
  bool all = false;
  try {
    while (!all && std::chrono::steady_clock::now() < deadline) {
      all = changed.wait_until(lock, std::min(deadline, in_ms(kLookMs)), complete);
      if (!all && self.look) self.look();
    }
  } catch (const Error&) {
    tables.erase(id.comm);
    throw;
  }
  tables.erase(id.comm);
  if (!all)
    fail(ncclRemoteError, "flexccl: only [", table->present, "] of [", self.nranks,
         "] ranks came to the rendezvous in time");
  std::vector<Address> addresses;
  for (const auto& member : table->members) addresses.push_back(*member);
  return addresses;
}

}  // namespace flexccl::rendezvous
