// Communicators as the client sees them. The server has the real ones; what a rank asks its own
// communicator (rank, size, error) is answered here.
#ifndef PYFT_CLIENT_COLLECTIVES_NCCL_H_
#define PYFT_CLIENT_COLLECTIVES_NCCL_H_

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "api/commands.h"
#include "client/device/stream.h"

namespace pyft::client {

// `word` grows to `error_base` + the ncclResult_t when the communicator fails. Never freed:
// PyTorch's watchdog threads ask for communicators while the process exits.
struct Communicator {
  Communicator(Device& device, uint64_t handle, uint32_t word)
      : device(device), handle(handle), word(word) {}
  Device& device;
  const uint64_t handle;
  const uint32_t word;
  uint64_t error_base = 0;
  int rank = 0, size = 1;
  std::mutex mutex;      // guards `sentence`
  std::string sentence;  // of the first error
};

// nullptr: no live communicator.
Communicator* communicator_of(const ncclComm* handle);
ncclResult_t async_error(Communicator& communicator);

// Says it on stderr and for ncclGetLastError of this thread.
ncclResult_t refuse_nccl(const char* call, ncclResult_t code, const std::string& why);
ncclResult_t no_communicator(const char* call);
// Appends what the program has set of a new communicator's config, an NcclSettings, to what is sent
// to make it; without a config nothing. Checks it as NCCL does.
ncclResult_t add_settings(const char* call, const ncclConfig_t* given,
                          std::vector<std::byte>* payload);
const std::string& last_nccl_sentence();
void set_last_nccl_sentence(std::string sentence);
// ncclSuccess, or what became of an entry that could not be appended or answered.
ncclResult_t nccl_result(cudaError_t error);

// All collectives, sends and receives have commands of this one layout.
using NcclBody = cmd::ncclAllReduce;
struct NcclOperation {
  Call call;
  Communicator* communicator;
  Stream* stream;
  NcclBody body;
};
// Appends the operation, or keeps it until the calling thread's group ends.
ncclResult_t submit(const NcclOperation& operation);

using NcclWork = std::function<ncclResult_t()>;
// Makes a communicator, which waits for other ranks; in a group when it ends. Those of one group
// are made at the same time, as one thread may have several ranks in it.
ncclResult_t create_or_keep(NcclWork creation);
// Ends a communicator, or something of it; in a group behind its operations, which may use it. That
// of other communicators is ended at the same time: their ranks may wait for each other.
ncclResult_t end_or_keep(const Communicator& of, NcclWork end);
// At the same time, each in a thread of its own. The first failure, with its sentence.
ncclResult_t all_at_once(const std::vector<NcclWork>& work);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_COLLECTIVES_NCCL_H_
