// A handle that outlives NCCL's communicators: slots, epoch, and the NCCL communicator of the
// epoch.
//
// Threads: `mutex` guards everything below it and is never held during a wait, so that a repair can
// end what another thread waits for. Repairs of one communicator take turns by `repairing`.
#ifndef FLEXCCL_NCCL_ENGINE_COMMUNICATOR_H_
#define FLEXCCL_NCCL_ENGINE_COMMUNICATOR_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl_engine/library.h"

namespace flexccl::nccl_engine {

// Which slots have a rank. NCCL numbers the live slots in their order: a slot's *position*.
struct Members {
  std::vector<bool> live;

  static Members first(int nranks, int reserved);
  bool has(int slot) const;
  int count() const;
  int position(int slot) const;
  int slot_at(int position) const;
  Members with(int slot) const;
  Members without(int slot) const;
};

// The caller's ncclConfig_t, whatever its size, with blocking = 0: a communicator that blocks
// cannot be given up in the middle.
class Config {
 public:
  explicit Config(const ncclConfig_t* given);
  ncclConfig_t* get() { return reinterpret_cast<ncclConfig_t*>(bytes_.data()); }

 private:
  std::vector<char> bytes_;
  std::string net_name_, comm_name_;
};

struct PreMulSum {
  ncclDataType_t dtype = ncclInt8;
  ncclScalarResidence_t residence = ncclScalarHostImmediate;
  std::uint64_t host_scalar = 0;
  void* device_scalar = nullptr;
  std::optional<ncclRedOp_t> real;  // of the present NCCL communicator
};

}  // namespace flexccl::nccl_engine

struct ncclComm {
  ncclComm(int slot_number, flexccl::nccl_engine::Members who, const ncclConfig_t* given)
      : slot(slot_number), config(given), members(std::move(who)) {}

  const int slot;
  std::uint64_t identity = 0;  // the same at all ranks, different for every communicator
  std::mutex repairing;
  flexccl::nccl_engine::Config config;  // guarded by `repairing`

  std::mutex mutex;
  ncclComm_t real = nullptr;  // null: there is none until a repair succeeds
  std::uint32_t epoch = 0;
  std::uint64_t generation = 0;  // of `real`: changes whenever that does
  flexccl::nccl_engine::Members members;
  std::map<int, flexccl::nccl_engine::PreMulSum> ops;
  int next_op = ncclNumOps;
  std::set<void*> registrations;
  std::optional<ncclUniqueId> grow_id;   // made by this rank's ncclCommExportInfo
  std::optional<ncclUniqueId> taken_id;  // by which the last repair was done
  int new_method = 0;                    // of a new rank until ncclCommSetupNewRank
};

namespace flexccl::nccl_engine {

using Comm = std::shared_ptr<ncclComm>;
using Deadline = std::chrono::steady_clock::time_point;

Comm live(ncclComm_t comm);
ncclComm_t publish(Comm comm);
Comm withdraw(ncclComm_t comm);

struct Settings {
  std::uint64_t timeout_ms;
  int reserved_slots;
};
// FLEXCCL_TIMEOUT_MS, FLEXCCL_RESERVED_SLOTS, unless set by call.
Settings settings();
void change_settings(const std::function<void(Settings&)>& change);
Deadline deadline();

std::string& last_sentence();
ncclResult_t note(const Error& error);

// Throws the sentence of `what`, with NCCL's own behind it, unless `code` is ncclSuccess.
void check(ncclResult_t code, ncclComm_t real, const char* what);
// Waits while an NCCL communicator nobody else knows is being made; gives it up when that fails.
void settle_new(ncclComm_t real, ncclResult_t code, const char* what);
// Waits until calls on `comm` are taken. Throws when a repair replaces what they were made on.
void settle(ncclComm& comm, std::uint64_t generation, ncclResult_t code, const char* what);

// The edge between C++ and C.
template <class Body>
ncclResult_t guarded(Body body) {
  try {
    body();
    return ncclSuccess;
  } catch (const Error& error) {
    return note(error);
  } catch (const std::exception& error) {
    return note(Error(ncclSystemError, error.what()));
  }
}

template <class T>
void require(T* pointer, const char* what) {
  if (!pointer) fail(ncclInvalidArgument, "flexccl: ", what, " is NULL");
}

// NCCL's number of a rank, which callers name by its slot. Throws for slots without a rank.
int position_of(const ncclComm& comm, int slot);

// Groups: what this thread has begun since the outermost ncclGroupStart.
bool in_group();
void join_group(const Comm& comm, std::uint64_t generation);

// Calls NCCL on the present communicator: body(real) under the lock, then waits as needed.
template <class Body>
ncclResult_t on_real(ncclComm_t handle, const char* what, Body body) {
  return guarded([&] {
    const Comm comm = live(handle);
    std::unique_lock lock(comm->mutex);
    if (!comm->real)
      fail(ncclInvalidUsage, "flexccl: ", what,
           ": the communicator has had no NCCL communicator since epoch [", comm->epoch,
           "] was given up: repair it");
    const ncclResult_t code = body(*comm);
    const std::uint64_t generation = comm->generation;
    lock.unlock();
    if (in_group()) {
      if (code != ncclInProgress) check(code, nullptr, what);
      join_group(comm, generation);
    } else {
      settle(*comm, generation, code, what);
    }
  });
}

}  // namespace flexccl::nccl_engine

#endif  // FLEXCCL_NCCL_ENGINE_COMMUNICATOR_H_
