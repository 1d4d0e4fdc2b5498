// The vendor's NCCL, found at run time: FLEXCCL_NCCL_LIBRARY, or libnccl.so.2. Which calls there
// are is decided by ncclGetVersion, not by which symbols can be found: some were exported before
// they worked.
#ifndef FLEXCCL_NCCL_ENGINE_LIBRARY_H_
#define FLEXCCL_NCCL_ENGINE_LIBRARY_H_

#include <string>

#include "core/error.h"
#include "flexccl.h"

namespace flexccl::nccl_engine {

// As flexccl.h declares them; a test compares that header with nccl.h.
// clang-format off
#define FLEXCCL_NCCL_NEEDED(X)                                                      \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId)    \
  X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommSplit) X(ncclCommFinalize) \
  X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclCommCount)     \
  X(ncclCommUserRank) X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy)               \
  X(ncclAllReduce) X(ncclReduceScatter) X(ncclReduce) X(ncclAllGather)              \
  X(ncclBroadcast) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)
#define FLEXCCL_NCCL_OPTIONAL(X)                                                    \
  X(ncclMemAlloc) X(ncclMemFree) X(ncclCommRegister) X(ncclCommDeregister)          \
  X(ncclCommInitRankScalable) X(ncclCommShrink) X(ncclAlltoAll) X(ncclGather) X(ncclScatter)
// clang-format on

struct Library {
#define FLEXCCL_NCCL_FIELD(name) decltype(&::name) name = nullptr;
  FLEXCCL_NCCL_NEEDED(FLEXCCL_NCCL_FIELD)
  FLEXCCL_NCCL_OPTIONAL(FLEXCCL_NCCL_FIELD)
#undef FLEXCCL_NCCL_FIELD
  // Not in the API that flexccl.h has.
  ncclResult_t (*ncclCommRevoke)(ncclComm_t comm, int revokeFlags) = nullptr;
  ncclResult_t (*ncclCommGetUniqueId)(ncclComm_t comm, ncclUniqueId* uniqueId) = nullptr;
  ncclResult_t (*ncclCommGrow)(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                               ncclComm_t* newcomm, ncclConfig_t* config) = nullptr;
  int version = 0;

  bool can_revoke() const { return version >= 22807 && ncclCommRevoke; }
  bool can_shrink() const { return version >= 22703 && ncclCommShrink; }
  bool can_grow() const { return version >= 22902 && ncclCommGrow && ncclCommGetUniqueId; }
  std::string version_text() const;
};

// Loads it once. Throws ncclSystemError with the loader's sentence; the next call tries again.
const Library& library();

// Throws ncclInvalidUsage unless this NCCL has the optional call `name`.
template <class Function>
Function optional(Function function, const char* name) {
  if (!function)
    fail(ncclInvalidUsage, "flexccl: NCCL [", library().version_text(), "] has no ", name);
  return function;
}

}  // namespace flexccl::nccl_engine

#endif  // FLEXCCL_NCCL_ENGINE_LIBRARY_H_
