// What the client answers about communicators without asking the server.
#include <atomic>

#include "client/collectives/nccl.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

template <class Out, class Value>
ncclResult_t answer(const char* call, const ncclComm* comm, Out* out, Value value) {
  Communicator* communicator = communicator_of(comm);
  if (!communicator || !out) return no_communicator(call);
  *out = value(*communicator);
  return ncclSuccess;
}

ncclResult_t nothing_to_do(const char* call, const ncclComm* comm) {
  return communicator_of(comm) ? ncclSuccess : no_communicator(call);
}

}  // namespace

PYFT_API ncclResult_t ncclGetVersion(int* version) {
  const Entered entered(Api::ncclGetVersion);
  if (!version) return refuse_nccl(__func__, ncclInvalidArgument, "got no result pointer");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

PYFT_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const Entered entered(Api::ncclCommGetAsyncError);
  return answer(__func__, comm, asyncError, async_error);
}

PYFT_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const Entered entered(Api::ncclCommCount);
  return answer(__func__, comm, count, [](const Communicator& c) { return c.size; });
}

PYFT_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const Entered entered(Api::ncclCommUserRank);
  return answer(__func__, comm, rank, [](const Communicator& c) { return c.rank; });
}

PYFT_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const Entered entered(Api::ncclCommCuDevice);
  return answer(__func__, comm, device, [](const Communicator& c) { return c.device.ordinal(); });
}

PYFT_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size,
                                       void** handle) {
  const Entered entered(Api::ncclCommRegister);
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    say("[ncclCommRegister] has no effect: results are the same, without the copies that NCCL "
        "saves for registered buffers");
  return answer(__func__, comm, handle, [buff](const Communicator&) { return buff; });
}

PYFT_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Entered entered(Api::ncclCommDeregister);
  return nothing_to_do(__func__, comm);
}

PYFT_API ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  const Entered entered(Api::ncclMemAlloc);
  return nccl_result(cudaMalloc(ptr, size));
}

PYFT_API ncclResult_t ncclMemFree(void* ptr) {
  const Entered entered(Api::ncclMemFree);
  return nccl_result(cudaFree(ptr));
}

PYFT_API const char* ncclGetErrorString(ncclResult_t result) {
  const Entered entered(Api::ncclGetErrorString);
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclSystemError:
      return "a system call failed";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another rank failed or is gone";
    case ncclInProgress:
      return "in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

PYFT_API const char* ncclGetLastError(ncclComm_t comm) {
  const Entered entered(Api::ncclGetLastError);
  Communicator* communicator = comm ? communicator_of(comm) : nullptr;
  if (communicator && async_error(*communicator) != ncclSuccess) {
    const std::scoped_lock lock(communicator->mutex);
    return communicator->sentence.c_str();  // set once
  }
  return last_nccl_sentence().c_str();
}
