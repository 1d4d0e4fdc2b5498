// What the handlers of NCCL's calls share.
#ifndef PYFT_SERVER_COLLECTIVES_NCCL_H_
#define PYFT_SERVER_COLLECTIVES_NCCL_H_

#include <mutex>
#include <vector>

#include "server/handlers/handlers.h"

namespace pyft::server {

// The communicators whose errors are published. Guarded by its mutex: the watchdog reads.
struct Communicators : Sweep {
  // Publishes errors that were not there before.
  void sweep() override;

  struct Live {
    ncclComm_t comm;
    uint32_t word;
    uint64_t error_base;
  };
  std::mutex mutex;
  std::vector<Live> live;
  Session* session = nullptr;  // whose state this is
};

// Publishes the error of a communicator whose call was refused, as one of its own.
void fail_communicator(Session& session, uint64_t handle, int code);

}  // namespace pyft::server

#endif  // PYFT_SERVER_COLLECTIVES_NCCL_H_
