#include <algorithm>
#include <utility>

#include "api/support.h"

namespace api = softgpu::api;
using softgpu::Device;
using softgpu::Event;
using softgpu::Scheduler;
using softgpu::Work;
using StreamPointer = std::shared_ptr<softgpu::Stream>;

namespace {

Scheduler& scheduler(const StreamPointer& stream) {
  return softgpu::device(stream->device).scheduler();
}

cudaError_t new_stream(void** out, unsigned flags, int priority) {
  return api::with_device([&](Device& d) {
    if (!out || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    const bool blocking = flags != cudaStreamNonBlocking;
    const int kept = std::clamp(priority, -5, 0);
    *out = softgpu::create_stream(d.index(), blocking, kept).get();
    return cudaSuccess;
  });
}

cudaError_t synchronize_stream(const void* handle) {
  return api::with_stream(handle, [](const StreamPointer& s) {
    scheduler(s).wait_stream(*s);
    return softgpu::device(s->device).sticky();
  });
}

cudaError_t query_stream(const void* handle) {
  return api::with_stream(handle, [](const StreamPointer& s) {
    if (!scheduler(s).stream_done(*s)) return cudaErrorNotReady;
    return softgpu::device(s->device).sticky();
  });
}

cudaError_t drop_stream(const void* handle) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  return softgpu::destroy_stream(handle);
}

cudaError_t wait_event_on(const void* stream, const void* event) {
  return api::with_stream(
      stream, [&](const StreamPointer& s) { return softgpu::stream_wait_event(s, event); });
}

cudaError_t call_host(const void* stream, std::function<void()> function) {
  return api::with_stream(stream, [&](const StreamPointer& s) {
    Work work;
    work.host_call = std::move(function);
    scheduler(s).submit(s, std::move(work));
    return cudaSuccess;
  });
}

}  // namespace

SOFTGPU_API cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return api::record(new_stream(reinterpret_cast<void**>(out), 0, 0));
}

SOFTGPU_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return api::record(new_stream(reinterpret_cast<void**>(out), flags, 0));
}

SOFTGPU_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags,
                                                     int priority) {
  return api::record(new_stream(reinterpret_cast<void**>(out), flags, priority));
}

SOFTGPU_API cudaError_t cudaStreamDestroy(cudaStream_t s) {
  return api::record(drop_stream(s));
}

SOFTGPU_API cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return api::record(synchronize_stream(s));
}

SOFTGPU_API cudaError_t cudaStreamQuery(cudaStream_t s) {
  return api::record(query_stream(s));
}

SOFTGPU_API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned) {
  return api::record(wait_event_on(s, event));
}

SOFTGPU_API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void* data) {
  if (!function) return api::record(cudaErrorInvalidValue);
  return api::record(call_host(s, [function, data] { function(data); }));
}

SOFTGPU_API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t function,
                                              void* data, unsigned) {
  if (!function) return api::record(cudaErrorInvalidValue);
  return api::record(call_host(s, [s, function, data] { function(s, cudaSuccess, data); }));
}

SOFTGPU_API cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) {
  return api::record(api::with_stream(s, [&](const StreamPointer& p) {
    *priority = p->priority;
    return cudaSuccess;
  }));
}

SOFTGPU_API cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags) {
  return api::record(api::with_stream(s, [&](const StreamPointer& p) {
    *flags = p->kind == softgpu::StreamKind::kNonBlocking ? cudaStreamNonBlocking : 0;
    return cudaSuccess;
  }));
}

SOFTGPU_API cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id) {
  return api::record(api::with_stream(s, [&](const StreamPointer& p) {
    *id = p->id;
    return cudaSuccess;
  }));
}

SOFTGPU_API cudaError_t cudaStreamGetDevice(cudaStream_t s, int* device) {
  return api::record(api::with_stream(s, [&](const StreamPointer& p) {
    *device = p->device;
    return cudaSuccess;
  }));
}

// Captures are not supported, so no stream ever is in one.
SOFTGPU_API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 const cudaGraphEdgeData** edges, size_t* count) {
  if (!status) return api::record(cudaErrorInvalidValue);
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  if (!mode) return api::record(cudaErrorInvalidValue);
  std::swap(*mode, current);
  return cudaSuccess;
}

SOFTGPU_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  static_assert(sizeof(CUstreamCaptureMode) == sizeof(cudaStreamCaptureMode));
  return api::driver_result(
      cudaThreadExchangeStreamCaptureMode(reinterpret_cast<cudaStreamCaptureMode*>(mode)));
}

SOFTGPU_API CUresult cuStreamCreate(CUstream* out, unsigned flags) {
  return api::driver_result(new_stream(reinterpret_cast<void**>(out), flags, 0));
}

SOFTGPU_API CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return api::driver_result(new_stream(reinterpret_cast<void**>(out), flags, priority));
}

SOFTGPU_API CUresult cuStreamDestroy_v2(CUstream s) {
  return api::driver_result(drop_stream(s));
}

SOFTGPU_API CUresult cuStreamSynchronize(CUstream s) {
  return api::driver_result(synchronize_stream(s));
}

SOFTGPU_API CUresult cuStreamQuery(CUstream s) {
  return api::driver_result(query_stream(s));
}

SOFTGPU_API CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned) {
  return api::driver_result(wait_event_on(s, event));
}

SOFTGPU_API CUresult cuLaunchHostFunc(CUstream s, CUhostFn function, void* data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(call_host(s, [function, data] { function(data); }));
}

SOFTGPU_API CUresult cuStreamAddCallback(CUstream s, CUstreamCallback function, void* data,
                                         unsigned) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(call_host(s, [s, function, data] { function(s, CUDA_SUCCESS, data); }));
}

SOFTGPU_API CUresult cuStreamGetPriority(CUstream s, int* priority) {
  return api::driver_result(cudaStreamGetPriority(s, priority));
}

SOFTGPU_API CUresult cuStreamGetFlags(CUstream s, unsigned* flags) {
  return api::driver_result(cudaStreamGetFlags(s, flags));
}

SOFTGPU_API CUresult cuStreamGetId(CUstream s, unsigned long long* id) {
  return api::driver_result(cudaStreamGetId(s, id));
}

SOFTGPU_API CUresult cuStreamGetDevice(CUstream s, CUdevice* device) {
  return api::driver_result(cudaStreamGetDevice(s, device));
}

SOFTGPU_API CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                               cuuint64_t* id, CUgraph* graph,
                                               const CUgraphNode** dependencies,
                                               const CUgraphEdgeData**, size_t* count) {
  unsigned long long no_id = 0;
  const CUresult result = api::driver_result(
      cudaStreamGetCaptureInfo(stream, reinterpret_cast<cudaStreamCaptureStatus*>(status), &no_id,
                               graph, dependencies, nullptr, count));
  if (id) *id = no_id;
  return result;
}
