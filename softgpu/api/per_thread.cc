// The _ptsz and _ptds spellings: the same functions, in which the null stream is the calling
// thread's own. Each is an indirect symbol whose resolver names a wrapper of the plain function, so
// that no signature is written twice.
#include "api/support.h"

namespace softgpu::api {
namespace {

template <auto function>
struct PerThread;

template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct PerThread<function> {
  static Result call(Arguments... arguments) {
    PerThreadScope scope;
    return function(arguments...);
  }
};

}  // namespace
}  // namespace softgpu::api

using AnyFunction = void (*)();

#define SOFTGPU_PER_THREAD(name, suffix)                                               \
  extern "C" {                                                                         \
  __attribute__((used)) static AnyFunction resolve_##name() {                          \
    return reinterpret_cast<AnyFunction>(&softgpu::api::PerThread<&::name>::call);     \
  }                                                                                    \
  __attribute__((visibility("default"), ifunc("resolve_" #name))) void name##suffix(); \
  }

// Names that the headers of CUDA 13 do not declare.
extern "C" cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t, cudaStreamCaptureStatus*,
                                                   unsigned long long*, cudaGraph_t*,
                                                   const cudaGraphNode_t**, size_t*);
extern "C" cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t, cudaStreamCaptureStatus*,
                                                   unsigned long long*, cudaGraph_t*,
                                                   const cudaGraphNode_t**,
                                                   const cudaGraphEdgeData**, size_t*);
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                              CUgraph*, const CUgraphNode**, size_t*);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);

SOFTGPU_PER_THREAD(__cudaLaunchKernel, _ptsz)
SOFTGPU_PER_THREAD(cudaLaunchKernel, _ptsz)
SOFTGPU_PER_THREAD(cudaLaunchKernelExC, _ptsz)
SOFTGPU_PER_THREAD(cudaLaunchCooperativeKernel, _ptsz)
SOFTGPU_PER_THREAD(cudaLaunchHostFunc, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamAddCallback, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamSynchronize, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamQuery, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamWaitEvent, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetPriority, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetFlags, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetId, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetDevice, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamIsCapturing, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamBeginCapture, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamBeginCaptureToGraph, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamEndCapture, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetCaptureInfo, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetCaptureInfo_v2, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamGetCaptureInfo_v3, _ptsz)
SOFTGPU_PER_THREAD(cudaStreamUpdateCaptureDependencies, _ptsz)
SOFTGPU_PER_THREAD(cudaGraphInstantiateWithParams, _ptsz)
SOFTGPU_PER_THREAD(cudaGraphLaunch, _ptsz)
SOFTGPU_PER_THREAD(cudaGraphUpload, _ptsz)
SOFTGPU_PER_THREAD(cudaEventRecord, _ptsz)
SOFTGPU_PER_THREAD(cudaEventRecordWithFlags, _ptsz)
SOFTGPU_PER_THREAD(cudaMallocAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMallocFromPoolAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaFreeAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpy, _ptds)
SOFTGPU_PER_THREAD(cudaMemcpyAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpyBatchAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpy2D, _ptds)
SOFTGPU_PER_THREAD(cudaMemcpy2DAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpy3D, _ptds)
SOFTGPU_PER_THREAD(cudaMemcpy3DAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemset, _ptds)
SOFTGPU_PER_THREAD(cudaMemsetAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemset2D, _ptds)
SOFTGPU_PER_THREAD(cudaMemset2DAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpyToSymbol, _ptds)
SOFTGPU_PER_THREAD(cudaMemcpyFromSymbol, _ptds)
SOFTGPU_PER_THREAD(cudaMemcpyToSymbolAsync, _ptsz)
SOFTGPU_PER_THREAD(cudaMemcpyFromSymbolAsync, _ptsz)

SOFTGPU_PER_THREAD(cuLaunchKernel, _ptsz)
SOFTGPU_PER_THREAD(cuLaunchKernelEx, _ptsz)
SOFTGPU_PER_THREAD(cuLaunchCooperativeKernel, _ptsz)
SOFTGPU_PER_THREAD(cuLaunchHostFunc, _ptsz)
SOFTGPU_PER_THREAD(cuStreamAddCallback, _ptsz)
SOFTGPU_PER_THREAD(cuStreamSynchronize, _ptsz)
SOFTGPU_PER_THREAD(cuStreamQuery, _ptsz)
SOFTGPU_PER_THREAD(cuStreamWaitEvent, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetCtx, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetCtx_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetPriority, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetFlags, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetId, _ptsz)
SOFTGPU_PER_THREAD(cuStreamIsCapturing, _ptsz)
SOFTGPU_PER_THREAD(cuStreamBeginCapture_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamBeginCaptureToGraph, _ptsz)
SOFTGPU_PER_THREAD(cuStreamEndCapture, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetCaptureInfo_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamGetCaptureInfo_v3, _ptsz)
SOFTGPU_PER_THREAD(cuStreamUpdateCaptureDependencies_v2, _ptsz)
SOFTGPU_PER_THREAD(cuGraphInstantiateWithParams, _ptsz)
SOFTGPU_PER_THREAD(cuGraphLaunch, _ptsz)
SOFTGPU_PER_THREAD(cuGraphUpload, _ptsz)
SOFTGPU_PER_THREAD(cuEventRecord, _ptsz)
SOFTGPU_PER_THREAD(cuEventRecordWithFlags, _ptsz)
SOFTGPU_PER_THREAD(cuMemAllocAsync, _ptsz)
SOFTGPU_PER_THREAD(cuMemAllocFromPoolAsync, _ptsz)
SOFTGPU_PER_THREAD(cuMemFreeAsync, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpy, _ptds)
SOFTGPU_PER_THREAD(cuMemcpyAsync, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpyBatchAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpyHtoD_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemcpyHtoDAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpyDtoH_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemcpyDtoHAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpyDtoD_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemcpyDtoDAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpy2D_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemcpy2DAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemcpy3D_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemcpy3DAsync_v2, _ptsz)
SOFTGPU_PER_THREAD(cuMemsetD8_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemsetD16_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemsetD32_v2, _ptds)
SOFTGPU_PER_THREAD(cuMemsetD8Async, _ptsz)
SOFTGPU_PER_THREAD(cuMemsetD16Async, _ptsz)
SOFTGPU_PER_THREAD(cuMemsetD32Async, _ptsz)
SOFTGPU_PER_THREAD(cuStreamWriteValue32_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamWriteValue64_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamWaitValue32_v2, _ptsz)
SOFTGPU_PER_THREAD(cuStreamWaitValue64_v2, _ptsz)
