// Finding functions by name: only ours are ever answered.
#include "api/stub.h"
#include "api/support.h"

namespace api = softgpu::api;

SOFTGPU_API CUresult cuGetProcAddress_v2(const char* symbol, void** out, int, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult* status) {
  if (!symbol || !out) return CUDA_ERROR_INVALID_VALUE;
  *out = api::exported_symbol(symbol, flags);
  if (status) {
    *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  // With a status the call itself succeeds; without one the code has to say it.
  return *out || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SOFTGPU_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned,
                                                         unsigned long long flags,
                                                         cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !out) return api::record(cudaErrorInvalidValue);
  *out = api::exported_symbol(symbol, flags);
  if (status) *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *out || status ? cudaSuccess : api::record(cudaErrorSymbolNotFound);
}

SOFTGPU_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out,
                                                unsigned long long flags,
                                                cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}

// This driver keeps no log: whoever wants its entries is never called.
SOFTGPU_API CUresult cuLogsRegisterCallback(CUlogsCallback callback, void*,
                                            CUlogsCallbackHandle* handle) {
  if (!callback) return CUDA_ERROR_INVALID_VALUE;
  if (handle) *handle = reinterpret_cast<CUlogsCallbackHandle>(callback);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The vendor's private tables. Who asks for them has a static CUDA runtime inside, which would go
// on to bypass every public function.
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
