#include <algorithm>
#include <utility>

#include "api/support.h"
#include "device/memory_pool.h"
#include "graph/capture.h"
#include "work/perform.h"

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
    if (const cudaError_t bad = softgpu::check_stream_wait(*s); bad != cudaSuccess) return bad;
    scheduler(s).wait_stream(*s);
    softgpu::pools_after_wait(s->device);
    return softgpu::device(s->device).sticky();
  });
}

cudaError_t query_stream(const void* handle) {
  return api::with_stream(handle, [](const StreamPointer& s) {
    if (const cudaError_t bad = softgpu::check_stream_wait(*s); bad != cudaSuccess) return bad;
    if (!scheduler(s).stream_done(*s)) return cudaErrorNotReady;
    return softgpu::device(s->device).sticky();
  });
}

cudaError_t drop_stream(const void* handle) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  return softgpu::destroy_stream(handle);
}

cudaError_t wait_event_on(const void* stream, const void* event, unsigned flags) {
  static_assert(cudaEventWaitExternal == CU_EVENT_WAIT_EXTERNAL);
  if (flags > cudaEventWaitExternal) return cudaErrorInvalidValue;
  return api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::stream_wait_event(s, event, flags == cudaEventWaitExternal);
  });
}

cudaError_t call_host(const void* stream, void (*function)(void*), void* data) {
  if (!function) return cudaErrorInvalidValue;
  return api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::perform(s, softgpu::HostOperation{function, data});
  });
}

// No graph can hold a stream's callback: it is told its stream.
cudaError_t call_back(const void* stream, unsigned flags, std::function<void()> function) {
  if (flags) return cudaErrorInvalidValue;
  return api::with_stream(stream, [&](const StreamPointer& s) {
    if (const cudaError_t bad = softgpu::refuse_in_capture(*s); bad != cudaSuccess) return bad;
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
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020);
  return api::record(synchronize_stream(s));
}

SOFTGPU_API cudaError_t cudaStreamQuery(cudaStream_t s) {
  return api::record(query_stream(s));
}

SOFTGPU_API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020);
  return api::record(wait_event_on(s, event, flags));
}

SOFTGPU_API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void* data) {
  return api::record(call_host(s, function, data));
}

SOFTGPU_API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t function,
                                              void* data, unsigned flags) {
  if (!function) return api::record(cudaErrorInvalidValue);
  return api::record(call_back(s, flags, [s, function, data] { function(s, cudaSuccess, data); }));
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

SOFTGPU_API CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags) {
  return api::driver_result(wait_event_on(s, event, flags));
}

SOFTGPU_API CUresult cuLaunchHostFunc(CUstream s, CUhostFn function, void* data) {
  return api::driver_result(call_host(s, function, data));
}

SOFTGPU_API CUresult cuStreamAddCallback(CUstream s, CUstreamCallback function, void* data,
                                         unsigned flags) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(
      call_back(s, flags, [s, function, data] { function(s, CUDA_SUCCESS, data); }));
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
