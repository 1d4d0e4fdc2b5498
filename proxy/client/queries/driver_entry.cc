#include <algorithm>
#include <cstring>
#include <string>

#include "client/device/stream.h"
#include "client/process/process.h"
#include "client/queries/entry_points.h"

namespace pyft::client {
namespace {

void* exact(const std::string& name) {
  const EntryPoint* const end = kEntryPoints + kEntryPointCount;
  const EntryPoint* found = std::lower_bound(
      kEntryPoints, end, name.c_str(),
      [](const EntryPoint& a, const char* b) { return std::strcmp(a.name, b) < 0; });
  const bool hit = found != end && name == found->name;
  return hit ? reinterpret_cast<void*>(found->function) : nullptr;
}

}  // namespace

// The newest version is the one with the present prototype.
void* entry_point(const char* name, uint64_t flags) {
  static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ==
                int{cudaEnablePerThreadDefaultStream});
  // Programs compiled for streams per thread ask by variants of our functions instead.
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
                          (null_is_own() && !(flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM));
  for (const std::string version : {"_v3", "_v2", ""})
    for (const std::string variant : {"_ptsz", "_ptds", ""})
      if (per_thread || variant.empty())
        if (void* found = exact(name + version + variant)) return found;
  return nullptr;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                      cuuint64_t flags,
                                      CUdriverProcAddressQueryResult* symbolStatus) {
  enter(Api::cuGetProcAddress_v2);
  if (!symbol || !pfn) return CUDA_ERROR_INVALID_VALUE;
  *pfn = entry_point(symbol, flags);
  if (symbolStatus)
    *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  // With a status the call itself succeeds; without one the code has to say it.
  return *pfn || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

PYFT_API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult* driverStatus) {
  enter(Api::cudaGetDriverEntryPointByVersion);
  if (!symbol || !funcPtr) return done(cudaErrorInvalidValue);
  *funcPtr = entry_point(symbol, flags);
  if (driverStatus)
    *driverStatus = *funcPtr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *funcPtr || driverStatus ? cudaSuccess : done(cudaErrorSymbolNotFound);
}

PYFT_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* driverStatus) {
  enter(Api::cudaGetDriverEntryPoint);
  if (!symbol || !funcPtr) return done(cudaErrorInvalidValue);
  *funcPtr = entry_point(symbol, flags);
  if (driverStatus)
    *driverStatus = *funcPtr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *funcPtr || driverStatus ? cudaSuccess : done(cudaErrorSymbolNotFound);
}
