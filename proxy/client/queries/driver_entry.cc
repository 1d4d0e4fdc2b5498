#include <algorithm>
#include <cstring>

#include "client/device/stream.h"
#include "client/driver_versions.h"
#include "client/process/process.h"
#include "client/queries/entry_points.h"

namespace pyft::client {
namespace {

void* exact(const char* name) {
  const EntryPoint* const end = kEntryPoints + kEntryPointCount;
  const EntryPoint* found = std::lower_bound(
      kEntryPoints, end, name,
      [](const EntryPoint& a, const char* b) { return std::strcmp(a.name, b) < 0; });
  const bool hit = found != end && std::strcmp(found->name, name) == 0;
  return hit ? reinterpret_cast<void*>(found->function) : nullptr;
}

constexpr uint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

cudaError_t runtime_entry_point(const char* symbol, void** out, unsigned version, uint64_t flags,
                                cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !out || flags & ~kKnownFlags) return cudaErrorInvalidValue;
  const Found found = entry_point(symbol, version, flags);
  *out = found.function;
  if (status)
    *status = found.function  ? cudaDriverEntryPointSuccess
              : found.too_old ? cudaDriverEntryPointVersionNotSufficent
                              : cudaDriverEntryPointSymbolNotFound;
  return *out || status ? cudaSuccess : cudaErrorSymbolNotFound;
}

}  // namespace

Found entry_point(const char* name, unsigned version, uint64_t flags) {
  static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ==
                int{cudaEnablePerThreadDefaultStream});
  // Programs compiled for streams per thread ask by variants of our functions instead.
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
                          (null_is_own() && !(flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM));
  const DriverAnswer answer = driver_function(name, version, per_thread, exact);
  return {answer.function, answer.too_old};
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

// As drivers 535 to 555 do, it succeeds without a function too, whether a status is asked for or
// not. The caller looks at the function.
PYFT_API CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                      cuuint64_t flags,
                                      CUdriverProcAddressQueryResult* symbolStatus) {
  const Entered entered(Api::cuGetProcAddress_v2);
  if (!symbol || !pfn || flags & ~kKnownFlags) return CUDA_ERROR_INVALID_VALUE;
  const Found found = entry_point(symbol, static_cast<unsigned>(cudaVersion), flags);
  *pfn = found.function;
  if (symbolStatus)
    *symbolStatus = found.function  ? CU_GET_PROC_ADDRESS_SUCCESS
                    : found.too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

PYFT_API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult* driverStatus) {
  const Entered entered(Api::cudaGetDriverEntryPointByVersion);
  return done(runtime_entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus));
}

// The version is that of the runtime, which is CUDA 13's here.
PYFT_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* driverStatus) {
  const Entered entered(Api::cudaGetDriverEntryPoint);
  return done(runtime_entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus));
}
