// Finding functions by name: only ours are ever answered.
#include "api/stub.h"
#include "api/support.h"

namespace api = softgpu::api;

namespace {

constexpr uint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

}  // namespace

// As NVIDIA's does, it succeeds without a function too. The caller looks at the function.
SOFTGPU_API CUresult cuGetProcAddress_v2(const char* symbol, void** out, int version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (!symbol || !out || flags & ~kKnownFlags) return CUDA_ERROR_INVALID_VALUE;
  const auto found = api::driver_function_of(symbol, static_cast<unsigned>(version), flags);
  *out = found.address;
  if (status) {
    *status = found.address   ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out,
                                                         unsigned version, unsigned long long flags,
                                                         cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !out || flags & ~kKnownFlags) return api::record(cudaErrorInvalidValue);
  const auto found = api::driver_function_of(symbol, version, flags);
  *out = found.address;
  if (status) {
    *status = found.address   ? cudaDriverEntryPointSuccess
              : found.too_old ? cudaDriverEntryPointVersionNotSufficent
                              : cudaDriverEntryPointSymbolNotFound;
  }
  return *out || status ? cudaSuccess : api::record(cudaErrorSymbolNotFound);
}

// The version is that of the runtime, which is CUDA 13's here.
SOFTGPU_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out,
                                                unsigned long long flags,
                                                cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}

// This driver keeps no log: a callback for its entries is never called.
SOFTGPU_API CUresult cuLogsRegisterCallback(CUlogsCallback callback, void*,
                                            CUlogsCallbackHandle* handle) {
  if (!callback) return CUDA_ERROR_INVALID_VALUE;
  if (handle) *handle = reinterpret_cast<CUlogsCallbackHandle>(callback);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The vendor's private tables. A program that asks for them has a static CUDA runtime inside, which
// would go on to bypass every public function.
SOFTGPU_API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  static std::atomic<bool> said{false};
  api::report_stub("cuGetExportTable", said);
  if (table) *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}

// No cuDNN: version 0 is older than anything a program may need, and says so without a failure.
SOFTGPU_API size_t cudnnGetVersion() {
  return 0;
}
