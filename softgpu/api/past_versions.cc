// Functions as older versions of CUDA have them: fewer parameters, or a name without a number. The
// header gives these names to the newer ones, which is undone here.
#include <cstddef>
#include <cstring>

#include "api/support.h"

#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphNodeGetDependencies
#undef cuStreamGetCaptureInfo

namespace {

// The newer one has more behind the same fields.
using KernelNode1 = CUDA_KERNEL_NODE_PARAMS_v1;
static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, kern) >= sizeof(KernelNode1));

CUDA_KERNEL_NODE_PARAMS widened(const KernelNode1& old) {
  CUDA_KERNEL_NODE_PARAMS out{};
  std::memcpy(&out, &old, sizeof old);
  return out;
}

}  // namespace

SOFTGPU_API CUresult cuGetProcAddress(const char* symbol, void** out, int version,
                                      cuuint64_t flags) {
  void* found = nullptr;
  const CUresult code = cuGetProcAddress_v2(symbol, &found, version, flags, nullptr);
  if (code != CUDA_SUCCESS || !out) return CUDA_ERROR_INVALID_VALUE;
  if (!found) return CUDA_ERROR_NOT_FOUND;  // what was there stays
  *out = found;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

SOFTGPU_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

SOFTGPU_API CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status,
                                            cuuint64_t* id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

SOFTGPU_API CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                                 cuuint64_t* id) {
  const softgpu::PerThreadScope own;
  return cuStreamGetCaptureInfo(stream, status, id);
}

SOFTGPU_API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, out, nullptr, count);
}

SOFTGPU_API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, KernelNode1* out) {
  CUDA_KERNEL_NODE_PARAMS all{};
  const CUresult code = cuGraphKernelNodeGetParams_v2(node, out ? &all : nullptr);
  if (code == CUDA_SUCCESS) std::memcpy(out, &all, sizeof *out);
  return code;
}

SOFTGPU_API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const KernelNode1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS all = widened(*params);
  return cuGraphKernelNodeSetParams_v2(node, &all);
}

SOFTGPU_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const KernelNode1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS all = widened(*params);
  return cuGraphExecKernelNodeSetParams_v2(exec, node, &all);
}
