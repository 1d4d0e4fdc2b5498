// The repair calls over stock NCCL. Nothing here is cheaper than NCCL is: a replace is one fresh
// initialisation with the same numbers, a remove is one shrink, an add is one grow or one fresh
// initialisation.
#include <cstring>
#include <utility>

#include "nccl_engine/communicator.h"

namespace flexccl::nccl_engine {
namespace {

constexpr std::uint32_t kMagic = 0x6e656e67;
constexpr std::size_t kMaxSlots = 16384;
enum Method : std::uint32_t { kFresh = 1, kGrow = 2 };

// What lies in a flexcclInfo_t of this engine. `epoch` is the one that the repair leads to, `live`
// the members it leads to.
struct Info {
  std::uint32_t magic, bytes;
  std::uint64_t identity;
  Method method;
  std::uint32_t epoch;
  std::int32_t slot, slots, nccl_version, answered;
  ncclUniqueId id;
  std::uint8_t live[kMaxSlots / 8];
};
static_assert(sizeof(Info) <= FLEXCCL_INFO_BYTES);

void write(const Info& info, flexcclInfo_t* out) {
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &info, sizeof info);
}

Info read(const flexcclInfo_t* from, bool answered) {
  require(from, "info");
  Info info;
  std::memcpy(&info, from, sizeof info);
  if (info.magic != kMagic || info.bytes != sizeof info || info.slots < 1 ||
      info.slots > static_cast<int>(kMaxSlots) || info.slot < 0 || info.slot >= info.slots)
    fail(ncclInvalidArgument, "flexccl: an info with magic [", info.magic,
         "] was not made by this version of the nccl engine");
  if (info.answered != static_cast<int>(answered))
    fail(ncclInvalidArgument, "flexccl: the info comes from [",
         info.answered ? "ncclInitNewNode" : "ncclCommExportInfo", "], the call needs that of [",
         answered ? "ncclInitNewNode" : "ncclCommExportInfo", "]");
  return info;
}

Members members_of(const Info& info) {
  Members members;
  members.live.resize(static_cast<std::size_t>(info.slots));
  for (std::size_t slot = 0; slot < members.live.size(); ++slot)
    members.live[slot] = info.live[slot / 8] >> (slot % 8) & 1;
  return members;
}

bool same(const std::optional<ncclUniqueId>& a, const ncclUniqueId& b) {
  return a && std::memcmp(&*a, &b, sizeof b) == 0;
}

// Takes the NCCL communicator away: nobody can use it any more, and waits on it end.
ncclComm_t take_away(ncclComm& comm) {
  const std::scoped_lock lock(comm.mutex);
  ++comm.generation;
  comm.registrations.clear();
  for (auto& [number, op] : comm.ops) op.real.reset();
  return std::exchange(comm.real, nullptr);
}

// Ends running operations, locally where this NCCL can, then frees the communicator. What it says
// about a communicator with a dead rank is of no interest.
void give_up(ncclComm_t real) {
  if (!real) return;
  if (library().can_revoke()) library().ncclCommRevoke(real, 0);
  library().ncclCommAbort(real);
}

void install(ncclComm& comm, ncclComm_t real, const Members& members, std::uint32_t epoch,
             const std::optional<ncclUniqueId>& id) {
  const std::scoped_lock lock(comm.mutex);
  comm.real = real;
  ++comm.generation;
  comm.registrations.clear();
  for (auto& [number, op] : comm.ops) op.real.reset();
  comm.members = members;
  comm.epoch = epoch;
  comm.taken_id = id;
  comm.grow_id.reset();
}

ncclComm_t fresh(ncclComm& comm, const Members& members, const ncclUniqueId& id) {
  ncclComm_t real = nullptr;
  const ncclResult_t code = library().ncclCommInitRankConfig(
      &real, members.count(), id, members.position(comm.slot), comm.config.get());
  settle_new(real, code, "ncclCommInitRankConfig");
  return real;
}

// `parent` is null in a new rank.
ncclComm_t grown(ncclComm& comm, ncclComm_t parent, const Info& info, const Members& members) {
  const bool needs_id = !parent || same(comm.grow_id, info.id);
  const int rank = parent ? -1 : members.position(comm.slot);
  ncclComm_t real = nullptr;
  const ncclResult_t code = library().ncclCommGrow(
      parent, members.count(), needs_id ? &info.id : nullptr, rank, &real, comm.config.get());
  settle_new(real, code, "ncclCommGrow");
  return real;
}

Info export_info(ncclComm& comm, int slot) {
  const std::scoped_lock lock(comm.mutex);
  const std::size_t slots = comm.members.live.size();
  if (slots > kMaxSlots)
    fail(ncclInvalidUsage, "flexccl: [", slots, "] slots are more than [", kMaxSlots, "]");
  if (slot < 0 || static_cast<std::size_t>(slot) >= slots || slot == comm.slot)
    fail(ncclInvalidArgument, "flexccl: slot [", slot, "] of [", slots, "] cannot be taken, rank [",
         comm.slot, "] says");
  const Members after = comm.members.with(slot);
  Info info{};
  info.magic = kMagic, info.bytes = sizeof info, info.identity = comm.identity;
  info.epoch = comm.epoch + 1, info.slot = slot, info.slots = static_cast<int>(slots);
  info.nccl_version = library().version;
  for (std::size_t i = 0; i < slots; ++i)
    if (after.live[i]) info.live[i / 8] |= static_cast<std::uint8_t>(1 << (i % 8));
  // NCCL appends: only a slot behind all others gets the right number. A communicator of one rank
  // has no ring to reach the others by.
  const bool appends = !comm.members.has(slot) && after.position(slot) == comm.members.count();
  const bool grows = appends && comm.real && comm.members.count() > 1 && library().can_grow();
  info.method = grows ? kGrow : kFresh;
  if (grows) {
    check(library().ncclCommGetUniqueId(comm.real, &info.id), comm.real, "ncclCommGetUniqueId");
    comm.grow_id = info.id;
  }
  return info;
}

// False when this very repair has been done here.
bool must_take(ncclComm& comm, const Info& info) {
  const std::scoped_lock lock(comm.mutex);
  if (info.identity != comm.identity || info.slots != static_cast<int>(comm.members.live.size()))
    fail(ncclInvalidArgument, "flexccl: the info belongs to another communicator");
  if (info.nccl_version != library().version)
    fail(ncclInvalidUsage, "flexccl: the new rank has NCCL [", info.nccl_version, "], this one [",
         library().version, "]");
  if (info.epoch == comm.epoch && same(comm.taken_id, info.id)) return false;
  if (info.epoch <= comm.epoch)
    fail(ncclInvalidUsage, "flexccl: the info leads to epoch [", info.epoch, "], rank [", comm.slot,
         "] is at [", comm.epoch, "]: export again");
  if (info.slot == comm.slot)
    fail(ncclInvalidArgument, "flexccl: slot [", info.slot, "] is this rank's own");
  return true;
}

void replace(ncclComm& comm, int slot, const flexcclInfo_t* new_node) {
  const Info info = read(new_node, true);
  if (info.slot != slot)
    fail(ncclInvalidArgument, "flexccl: the new rank takes slot [", info.slot, "], not [", slot,
         "]");
  const std::scoped_lock turn(comm.repairing);
  if (!must_take(comm, info)) return;
  give_up(take_away(comm));
  const Members members = members_of(info);
  install(comm, fresh(comm, members, info.id), members, info.epoch, info.id);
}

void add(ncclComm& comm, const flexcclInfo_t* new_node) {
  const Info info = read(new_node, true);
  const std::scoped_lock turn(comm.repairing);
  if (!must_take(comm, info)) return;
  const Members members = members_of(info);
  if (info.method == kFresh) {
    give_up(take_away(comm));
    install(comm, fresh(comm, members, info.id), members, info.epoch, info.id);
    return;
  }
  ncclComm_t parent;
  {
    const std::scoped_lock lock(comm.mutex);
    if (!comm.real || info.epoch != comm.epoch + 1)
      fail(ncclInvalidUsage, "flexccl: NCCL grows a whole communicator of epoch [", info.epoch - 1,
           "], rank [", comm.slot, "] is at [", comm.epoch, "]");
    parent = comm.real;
  }
  const ncclComm_t real = grown(comm, parent, info, members);
  install(comm, real, members, info.epoch, info.id);
  library().ncclCommDestroy(parent);
}

void remove(ncclComm& comm, int slot) {
  const std::scoped_lock turn(comm.repairing);
  std::unique_lock lock(comm.mutex);
  if (slot < 0 || static_cast<std::size_t>(slot) >= comm.members.live.size() || slot == comm.slot)
    fail(ncclInvalidArgument, "flexccl: slot [", slot, "] cannot be removed at rank [", comm.slot,
         "]");
  if (!comm.members.has(slot)) return;
  if (!library().can_shrink())
    fail(ncclInvalidUsage, "flexccl: a remove needs ncclCommShrink, which NCCL [",
         library().version_text(), "] has not: 2.27.3 or newer");
  if (!comm.real)
    fail(ncclInvalidUsage, "flexccl: NCCL shrinks a whole communicator, and that of rank [",
         comm.slot, "] was given up: replace slot [", slot, "] instead");
  const Members members = comm.members.without(slot);
  const ncclComm_t parent = comm.real;
  int position = comm.members.position(slot);
  const std::uint32_t epoch = comm.epoch + 1;
  lock.unlock();
  ncclComm_t real = nullptr;
  const ncclResult_t code =
      library().ncclCommShrink(parent, &position, 1, &real, comm.config.get(), NCCL_SHRINK_ABORT);
  settle_new(real, code, "ncclCommShrink");
  install(comm, real, members, epoch, std::nullopt);
  // Not destroy: that would wait for the rank that is gone.
  library().ncclCommAbort(parent);
}

void setup(ncclComm& comm) {
  const std::scoped_lock turn(comm.repairing);
  if (comm.new_method == 0)
    fail(ncclInvalidUsage, "flexccl: ncclCommSetupNewRank: rank [", comm.slot, "] is not new");
  if (comm.real) return;
  Info info{};
  info.id = *comm.taken_id;
  const Members members = comm.members;
  const ncclComm_t real = comm.new_method == kGrow ? grown(comm, nullptr, info, members)
                                                   : fresh(comm, members, info.id);
  install(comm, real, members, comm.epoch, info.id);
}

}  // namespace
}  // namespace flexccl::nccl_engine

