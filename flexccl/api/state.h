// What the C functions share: live communicators, settings, this thread's group and last error.
#ifndef FLEXCCL_API_STATE_H_
#define FLEXCCL_API_STATE_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runner/communicator.h"

struct ncclComm {
  std::shared_ptr<flexccl::Communicator> communicator;
};

namespace flexccl {

struct Settings {
  flexcclTransport_t transport;
  std::uint64_t timeout_ms;
  flexcclStreamTable streams;
  int reserved_slots;
  std::uint64_t repair_ms;
  bool partial;
  flexcclMaking_t making = nullptr;
};
// Defaults: FLEXCCL_TRANSPORT, FLEXCCL_TIMEOUT_MS, FLEXCCL_RESERVED_SLOTS, FLEXCCL_REPAIR_MS,
// FLEXCCL_ABORT.
Settings current_settings();
void change_settings(const std::function<void(Settings&)>& change);

ncclComm_t publish(std::shared_ptr<Communicator> communicator);
// Throws ncclInvalidArgument for anything that is not a live communicator.
std::shared_ptr<Communicator> live(ncclComm_t comm);
std::shared_ptr<Communicator> withdraw(ncclComm_t comm);
// Ranks that have left, of communicators that are there and of those that are not yet made.
void rank_left(std::uint64_t number, int slot);
std::optional<int> anybody_left(std::uint64_t number, int but);
// Tells one that has just been made.
void tell_who_left(const std::shared_ptr<Communicator>& communicator);
// Null: this process has no such communicator. `slot` -1: of any rank.
ncclComm_t find(std::uint64_t number, int slot = -1);
bool has_ended(std::uint64_t number);
// The communicator of a new rank that was made before the program's call for it is repeated; null
// when there is none.
ncclComm_t claim(std::uint64_t number, int slot);
// Replacements in communicators that are about to be made (flexcclReplaceLater).
void replace_later(std::uint64_t number, int slot, const flexcclInfo_t& info);
void replace_now(ncclComm_t comm);

// One collective, or one send or receive, as it stands in a group.
struct Call {
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream = nullptr;
  OperationRunner::Make make;  // runs when the operation runs; null: `transfer`
  PointToPoint transfer;
};
// Now, or at the end of this thread's group.
void enqueue(Call call);
// Initialisations block until all ranks are there: in a group they run together, at its end.
void initialise(std::function<void()> init);
bool in_group();

// The sentence of this thread's last error.
std::string& last_sentence();
ncclResult_t note(const Error& error);
ncclResult_t note_in_group(ncclResult_t code);

// The edge between C++ and C: every exported function runs in here.
template <class Body>
ncclResult_t guarded(Body body) {
  try {
    body();
    return ncclSuccess;
  } catch (const Error& error) {
    return note_in_group(note(error));
  } catch (const std::exception& error) {
    return note_in_group(note(Error(ncclSystemError, error.what())));
  }
}

template <class T>
void require(T* pointer, const char* what) {
  if (!pointer) fail(ncclInvalidArgument, "flexccl: ", what, " is NULL");
}

// Of the calling thread, as the embedder's stream table says; 0 without one.
int current_device();

}  // namespace flexccl

#endif  // FLEXCCL_API_STATE_H_
