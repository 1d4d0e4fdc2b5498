#include <chrono>
#include <thread>

#include "api/support.h"
#include "device/memory_pool.h"
#include "graph/capture.h"
#include "stream/ipc_event.h"

namespace api = softgpu::api;
using softgpu::Device;
using softgpu::Event;
using softgpu::Scheduler;
using StreamPointer = std::shared_ptr<softgpu::Stream>;

namespace {

cudaError_t new_event(void** out, unsigned flags) {
  return api::with_device([&](Device& d) {
    if (!out) return cudaErrorInvalidValue;
    std::shared_ptr<softgpu::SharedEvent> shared;
    if (flags & cudaEventInterprocess) {
      if (!(flags & cudaEventDisableTiming)) return cudaErrorInvalidValue;
      shared = softgpu::SharedEvent::create();
      if (!shared) return cudaErrorOperatingSystem;
    }
    *out = softgpu::create_event(d.index(), flags, std::move(shared));
    return cudaSuccess;
  });
}

// The event's last recording; a dead device is found before anything about the event.
cudaError_t get_event(const void* handle, Event* event) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  if (!handle || !softgpu::find_event(handle, event)) return cudaErrorInvalidResourceHandle;
  return softgpu::device(event->device).sticky();
}

// The same for a call that asks about what has been recorded, which a capture has not.
cudaError_t get_recorded(const void* handle, Event* event) {
  const cudaError_t bad = get_event(handle, event);
  return bad == cudaSuccess ? softgpu::check_captured_event(event->captured) : bad;
}

cudaError_t drop_event(const void* handle) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  return softgpu::destroy_event(handle);
}

cudaError_t record_on(const void* event, const void* stream, unsigned flags) {
  static_assert(cudaEventRecordExternal == CU_EVENT_RECORD_EXTERNAL);
  if (flags > cudaEventRecordExternal) return cudaErrorInvalidValue;
  return api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::record_event(event, s, flags == cudaEventRecordExternal);
  });
}

cudaError_t query_event(const void* handle) {
  Event event;
  if (const cudaError_t bad = get_recorded(handle, &event); bad != cudaSuccess) return bad;
  if (event.shared && !event.shared->recorded()()) return cudaErrorNotReady;
  const bool done = !event.last || Scheduler::event_done(*event.last);
  return done ? softgpu::device(event.device).sticky() : cudaErrorNotReady;
}

cudaError_t synchronize_event(const void* handle) {
  Event event;
  if (const cudaError_t bad = get_recorded(handle, &event); bad != cudaSuccess) return bad;
  if (event.last) Scheduler::wait_event(*event.last);
  if (event.shared) {
    // Recorded by another process: no thread here is told when it is reached.
    const auto reached = event.shared->recorded();
    while (!reached()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  softgpu::pools_after_wait(event.device);
  return softgpu::device(event.device).sticky();
}

cudaError_t elapsed(float* milliseconds, const void* start, const void* end) {
  Event a, b;
  if (const cudaError_t bad = get_recorded(start, &a); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = get_recorded(end, &b); bad != cudaSuccess) return bad;
  const bool timed = !((a.flags | b.flags) & cudaEventDisableTiming);
  if (!milliseconds || !timed || !a.last || !b.last) return cudaErrorInvalidResourceHandle;
  if (!Scheduler::event_done(*a.last) || !Scheduler::event_done(*b.last)) return cudaErrorNotReady;
  const auto difference = static_cast<int64_t>(b.last->time_ns - a.last->time_ns);
  *milliseconds = static_cast<float>(static_cast<double>(difference) * 1e-6);
  return cudaSuccess;
}

}  // namespace

SOFTGPU_API cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return api::record(new_event(reinterpret_cast<void**>(out), 0));
}

SOFTGPU_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return api::record(new_event(reinterpret_cast<void**>(out), flags));
}

SOFTGPU_API cudaError_t cudaEventDestroy(cudaEvent_t e) {
  return api::record(drop_event(e));
}

SOFTGPU_API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020);
  return api::record(record_on(e, s, 0));
}

SOFTGPU_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
  return api::record(record_on(e, s, flags));
}

SOFTGPU_API cudaError_t cudaEventQuery(cudaEvent_t e) {
  return api::record(query_event(e));
}

SOFTGPU_API cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020);
  return api::record(synchronize_event(e));
}

SOFTGPU_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                             cudaEvent_t end) {
  return api::record(elapsed(milliseconds, start, end));
}

SOFTGPU_API CUresult cuEventCreate(CUevent* out, unsigned flags) {
  return api::driver_result(new_event(reinterpret_cast<void**>(out), flags));
}

SOFTGPU_API CUresult cuEventDestroy_v2(CUevent e) {
  return api::driver_result(drop_event(e));
}

SOFTGPU_API CUresult cuEventRecord(CUevent e, CUstream s) {
  return api::driver_result(record_on(e, s, 0));
}

SOFTGPU_API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned flags) {
  return api::driver_result(record_on(e, s, flags));
}

SOFTGPU_API CUresult cuEventQuery(CUevent e) {
  return api::driver_result(query_event(e));
}

SOFTGPU_API CUresult cuEventSynchronize(CUevent e) {
  return api::driver_result(synchronize_event(e));
}

SOFTGPU_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return api::driver_result(elapsed(milliseconds, start, end));
}