namespace engine = flexccl::nccl_engine;
using engine::guarded;
using engine::live;

ncclResult_t ncclCommExportInfo(ncclComm_t comm, int slot, flexcclInfo_t* info) {
  return guarded([&] {
    engine::require(info, "info");
    engine::write(engine::export_info(*live(comm), slot), info);
  });
}

ncclResult_t ncclInitNewNode(ncclComm_t* comm, const flexcclInfo_t* exported, int slot,
                             flexcclInfo_t* info) {
  return guarded([&] {
    engine::require(comm, "comm");
    engine::require(info, "info");
    *comm = nullptr;
    engine::Info given = engine::read(exported, false);
    if (given.slot != slot)
      flexccl::fail(ncclInvalidArgument, "flexccl: the info is for slot [", given.slot, "], not [",
                    slot, "]");
    if (given.nccl_version != engine::library().version)
      flexccl::fail(ncclInvalidUsage, "flexccl: the communicator has NCCL [", given.nccl_version,
                    "], this process [", engine::library().version, "]");
    if (given.method == engine::kFresh)
      engine::check(engine::library().ncclGetUniqueId(&given.id), nullptr, "ncclGetUniqueId");
    given.answered = 1;
    const auto made = std::make_shared<ncclComm>(slot, engine::members_of(given), nullptr);
    made->identity = given.identity;
    made->epoch = given.epoch;
    made->taken_id = given.id;
    made->new_method = static_cast<int>(given.method);
    engine::write(given, info);
    *comm = engine::publish(made);
  });
}

