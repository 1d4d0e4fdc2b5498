#include <algorithm>
#include <cstring>
#include <string>

#include "client/entry_points.h"
#include "client/process.h"

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
void* entry_point(const char* name) {
  for (const char* suffix : {"_v3", "_v2", ""})
    if (void* found = exact(std::string(name) + suffix)) return found;
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
  *pfn = entry_point(symbol);
  if (symbolStatus)
    *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

PYFT_API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult* driverStatus) {
  enter(Api::cudaGetDriverEntryPointByVersion);
  if (!symbol || !funcPtr) return done(cudaErrorInvalidValue);
  *funcPtr = entry_point(symbol);
  if (driverStatus)
    *driverStatus = *funcPtr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* driverStatus) {
  enter(Api::cudaGetDriverEntryPoint);
  if (!symbol || !funcPtr) return done(cudaErrorInvalidValue);
  *funcPtr = entry_point(symbol);
  if (driverStatus)
    *driverStatus = *funcPtr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
