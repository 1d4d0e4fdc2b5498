// The calls that repair a communicator, and what they are told by and tell the embedding program.
#include <algorithm>
#include <cstring>
#include <optional>

#include "api/state.h"
#include "oplog/content_store.h"

namespace flexccl {
namespace {

std::shared_ptr<Communicator> healthy(ncclComm_t comm) {
  auto communicator = live(comm);
  if (const ncclResult_t code = communicator->async_error(); code != ncclSuccess)
    throw Error(code, communicator->error_sentence());
  return communicator;
}

std::shared_ptr<Communicator> repairable(ncclComm_t comm) {
  auto communicator = healthy(comm);
  if (communicator->runner().view()->partial)
    fail(ncclInvalidUsage,
         "flexccl: a communicator whose aborts leave partial results (FLEXCCL_ABORT) is not "
         "repaired: all ranks have to repeat what they did");
  return communicator;
}

// A rank that is itself new may not know the addresses yet. Where no rank does any more, as when
// all ranks have died and come back one by one, the neighbour is dead, and the new rank passes it
// over.
Membership knowing_neighbours(Communicator& communicator, int slot) {
  Membership self = communicator.runner().newest();
  const auto [before, after] = neighbours(self, slot);
  for (const int neighbour : {before, after}) try {
      self.addresses.set(static_cast<std::size_t>(neighbour),
                         OperationRunner::find_address(self, neighbour));
    } catch (const Error& error) {
      if (error.code != ncclRemoteError) throw;
    }
  return self;
}

void take_new_node(ncclComm_t comm, Repair repair, int slot, const flexcclInfo_t* info) {
  require(info, "newNode");
  const auto communicator = repairable(comm);
  communicator->runner().look();
  const auto steps = missing_steps(*communicator->runner().view(), *info, repair, slot);
  if (steps.empty()) return;
  if (repair == Repair::kAdd) communicator->synchronize();
  communicator->runner().agree(steps);
}

// What these steps do last to the slot, if they remove its rank.
std::optional<Change> removal(const std::vector<Change>& steps, int slot) {
  const auto last = std::find_if(steps.rbegin(), steps.rend(),
                                 [slot](const Change& step) { return step.slot == slot; });
  if (last == steps.rend() || last->repair != Repair::kRemove) return std::nullopt;
  return *last;
}

void remove(ncclComm_t comm, int slot) {
  const auto communicator = repairable(comm);
  OperationRunner& runner = communicator->runner();
  const auto self = runner.view();
  if (self->has_removed(slot)) return;
  // The first survivor decides, the others follow when they are called.
  const std::vector<Change> decided = runner.decided();
  std::optional<Change> step = removal(decided, slot);
  if (!step) {
    const Membership now = decided.empty() ? *self : after(*self, decided);
    step = {now.epoch + 1, slot, Repair::kRemove, 0, {}};
    now.check(*step);
  }
  if (!self->repair_ms) communicator->synchronize();
  runner.change({*step});
}

void set_up(Communicator& communicator) {
  if (communicator.ready()) return;
  communicator.runner().take_place();
  communicator.make_ready();
}

void fill(flexcclState_t* state, Communicator& communicator) {
  communicator.runner().look();
  const Membership self = communicator.runner().membership();
  const Counters counters = communicator.runner().counters();
  const auto paused = communicator.runner().paused();
  *state = {};
  state->size = sizeof *state;
  state->epoch = self.epoch;
  state->slot = self.slot, state->slots = self.slots();
  state->nranks = self.ring().size, state->position = self.ring().rank;
  state->paused = paused.has_value(), state->suspect = paused.value_or(-1);
  state->entered = counters.entered, state->done = counters.done;
  state->all_done = counters.all_done, state->operation = counters.operations;
  state->kept_bytes = counters.kept_bytes;
  state->owed = counters.owed;
  const RecordUsage records = communicator.runner().records().usage();
  state->record_bytes = records.used, state->record_budget = records.budget;
  state->committed = records.committed, state->recorded = records.recorded;
  state->replaying = records.replaying, state->diverged = records.diverged;
  state->comm = self.comm;
  state->content_bytes = ContentStore::process().used();
  state->content_room = ContentStore::process().room();
}

}  // namespace
}  // namespace flexccl

using flexccl::fail;
using flexccl::guarded;
using flexccl::live;
using flexccl::require;

ncclResult_t ncclCommExportInfo(ncclComm_t comm, int slot, flexcclInfo_t* info) {
  return guarded([&] {
    require(info, "info");
    const auto communicator = flexccl::repairable(comm);
    const auto exported = flexccl::export_info(flexccl::knowing_neighbours(*communicator, slot),
                                               slot, communicator->runner().counters().done);
    *info = {};
    std::memcpy(info, &exported, sizeof exported);
  });
}

ncclResult_t ncclInitNewNode(ncclComm_t* comm, const flexcclInfo_t* exported, int slot,
                             flexcclInfo_t* info) {
  return guarded([&] {
    require(comm, "comm");
    require(exported, "exported");
    require(info, "info");
    *comm = nullptr;
    std::uint64_t position;
    flexccl::Endpoint& endpoint = flexccl::Endpoint::process();
    const auto self = flexccl::join_as(*exported, slot, endpoint.address(), &position);
    endpoint.learn_key(self.key);
    const auto own = flexccl::new_node_info(self);
    *info = {};
    std::memcpy(info, &own, sizeof own);
    const auto made = flexccl::Communicator::create(self, flexccl::current_settings().streams,
                                                    flexccl::current_device(), position);
    made->make_claimable();
    *comm = flexccl::publish(made);
  });
}

ncclResult_t ncclReplaceNode(ncclComm_t comm, int slot, const flexcclInfo_t* newNode) {
  return guarded([&] { flexccl::take_new_node(comm, flexccl::Repair::kReplace, slot, newNode); });
}

ncclResult_t ncclAddNode(ncclComm_t comm, const flexcclInfo_t* newNode) {
  return guarded([&] {
    require(newNode, "newNode");
    flexccl::take_new_node(comm, flexccl::Repair::kAdd, flexccl::slot_of(*newNode), newNode);
  });
}

ncclResult_t ncclRemoveNode(ncclComm_t comm, int slot) {
  return guarded([&] { flexccl::remove(comm, slot); });
}

ncclResult_t ncclCommSetupNewRank(ncclComm_t comm) {
  return guarded([&] { flexccl::set_up(*flexccl::healthy(comm)); });
}

ncclResult_t flexcclGetState(ncclComm_t comm, flexcclState_t* state) {
  return guarded([&] {
    require(state, "state");
    if (state->size != sizeof *state)
      fail(ncclInvalidArgument, "flexccl: a state of [", state->size, "] bytes, not [",
           sizeof *state, "]");
    flexccl::fill(state, *live(comm));
  });
}

ncclResult_t flexcclAskAround(ncclComm_t comm) {
  return guarded([&] { live(comm)->runner().ask_around(); });
}

ncclResult_t flexcclSetReservedSlots(int slots) {
  return guarded([&] {
    if (slots < 0) fail(ncclInvalidArgument, "flexccl: [", slots, "] reserved slots");
    flexccl::change_settings([&](flexccl::Settings& settings) { settings.reserved_slots = slots; });
  });
}

ncclResult_t flexcclSetRepair(uint64_t wait_ms) {
  return guarded([&] {
    flexccl::change_settings([&](flexccl::Settings& settings) { settings.repair_ms = wait_ms; });
  });
}
