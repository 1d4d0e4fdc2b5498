// Making, dividing and ending communicators.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "api/state.h"
#include "rendezvous/rendezvous.h"
#include "transport/fault.h"

namespace flexccl {
namespace {

std::vector<int> first_slots(std::size_t count) {
  std::vector<int> slots(count);
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

// -1: the current one of the calling thread.
constexpr int kCurrentDevice = -1;
constexpr std::chrono::milliseconds kAskAgain(20);
// What flexcclMaking_t is told, and answers.
constexpr int kFirst = 0, kLost = 1, kDivided = 2;
constexpr int kNotKnown = 0, kNobodyHasIt = 2;

// A new rank waits here, and not before, for the others to have a communicator that it claims: they
// may need it in order to make theirs.
void take_place(ncclComm_t comm) {
  if (const ncclResult_t code = ncclCommSetupNewRank(comm); code != ncclSuccess)
    fail(code, last_sentence());
}

// Thrown out of the wait for the others.
void look_for_others(std::uint64_t comm, int rank) {
  const auto gone = anybody_left(comm, rank);
  if (!gone) return;
  if (*gone < 0)
    fail(ncclRemoteError, "flexccl: rank [", rank, "] of communicator [", std::hex, comm,
         "] waits in vain for the others: the program that made the unique id has ended");
  fail(ncclRemoteError, "flexccl: rank [", rank, "] of communicator [", std::hex, comm, std::dec,
       "] waits in vain for the others: rank [", *gone, "] has ended");
}

void join(ncclComm_t* comm, int nranks, const ncclUniqueId& raw, int rank, int device) {
  const UniqueId id = parse_unique_id(raw);
  if ((*comm = claim(id.comm, rank))) return take_place(*comm);
  const Settings now = current_settings();
  const Key key = job_key(id);
  Endpoint& endpoint = Endpoint::process();
  endpoint.learn_key(key);
  Membership self{.comm = id.comm,
                  .slot = rank,
                  .key = key,
                  .transport = now.transport,
                  .timeout_ms = now.timeout_ms,
                  .repair_ms = now.repair_ms,
                  .partial = now.partial};
  const auto tell = [&](int lost) {
    return now.making && now.making(id.comm, rank, nranks, lost) != 0;
  };
  const Member member{.rank = rank,
                      .nranks = nranks,
                      .address = endpoint.address(),
                      .repairs = now.repair_ms > 0,
                      .comes_again = tell(kFirst),
                      .has_place = [&] { return tell(kLost); },
                      .look = [&] { look_for_others(id.comm, rank); }};
  fault_in_init(id.comm, rank);
  std::vector<Address> addresses;
  try {
    addresses = meet(id, member, in_ms(now.timeout_ms));
  } catch (const HasPlace&) {
    if (!(*comm = claim(id.comm, rank)))
      fail(ncclInvalidUsage, "flexccl: rank [", rank, "] was promised a place, and has none");
    return take_place(*comm);
  }
  fault_in_init(id.comm, rank);
  addresses.resize(static_cast<std::size_t>(nranks + now.reserved_slots));
  self.addresses = std::move(addresses);
  self.members = first_slots(static_cast<std::size_t>(nranks));
  *comm = publish(Communicator::create(self, now.streams, device));
  fault_in_init(id.comm, rank);
  replace_now(*comm);
  fault_in_init(id.comm, rank);
}

ncclResult_t init_rank(ncclComm_t* comm, int nranks, const ncclUniqueId& id, int rank,
                       const ncclConfig_t* config, int device = kCurrentDevice) {
  return guarded([&] {
    require(comm, "comm");
    *comm = nullptr;
    if (nranks < 1 || rank < 0 || rank >= nranks)
      fail(ncclInvalidArgument, "flexccl: rank [", rank, "] of [", nranks, "] cannot be");
    if (config && config->magic != 0xcafebeef)
      fail(ncclInvalidArgument, "flexccl: config has magic [", config->magic,
           "]: it was not made with NCCL_CONFIG_INITIALIZER");
    // Asked here: initialisations of a group run in threads of their own.
    const int chosen = device == kCurrentDevice ? current_device() : device;
    initialise([=] { join(comm, nranks, id, rank, chosen); });
  });
}

// The members, in the order of their new ranks, are slots of the parent. The id is derived, so no
// rendezvous is needed: each rank knows all addresses, or asks for it later.
Membership membership_of_child(const Membership& from, std::uint64_t comm,
                               const std::vector<int>& members) {
  Membership child{.comm = comm,
                   .key = from.key,
                   .transport = from.transport,
                   .timeout_ms = from.timeout_ms,
                   .repair_ms = from.repair_ms,
                   .partial = from.partial};
  std::vector<Address> addresses;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == from.slot) child.slot = static_cast<int>(i);
    addresses.push_back(from.address(members[i]));
  }
  addresses.resize(members.size() + static_cast<std::size_t>(current_settings().reserved_slots));
  child.addresses = std::move(addresses);
  child.members = first_slots(members.size());
  return child;
}

// Others may have it already, with the address of a process that was here before. A rank that says
// too late that it is about to make it finds the new address at the parent.
void find_out_who_has(std::uint64_t number, int rank, int nranks) {
  const Settings now = current_settings();
  if (!now.making || nranks == 1 || find(number, rank)) return;
  if (!now.making(number, rank, nranks, kFirst)) return;
  const Deadline deadline = in_ms(now.timeout_ms);
  int answer = kNotKnown;
  while ((answer = now.making(number, rank, nranks, kDivided)) == kNotKnown) {
    if (std::chrono::steady_clock::now() > deadline)
      fail(ncclSystemError, "flexccl: no answer came within [", now.timeout_ms,
           "] ms whether other ranks have communicator [", std::hex, number, "]");
    std::this_thread::sleep_for(kAskAgain);
  }
  if (answer != kNobodyHasIt && !find(number, rank))
    fail(ncclInvalidUsage, "flexccl: rank [", rank, "] was promised a place, and has none");
}

ncclComm_t make_child(Communicator& parent, const std::vector<int>& members,
                      const std::vector<std::int64_t>& identity) {
  const Membership before = parent.membership();
  const std::uint64_t comm = keyed_hash64(before.key, std::as_bytes(std::span(identity)));
  const auto self = std::find(members.begin(), members.end(), before.slot);
  const auto slot = static_cast<int>(self - members.begin());
  fault_in_split(comm, slot);
  find_out_who_has(comm, slot, static_cast<int>(members.size()));
  fault_in_split(comm, slot);
  ncclComm_t handle = nullptr;
  parent.add_child([&](const Membership& from) {
    std::shared_ptr<Communicator> made;
    if ((handle = claim(comm, slot))) {
      made = live(handle);
    } else {
      made = Communicator::create(membership_of_child(from, comm, members),
                                  current_settings().streams, parent.device());
      handle = publish(made);
    }
    made->runner().set_parent(from.comm);
    return Communicator::Child{comm, members, made};
  });
  for (std::size_t i = 0; i < members.size(); ++i)
    if (parent.runner().has_left(members[i])) rank_left(comm, static_cast<int>(i));
  fault_in_split(comm, slot);
  replace_now(handle);
  take_place(handle);
  fault_in_split(comm, slot);
  return handle;
}

struct Choice {
  std::int32_t slot = -1, color = 0, key = 0;
};

// The answers name the ranks that divide it: a replay gets those of then, and there may have been
// other ranks then.
ncclComm_t split(Communicator& parent, int color, int key) {
  const auto at = parent.view();
  const Choice mine{at->slot, color, key};
  std::vector<Choice> all(static_cast<std::size_t>(at->slots()));
  std::uint64_t sequence = 0;
  parent.run_now([&](Communicator& self) {
    const OpDescriptor op{.collective = Collective::kSplit, .dtype = ncclInt32, .count = 3};
    self.run([&](const Membership&) {
      return Operation{.op = op,
                       .buffers = {reinterpret_cast<const std::byte*>(&mine),
                                   reinterpret_cast<std::byte*>(all.data())},
                       .move = all_gather};
    });
    sequence = self.runner().counters().done;
  });
  if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
  std::erase_if(all, [&](const Choice& one) { return one.slot < 0 || one.color != color; });
  std::ranges::stable_sort(all, {}, &Choice::key);
  std::vector<int> members;
  for (const Choice& one : all) members.push_back(one.slot);
  return make_child(
      parent, members,
      {'s', static_cast<std::int64_t>(at->comm), static_cast<std::int64_t>(sequence), color});
}

ncclComm_t shrink(Communicator& parent, std::span<const int> excluded) {
  const int own = parent.view()->slot;
  const auto [number, all] = parent.runner().count_child(content_hash(std::as_bytes(excluded)));
  std::vector<int> members;
  std::vector<std::int64_t> identity{'x', static_cast<std::int64_t>(parent.view()->comm),
                                     static_cast<std::int64_t>(number)};
  for (const int slot : all) {
    if (std::find(excluded.begin(), excluded.end(), slot) == excluded.end())
      members.push_back(slot);
    else
      identity.push_back(slot);
  }
  if (std::find(members.begin(), members.end(), own) == members.end())
    fail(ncclInvalidArgument, "flexccl: rank [", own,
         "] calls ncclCommShrink and is on the list of excluded ranks");
  return make_child(parent, members, identity);
}

}  // namespace
}  // namespace flexccl