ncclResult_t ncclReplaceNode(ncclComm_t comm, int slot, const flexcclInfo_t* newNode) {
  return guarded([&] { engine::replace(*live(comm), slot, newNode); });
}

ncclResult_t ncclAddNode(ncclComm_t comm, const flexcclInfo_t* newNode) {
  return guarded([&] { engine::add(*live(comm), newNode); });
}

ncclResult_t ncclRemoveNode(ncclComm_t comm, int slot) {
  return guarded([&] { engine::remove(*live(comm), slot); });
}

ncclResult_t ncclCommSetupNewRank(ncclComm_t comm) {
  return guarded([&] { engine::setup(*live(comm)); });
}

ncclResult_t flexcclGetState(ncclComm_t comm, flexcclState_t* state) {
  return guarded([&] {
    engine::require(state, "state");
    if (state->size != sizeof *state)
      flexccl::fail(ncclInvalidArgument, "flexccl: a state of [", state->size, "] bytes, not [",
                    sizeof *state, "]");
    const auto self = live(comm);
    const std::scoped_lock lock(self->mutex);
    *state = {};
    state->size = sizeof *state;
    state->epoch = self->epoch;
    state->slot = self->slot;
    state->slots = static_cast<int>(self->members.live.size());
    state->nranks = self->members.count();
    state->position = self->members.position(self->slot);
    state->suspect = -1;
  });
}

ncclResult_t flexcclSetReservedSlots(int slots) {
  return guarded([&] {
    if (slots < 0) flexccl::fail(ncclInvalidArgument, "flexccl: [", slots, "] reserved slots");
    engine::change_settings([&](engine::Settings& settings) { settings.reserved_slots = slots; });
  });
}

ncclResult_t flexcclSetTimeout(uint64_t timeout_ms) {
  return guarded([&] {
    if (!timeout_ms) flexccl::fail(ncclInvalidArgument, "flexccl: a timeout of [0] ms");
    engine::change_settings([&](engine::Settings& settings) { settings.timeout_ms = timeout_ms; });
  });
}
