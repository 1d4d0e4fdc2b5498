// Questions, memory, operators, and what the embedding program sets.
#include <cstdlib>
#include <cstring>

#include "api/state.h"
#include "transport/fault.h"

using flexccl::fail;
using flexccl::guarded;
using flexccl::live;
using flexccl::require;

ncclResult_t ncclGetVersion(int* version) {
  return guarded([&] {
    require(version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a stream or device call failed";
    case ncclSystemError:
      return "a system call failed";
    case ncclInternalError:
      return "internal error of flexccl";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another rank failed or cannot be reached";
    case ncclInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  try {
    // The handle keeps the communicator, and with it the sentence, until it is destroyed.
    if (comm)
      if (const char* sentence = live(comm)->error_sentence()) return sentence;
  } catch (const flexccl::Error&) {
    // Not a communicator: this thread's last sentence is the best answer.
  }
  return flexccl::last_sentence().c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded([&] {
    require(asyncError, "asyncError");
    *asyncError = live(comm)->async_error();
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded([&] {
    require(count, "count");
    *count = live(comm)->view()->ring().size;
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded([&] {
    require(rank, "rank");
    *rank = live(comm)->view()->slot;
  });
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return guarded([&] {
    require(ptr, "ptr");
    constexpr size_t kPage = 4096;
    *ptr = std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage);
    if (!*ptr) fail(ncclSystemError, "flexccl: no memory of [", size, "] bytes");
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  std::free(ptr);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  static_cast<void>(size);
  return guarded([&] {
    require(handle, "handle");
    live(comm);
    *handle = buff;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  static_cast<void>(handle);
  return guarded([&] { live(comm); });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    require(op, "op");
    require(scalar, "scalar");
    const size_t bytes = flexccl::element_size(datatype);
    if (!bytes) fail(ncclInvalidArgument, "flexccl: datatype [", int(datatype), "] is unknown");
    flexccl::CustomOp custom{.dtype = datatype};
    if (residence == ncclScalarDevice)
      custom.device_scalar = scalar;
    else
      std::memcpy(&custom.scalar, scalar, bytes);
    *op = live(comm)->add_op(custom);
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&] { live(comm)->remove_op(op); });
}

ncclResult_t flexcclSetStreamTable(const flexcclStreamTable* table) {
  return guarded([&] {
    flexccl::change_settings([&](flexccl::Settings& settings) {
      settings.streams = table ? *table : flexcclStreamTable{};
    });
  });
}

ncclResult_t flexcclSetTransport(flexcclTransport_t transport) {
  return guarded([&] {
    if (transport < flexcclAuto || transport > flexcclTcp)
      fail(ncclInvalidArgument, "flexccl: transport [", int(transport), "] is unknown");
    flexccl::change_settings([&](flexccl::Settings& settings) { settings.transport = transport; });
  });
}

ncclResult_t flexcclSetTimeout(uint64_t timeout_ms) {
  return guarded([&] {
    if (!timeout_ms) fail(ncclInvalidArgument, "flexccl: a timeout of [0] ms");
    flexccl::change_settings(
        [&](flexccl::Settings& settings) { settings.timeout_ms = timeout_ms; });
  });
}

ncclResult_t flexcclSetFault(const char* rules) {
  return guarded([&] {
    flexccl::read_faults_from_environment();  // so that it cannot replace these rules later
    flexccl::set_faults(rules);
  });
}

ncclResult_t flexcclSynchronize(ncclComm_t comm) {
  return guarded([&] {
    const auto communicator = live(comm);
    communicator->synchronize();
    if (const ncclResult_t code = communicator->async_error(); code != ncclSuccess)
      throw flexccl::Error(code, communicator->error_sentence());
  });
}