using flexccl::fail;
using flexccl::guarded;
using flexccl::live;
using flexccl::require;

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return guarded([&] {
    require(uniqueId, "uniqueId");
    const auto now = flexccl::current_settings();
    const auto kind = now.transport == flexcclLoopback ? flexccl::RendezvousKind::kMemory
                                                       : flexccl::RendezvousKind::kTcp;
    const auto id = flexccl::make_unique_id(kind, now.timeout_ms);
    std::memcpy(uniqueId, &id, sizeof id);
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return flexccl::init_rank(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return flexccl::init_rank(comm, nranks, commId, rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  if (nId < 1 || !commIds)
    return guarded([&] { fail(ncclInvalidArgument, "flexccl: [", nId, "] unique ids"); });
  return flexccl::init_rank(newcomm, nranks, commIds[0], myrank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return guarded([&] {
    require(comm, "comm");
    if (ndev < 1) fail(ncclInvalidArgument, "flexccl: [", ndev, "] devices");
    const auto id = flexccl::make_unique_id(flexccl::RendezvousKind::kMemory, 0);
    ncclUniqueId raw;
    std::memcpy(&raw, &id, sizeof raw);
    std::vector<std::thread> threads;
    std::vector<std::string> sentences(static_cast<std::size_t>(ndev));
    for (int rank = 0; rank < ndev; ++rank)
      threads.emplace_back([&, rank] {
        if (flexccl::init_rank(comm + rank, ndev, raw, rank, nullptr,
                               devlist ? devlist[rank] : rank) != ncclSuccess)
          sentences[static_cast<std::size_t>(rank)] = flexccl::last_sentence();
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& sentence : sentences)
      if (!sentence.empty()) fail(ncclSystemError, sentence);
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  static_cast<void>(config);  // nothing in it has an effect on a child
  return guarded([&] {
    require(newcomm, "newcomm");
    if (color < NCCL_SPLIT_NOCOLOR) fail(ncclInvalidArgument, "flexccl: color [", color, "]");
    *newcomm = nullptr;
    const auto parent = live(comm);
    flexccl::initialise([=] { *newcomm = flexccl::split(*parent, color, key); });
  });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  static_cast<void>(config);
  return guarded([&] {
    require(newcomm, "newcomm");
    *newcomm = nullptr;
    const auto parent = live(comm);
    if (excludeRanksCount < 1 || !excludeRanksList)
      fail(ncclInvalidArgument, "flexccl: a list of [", excludeRanksCount, "] ranks to exclude");
    if (shrinkFlags & NCCL_SHRINK_ABORT) parent->abort();
    parent->synchronize();
    *newcomm = flexccl::shrink(*parent, {excludeRanksList, static_cast<size_t>(excludeRanksCount)});
  });
}

// As NCCL, these three accept no communicator: PyTorch's watchdog aborts a failed one twice.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return guarded([&] { live(comm)->finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return guarded([&] {
    const auto communicator = flexccl::withdraw(comm);
    communicator->finalize();
    communicator->runner().say_goodbye();
    communicator->runner().records().close();
    communicator->release_streams();
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return guarded([&] { flexccl::withdraw(comm)->abort(); });
}
