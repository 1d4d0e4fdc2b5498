// Functions as older versions of CUDA have them: fewer parameters, or a name without a number. The
// header gives these names to the newer ones, which is undone here.
#include <cstddef>
#include <cstring>

#include "client/device/stream.h"

#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphNodeGetDependencies
#undef cuStreamGetCaptureInfo
#undef cuStreamGetCaptureInfo_v2

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

// The newer one has more behind the same fields.
using KernelNode1 = CUDA_KERNEL_NODE_PARAMS_v1;
static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, kern) >= sizeof(KernelNode1));

CUDA_KERNEL_NODE_PARAMS widened(const KernelNode1& old) {
  CUDA_KERNEL_NODE_PARAMS out{};
  std::memcpy(&out, &old, sizeof old);
  return out;
}

CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, nullptr, count);
}

}  // namespace

PYFT_API CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                   cuuint64_t flags) {
  const Entered entered(Api::cuGetProcAddress);
  void* found = nullptr;
  const CUresult code = cuGetProcAddress_v2(symbol, &found, cudaVersion, flags, nullptr);
  if (code != CUDA_SUCCESS || !pfn) return CUDA_ERROR_INVALID_VALUE;
  if (!found) return CUDA_ERROR_NOT_FOUND;  // what was there stays
  *pfn = found;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  const Entered entered(Api::cuDeviceGetUuid);
  return cuDeviceGetUuid_v2(uuid, dev);
}

PYFT_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  const Entered entered(Api::cuDevicePrimaryCtxRelease);
  return cuDevicePrimaryCtxRelease_v2(dev);
}

PYFT_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  const Entered entered(Api::cuDevicePrimaryCtxSetFlags);
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

PYFT_API CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  const Entered entered(Api::cuEventElapsedTime);
  return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

PYFT_API CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                         cuuint64_t* id_out) {
  const Entered entered(Api::cuStreamGetCaptureInfo);
  return capture_info(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr);
}

PYFT_API CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream,
                                              CUstreamCaptureStatus* captureStatus_out,
                                              cuuint64_t* id_out) {
  const Entered entered(Api::cuStreamGetCaptureInfo_ptsz);
  const OwnNullStream own;
  return capture_info(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr);
}

PYFT_API CUresult cuStreamGetCaptureInfo_v2(CUstream hStream,
                                            CUstreamCaptureStatus* captureStatus_out,
                                            cuuint64_t* id_out, CUgraph* graph_out,
                                            const CUgraphNode** dependencies_out,
                                            size_t* numDependencies_out) {
  const Entered entered(Api::cuStreamGetCaptureInfo_v2);
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                      numDependencies_out);
}

PYFT_API CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream,
                                                 CUstreamCaptureStatus* captureStatus_out,
                                                 cuuint64_t* id_out, CUgraph* graph_out,
                                                 const CUgraphNode** dependencies_out,
                                                 size_t* numDependencies_out) {
  const Entered entered(Api::cuStreamGetCaptureInfo_v2_ptsz);
  const OwnNullStream own;
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                      numDependencies_out);
}

PYFT_API CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                             size_t* numDependencies) {
  const Entered entered(Api::cuGraphNodeGetDependencies);
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

PYFT_API CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, KernelNode1* nodeParams) {
  const Entered entered(Api::cuGraphKernelNodeGetParams);
  CUDA_KERNEL_NODE_PARAMS all{};
  const CUresult code = cuGraphKernelNodeGetParams_v2(hNode, nodeParams ? &all : nullptr);
  if (code == CUDA_SUCCESS) std::memcpy(nodeParams, &all, sizeof *nodeParams);
  return code;
}

PYFT_API CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const KernelNode1* nodeParams) {
  const Entered entered(Api::cuGraphKernelNodeSetParams);
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS all = widened(*nodeParams);
  return cuGraphKernelNodeSetParams_v2(hNode, &all);
}

PYFT_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const KernelNode1* nodeParams) {
  const Entered entered(Api::cuGraphExecKernelNodeSetParams);
  if (!nodeParams) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS all = widened(*nodeParams);
  return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &all);
}
