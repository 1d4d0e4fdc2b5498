// Making, dividing and ending communicators over NCCL.
#include <cstring>
#include <utility>

#include "nccl_engine/communicator.h"

namespace flexccl::nccl_engine {
namespace {

// The same number at all ranks that were given the same id.
std::uint64_t identity_of(const ncclUniqueId& id) {
  std::uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (const char byte : id.internal)
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
  return hash;
}

void init(ncclComm_t* out, int nranks, const ncclUniqueId& id, int rank,
          const ncclConfig_t* config) {
  require(out, "comm");
  *out = nullptr;
  if (nranks < 1 || rank < 0 || rank >= nranks)
    fail(ncclInvalidArgument, "flexccl: rank [", rank, "] of [", nranks, "] cannot be");
  const auto comm =
      std::make_shared<ncclComm>(rank, Members::first(nranks, settings().reserved_slots), config);
  comm->identity = identity_of(id);
  const ncclResult_t code =
      library().ncclCommInitRankConfig(&comm->real, nranks, id, rank, comm->config.get());
  if (in_group()) {
    if (code != ncclInProgress) check(code, nullptr, "ncclCommInitRankConfig");
    join_group(comm, comm->generation);
  } else {
    settle_new(comm->real, code, "ncclCommInitRankConfig");
  }
  *out = publish(comm);
}

// A communicator that NCCL has made out of another one, or with several ids.
ncclComm_t adopt(ncclComm_t real, std::uint64_t identity, const ncclConfig_t* config) {
  int nranks = 0, rank = 0;
  check(library().ncclCommCount(real, &nranks), real, "ncclCommCount");
  check(library().ncclCommUserRank(real, &rank), real, "ncclCommUserRank");
  const auto comm =
      std::make_shared<ncclComm>(rank, Members::first(nranks, settings().reserved_slots), config);
  comm->real = real;
  comm->identity = identity;
  return publish(comm);
}

// body(parent's NCCL communicator, &child) makes a child; it is NULL for a rank that has none.
template <class Body>
ncclResult_t make_child(ncclComm_t handle, ncclComm_t* out, std::uint64_t salt, const char* what,
                        Body body) {
  return guarded([&] {
    require(out, "newcomm");
    *out = nullptr;
    if (in_group()) fail(ncclInvalidUsage, "flexccl: ", what, " inside a group is not supported");
    const Comm parent = live(handle);
    ncclComm_t child = nullptr;
    std::unique_lock lock(parent->mutex);
    if (!parent->real)
      fail(ncclInvalidUsage, "flexccl: ", what, ": the communicator waits for a repair");
    const ncclResult_t code = body(*parent, &child);
    const std::uint64_t generation = parent->generation;
    lock.unlock();
    settle(*parent, generation, code, what);
    if (!child) return;
    ncclResult_t state = ncclSuccess;
    check(library().ncclCommGetAsyncError(child, &state), child, what);
    settle_new(child, state, what);
    *out = adopt(child, parent->identity * 31 + salt, nullptr);
  });
}

void end(ncclComm_t handle, ncclResult_t (*how)(ncclComm_t), const char* what) {
  const Comm comm = withdraw(handle);
  ncclComm_t real;
  {
    const std::scoped_lock lock(comm->mutex);
    real = std::exchange(comm->real, nullptr);
    ++comm->generation;
  }
  if (!real) return;
  const ncclResult_t code = how(real);
  if (code != ncclInProgress) check(code, nullptr, what);
}

}  // namespace
}  // namespace flexccl::nccl_engine

namespace engine = flexccl::nccl_engine;
using engine::guarded;
using engine::library;

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return guarded(
      [&] { engine::check(library().ncclGetUniqueId(uniqueId), nullptr, "ncclGetUniqueId"); });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return guarded([&] { engine::init(comm, nranks, commId, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return guarded([&] { engine::init(comm, nranks, commId, rank, config); });
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  return guarded([&] {
    engine::require(newcomm, "newcomm");
    engine::require(commIds, "commIds");
    *newcomm = nullptr;
    if (engine::in_group())
      flexccl::fail(ncclInvalidUsage,
                    "flexccl: ncclCommInitRankScalable inside a group is not supported");
    engine::Config copy(config);
    ncclComm_t real = nullptr;
    const auto call =
        engine::optional(library().ncclCommInitRankScalable, "ncclCommInitRankScalable");
    const ncclResult_t code = call(&real, nranks, myrank, nId, commIds, copy.get());
    engine::settle_new(real, code, "ncclCommInitRankScalable");
    *newcomm = engine::adopt(real, engine::identity_of(commIds[0]), config);
  });
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return guarded([&] {
    engine::require(comm, "comm");
    if (ndev < 1) flexccl::fail(ncclInvalidArgument, "flexccl: [", ndev, "] devices");
    std::vector<ncclComm_t> made(static_cast<std::size_t>(ndev));
    engine::check(library().ncclCommInitAll(made.data(), ndev, devlist), nullptr,
                  "ncclCommInitAll");
    ncclUniqueId id;
    engine::check(library().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
    for (int i = 0; i < ndev; ++i)
      comm[i] = engine::adopt(made[static_cast<std::size_t>(i)], engine::identity_of(id), nullptr);
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  return engine::make_child(comm, newcomm, static_cast<std::uint64_t>(color) + 1, "ncclCommSplit",
                            [&](ncclComm& parent, ncclComm_t* child) {
                              return library().ncclCommSplit(parent.real, color, key, child,
                                                             config);
                            });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return engine::make_child(
      comm, newcomm, 0x78, "ncclCommShrink", [&](ncclComm& parent, ncclComm_t* child) {
        const auto call = engine::optional(library().ncclCommShrink, "ncclCommShrink");
        std::vector<int> positions;
        for (int i = 0; i < excludeRanksCount; ++i)
          positions.push_back(engine::position_of(parent, excludeRanksList[i]));
        return call(parent.real, positions.data(), excludeRanksCount, child, config, shrinkFlags);
      });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return engine::on_real(comm, "ncclCommFinalize",
                         [](ncclComm& self) { return library().ncclCommFinalize(self.real); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] { engine::end(comm, library().ncclCommDestroy, "ncclCommDestroy"); });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] { engine::end(comm, library().ncclCommAbort, "ncclCommAbort"); });
}
