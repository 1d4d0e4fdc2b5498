// Finding functions by name: only ours are ever answered.
#include "api/support.h"

namespace api = softgpu::api;

SOFTGPU_API CUresult cuGetProcAddress_v2(const char* symbol, void** out, int, cuuint64_t,
                                         CUdriverProcAddressQueryResult* status) {
  if (!symbol || !out) return CUDA_ERROR_INVALID_VALUE;
  *out = api::exported_symbol(symbol);
  if (status) {
    *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  // With a status the call itself succeeds; without one the code has to say it.
  return *out || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SOFTGPU_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned,
                                                         unsigned long long,
                                                         cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !out) return api::record(cudaErrorInvalidValue);
  *out = api::exported_symbol(symbol);
  if (status) *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *out || status ? cudaSuccess : api::record(cudaErrorSymbolNotFound);
}

SOFTGPU_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out,
                                                unsigned long long flags,
                                                cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}
