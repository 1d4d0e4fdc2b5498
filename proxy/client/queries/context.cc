// Driver contexts: one primary context per device, whose handle names the device.
#include <vector>

#include "client/device/stream.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

thread_local std::vector<int> pushed;  // devices below the current one

CUcontext context_of(int ordinal) {
  const auto index = static_cast<uint32_t>(ordinal) + 1;
  return reinterpret_cast<CUcontext>(Handle::make(HandleKind::kContext, index, 1).value);
}

// -1: no context of ours.
int ordinal_of(CUcontext context) {
  const Handle handle{reinterpret_cast<uint64_t>(context)};
  const int ordinal = static_cast<int>(handle.index()) - 1;
  const bool ours = handle.kind() == HandleKind::kContext && ordinal >= 0 &&
                    ordinal < static_cast<int>(process().devices.size());
  return ours ? ordinal : -1;
}

bool known_device(CUdevice device) {
  return device >= 0 && device < static_cast<int>(process().devices.size());
}

}  // namespace

PYFT_API CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const Entered entered(Api::cuDevicePrimaryCtxRetain);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  cudaError_t error;
  if (!attach(dev, &error)) return static_cast<CUresult>(error);
  *pctx = context_of(dev);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  const Entered entered(Api::cuDevicePrimaryCtxRelease_v2);
  return known_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PYFT_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  const Entered entered(Api::cuDevicePrimaryCtxSetFlags_v2);
  return known_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PYFT_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  const Entered entered(Api::cuDevicePrimaryCtxGetState);
  if (!known_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = CU_CTX_SCHED_AUTO;
  if (active) *active = attached_or_null(dev) ? 1 : 0;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxGetCurrent(CUcontext* pctx) {
  const Entered entered(Api::cuCtxGetCurrent);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  const bool live = attached_or_null(current_device()) != nullptr;
  *pctx = live ? context_of(current_device()) : nullptr;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxSetCurrent(CUcontext ctx) {
  const Entered entered(Api::cuCtxSetCurrent);
  if (!ctx) return CUDA_SUCCESS;
  const int ordinal = ordinal_of(ctx);
  if (ordinal < 0) return CUDA_ERROR_INVALID_CONTEXT;
  set_current_device(ordinal);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  const Entered entered(Api::cuCtxPushCurrent_v2);
  const int ordinal = ordinal_of(ctx);
  if (ordinal < 0) return CUDA_ERROR_INVALID_CONTEXT;
  pushed.push_back(current_device());
  set_current_device(ordinal);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  const Entered entered(Api::cuCtxPopCurrent_v2);
  if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx) *pctx = context_of(current_device());
  set_current_device(pushed.back());
  pushed.pop_back();
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxGetDevice(CUdevice* device) {
  const Entered entered(Api::cuCtxGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = current_device();
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  const Entered entered(Api::cuCtxGetDevice_v2);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  const int ordinal = ctx ? ordinal_of(ctx) : current_device();
  if (ordinal < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = ordinal;
  return CUDA_SUCCESS;
}

// One context per device, so the runtime's limits of the device are the context's.
PYFT_API CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  const Entered entered(Api::cuCtxGetLimit);
  return static_cast<CUresult>(cudaDeviceGetLimit(pvalue, static_cast<cudaLimit>(limit)));
}

PYFT_API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  const Entered entered(Api::cuCtxSetLimit);
  return static_cast<CUresult>(cudaDeviceSetLimit(static_cast<cudaLimit>(limit), value));
}

PYFT_API CUresult cuCtxSynchronize() {
  const Entered entered(Api::cuCtxSynchronize);
  cudaError_t error;
  Device* device = attached(&error);
  return static_cast<CUresult>(device ? device->synchronize_all() : error);
}

PYFT_API CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  const Entered entered(Api::cuCtxSynchronize_v2);
  const int ordinal = ctx ? ordinal_of(ctx) : current_device();
  if (ordinal < 0) return CUDA_ERROR_INVALID_CONTEXT;
  cudaError_t error;
  Device* device = attach(ordinal, &error);
  return static_cast<CUresult>(device ? device->synchronize_all() : error);
}

PYFT_API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  const Entered entered(Api::cuCtxGetApiVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;  // what the driver has answered since CUDA 4
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxGetFlags(unsigned int* flags) {
  const Entered entered(Api::cuCtxGetFlags);
  if (flags) *flags = CU_CTX_SCHED_AUTO;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  const Entered entered(Api::cuCtxGetStreamPriorityRange);
  if (leastPriority) *leastPriority = 0;
  if (greatestPriority) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  const Entered entered(Api::cuStreamGetCtx);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  cudaError_t error;
  Stream* stream = stream_of(hStream, &error);
  if (stream) *pctx = context_of(stream->device.ordinal());
  return static_cast<CUresult>(stream ? cudaSuccess : error);
}

PYFT_API CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  const Entered entered(Api::cuStreamGetCtx_v2);
  const CUresult code = cuStreamGetCtx(hStream, pCtx);
  if (code == CUDA_SUCCESS && pGreenCtx) *pGreenCtx = nullptr;
  return code;
}
