// The calls around records: where they lie, what is freed, and how a new process goes on with them.
#include <algorithm>

#include "api/state.h"
#include "base/log.h"
#include "oplog/content_store.h"
#include "rendezvous/rendezvous.h"
#include "transport/endpoint.h"

namespace flexccl {
namespace {

std::shared_ptr<Communicator> healthy(ncclComm_t comm) {
  auto communicator = live(comm);
  if (const ncclResult_t code = communicator->async_error(); code != ncclSuccess)
    throw Error(code, communicator->error_sentence());
  return communicator;
}

std::span<std::byte> memory_at(void* base, std::size_t bytes) {
  if (!base && bytes) fail(ncclInvalidArgument, "flexccl: [", bytes, "] bytes at NULL");
  return {static_cast<std::byte*>(base), bytes};
}

// A rank whose peers are unknown: they have to be replaced, or are not needed any more.
Membership lonely(const RecordOwner& owner) {
  const Settings now = current_settings();
  Membership self{.comm = owner.comm,
                  .epoch = std::max(owner.epoch, 1u),
                  .slot = static_cast<int>(owner.slot),
                  .key = owner.key,
                  .transport = now.transport,
                  .timeout_ms = now.timeout_ms,
                  .repair_ms = now.repair_ms};
  std::vector<Address> addresses(owner.slots);
  addresses[owner.slot] = Endpoint::process().address();
  self.members = owner.members;
  self.addresses = std::move(addresses);
  return self;
}

void adopt(ncclComm_t* comm, std::span<std::byte> memory, std::uint64_t operation) {
  const RecordOwner owner = OperationLog::owner_of(memory);
  Endpoint::process().learn_key(owner.key);
  const auto made =
      Communicator::create(lonely(owner), current_settings().streams, current_device(), operation);
  made->runner().set_parent(owner.parent);
  made->runner().replay_after(operation, memory);
  made->runner().place_alone();
  made->make_ready();
  made->make_claimable();
  *comm = publish(made);
}

void list_children(Communicator& parent, int slot, flexcclChild_t* list, int* count) {
  const int room = *count;
  *count = 0;
  for (const auto& child : parent.children()) {
    const auto seat = std::find(child.members.begin(), child.members.end(), slot);
    if (seat == child.members.end()) continue;
    if (*count < room)
      list[*count] = {child.comm, static_cast<int>(seat - child.members.begin()), 0};
    ++*count;
  }
}

}  // namespace
}  // namespace flexccl

using flexccl::fail;
using flexccl::guarded;
using flexccl::require;

ncclResult_t flexcclSetRecords(ncclComm_t comm, void* base, size_t bytes) {
  return guarded([&] {
    require(base, "base");
    flexccl::healthy(comm)->runner().record(flexccl::memory_at(base, bytes));
  });
}

ncclResult_t flexcclSetContents(void* base, size_t bytes, int holder) {
  return guarded([&] {
    require(base, "base");
    flexccl::ContentStore::process().attach(flexccl::memory_at(base, bytes), holder);
  });
}

ncclResult_t flexcclCommitted(ncclComm_t comm, uint64_t operation) {
  return guarded([&] { flexccl::live(comm)->runner().records().commit(operation); });
}

ncclResult_t flexcclReplay(ncclComm_t comm, void* base, size_t bytes, uint64_t operation) {
  return guarded([&] {
    const auto communicator = flexccl::healthy(comm);
    if (communicator->ready())
      fail(ncclInvalidUsage, "flexccl: flexcclReplay comes before ncclCommSetupNewRank");
    communicator->runner().replay_after(operation, flexccl::memory_at(base, bytes));
  });
}

ncclResult_t flexcclAdopt(ncclComm_t* comm, void* base, size_t bytes, uint64_t operation) {
  return guarded([&] {
    require(comm, "comm");
    require(base, "base");
    *comm = nullptr;
    flexccl::adopt(comm, flexccl::memory_at(base, bytes), operation);
  });
}

ncclResult_t flexcclForget(void* base, size_t bytes) {
  return guarded([&] {
    require(base, "base");
    flexccl::OperationLog::forget(flexccl::memory_at(base, bytes));
  });
}

ncclResult_t flexcclFind(uint64_t number, ncclComm_t* comm) {
  return guarded([&] {
    require(comm, "comm");
    *comm = flexccl::find(number);
    if (*comm) return;
    if (flexccl::has_ended(number))
      fail(ncclInvalidUsage, "flexccl: communicator [", std::hex, number, "] was destroyed here");
    fail(ncclInvalidArgument, "flexccl: communicator [", std::hex, number,
         "] is not in this process");
  });
}

ncclResult_t flexcclReplaceLater(uint64_t number, int slot, const flexcclInfo_t* newNode) {
  return guarded([&] {
    require(newNode, "newNode");
    flexccl::replace_later(number, slot, *newNode);
    if (const ncclComm_t comm = flexccl::find(number)) flexccl::replace_now(comm);
  });
}

ncclResult_t flexcclRankLeft(uint64_t number, int slot) {
  return guarded([&] {
    if (slot < -1) fail(ncclInvalidArgument, "flexccl: [", slot, "] is no slot");
    flexccl::rank_left(number, slot);
  });
}

ncclResult_t flexcclNumberOf(const ncclUniqueId* id, uint64_t* number) {
  return guarded([&] {
    require(id, "id");
    require(number, "number");
    *number = flexccl::parse_unique_id(*id).comm;
  });
}

ncclResult_t flexcclChildren(ncclComm_t comm, int slot, flexcclChild_t* list, int* count) {
  return guarded([&] {
    require(count, "count");
    if (*count > 0) require(list, "list");
    flexccl::list_children(*flexccl::live(comm), slot, list, count);
  });
}

ncclResult_t flexcclSetLog(flexcclLog_t log) {
  flexccl::log_function = log;
  return ncclSuccess;
}

ncclResult_t flexcclSetDiverged(flexcclDiverged_t report) {
  return guarded([&] {
    flexccl::OperationLog::set_report(report ? flexccl::OperationLog::Report(report)
                                             : flexccl::OperationLog::Report());
  });
}

ncclResult_t flexcclSetMaking(flexcclMaking_t making) {
  return guarded([&] {
    flexccl::change_settings([&](flexccl::Settings& settings) { settings.making = making; });
  });
}
