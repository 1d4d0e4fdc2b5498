#include <algorithm>
#include <ctime>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/process/handles.h"

namespace pyft::client {

Event* event_of(cudaEvent_t handle) {
  return static_cast<Event*>(
      find_word_handle(reinterpret_cast<uint64_t>(handle), HandleKind::kEvent));
}

uint64_t mint_event(Device& device, unsigned flags) {
  struct Wanted {
    Device& device;
    unsigned flags;
  } wanted{device, flags};
  const auto make = [](uint64_t handle, void* context) -> void* {
    const auto* w = static_cast<Wanted*>(context);
    return new Event(w->device, handle, Handle{handle}.index(), w->flags);
  };
  return mint_word_handle(HandleKind::kEvent, make, &wanted);
}

cudaError_t create_event(unsigned flags, cudaEvent_t* out) {
  constexpr unsigned kKnown =
      cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (!out || flags & ~kKnown) return cudaErrorInvalidValue;
  if (flags & cudaEventInterprocess && !(flags & cudaEventDisableTiming))
    return cudaErrorInvalidValue;
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  const uint64_t handle = mint_event(*device, flags);
  if (!handle) return cudaErrorMemoryAllocation;
  *out = reinterpret_cast<cudaEvent_t>(handle);
  return device->send(Call::cudaEventCreateWithFlags,
                      cmd::cudaEventCreateWithFlags{handle, flags, 0});
}

cudaError_t destroy_event(cudaEvent_t handle) {
  Event* event = event_of(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  Device& device = event->device;
  const cudaError_t error =
      device.send(Call::cudaEventDestroy, cmd::cudaEventDestroy{event->handle});
  delete static_cast<Event*>(
      end_word_handle(reinterpret_cast<uint64_t>(handle), HandleKind::kEvent));
  return error;
}

cudaError_t record_event(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  cudaError_t error;
  Stream* stream = stream_of(stream_handle, &error);
  if (!stream) return error;
  Event* event = event_of(event_handle);
  if (!event || &event->device != &stream->device) return cudaErrorInvalidResourceHandle;
  if (const uint64_t capture = stream->capture.load()) {
    event->capture.store(capture);  // values 0: nothing is published, it is a point of the graph
    return event->device.confirm(Call::cudaEventRecord,
                                 cmd::cudaEventRecord{event->handle, stream->handle, 0, 0});
  }
  event->capture.store(0);
  if (event->shared) {  // waits for the answer: a process that is told of the record must find it
    stream->device.touch(*stream);
    return event->device.confirm(Call::cudaEventRecord,
                                 cmd::cudaEventRecord{event->handle, stream->handle, 0, 0});
  }
  const uint64_t value = event->device.next_value(event->word);
  uint64_t stream_value = 0;
  error = event->device.record(event->handle, *stream, value, &stream_value);
  event->recorded.store({stream->word, stream_value}, std::memory_order_release);
  return error;
}

// As Device::observe.
static void observe(Event& event, Record record) {
  if (event.observed.load() == record) return;
  event.device.writer().observed(record.word, 1, record.value);
  event.observed.store(record);
}

cudaError_t query_event(cudaEvent_t handle) {
  Event* event = event_of(handle);
  if (!event) return usable() != cudaSuccess ? usable() : cudaErrorInvalidResourceHandle;
  if (event->capture.load()) return cudaErrorCapturedEvent;
  if (event->shared)
    return event->device.confirm(Call::cudaEventQuery, cmd::cudaEventQuery{event->handle});
  Device& device = event->device;
  const Record record = event->recorded.load(std::memory_order_acquire);
  if (const cudaError_t error = device.health(); error != cudaSuccess) return error;
  if (!record.value) return cudaSuccess;
  if (!device.reached(record.word, record.value)) return cudaErrorNotReady;
  observe(*event, record);
  return cudaSuccess;
}

// The record may be another process's, whose server tells ours nothing: ours is asked now and then.
static cudaError_t synchronize_shared(cudaEvent_t handle) {
  constexpr int64_t kFirstPauseNs = 20'000, kLongestPauseNs = 1'000'000;
  cudaError_t error = query_event(handle);
  for (int64_t pause = kFirstPauseNs; error == cudaErrorNotReady;) {
    const timespec moment{0, pause};
    nanosleep(&moment, nullptr);
    pause = std::min(pause * 2, kLongestPauseNs);
    error = query_event(handle);
  }
  return error;
}

cudaError_t synchronize_event(cudaEvent_t handle) {
  Event* event = event_of(handle);
  if (!event) return usable() != cudaSuccess ? usable() : cudaErrorInvalidResourceHandle;
  if (event->capture.load()) return cudaErrorCapturedEvent;
  if (event->shared) return synchronize_shared(handle);
  const Record record = event->recorded.load(std::memory_order_acquire);
  if (!record.value) return event->device.health();
  const cudaError_t error = event->device.wait(record.word, record.value);
  if (error == cudaSuccess) observe(*event, record);
  return error;
}

cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Event* first = event_of(start);
  const Event* last = event_of(end);
  if (!ms) return cudaErrorInvalidValue;
  if (!first || !last) return cudaErrorInvalidResourceHandle;
  if ((first->flags | last->flags) & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
  if (!first->recorded.load().value || !last->recorded.load().value)
    return cudaErrorInvalidResourceHandle;
  for (const cudaEvent_t event : {start, end})
    if (const cudaError_t error = query_event(event); error != cudaSuccess) return error;
  const uint64_t from = ring::time_ns(first->device.channel(), first->word);
  const uint64_t to = ring::time_ns(last->device.channel(), last->word);
  *ms = static_cast<float>((static_cast<double>(to) - static_cast<double>(from)) * 1e-6);
  return cudaSuccess;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  const Entered entered(Api::cudaEventCreate);
  return done(create_event(0, event));
}

PYFT_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const Entered entered(Api::cudaEventCreateWithFlags);
  return done(create_event(flags, event));
}

PYFT_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Entered entered(Api::cudaEventDestroy);
  return done(destroy_event(event));
}

PYFT_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020);
  const Entered entered(Api::cudaEventRecord);
  return done(record_event(event, stream));
}

PYFT_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                              unsigned int flags) {
  const Entered entered(Api::cudaEventRecordWithFlags);
  return done(record_event(event, stream));
}

PYFT_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Entered entered(Api::cudaEventQuery);
  return done(query_event(event));
}

PYFT_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020);
  const Entered entered(Api::cudaEventSynchronize);
  return done(synchronize_event(event));
}

PYFT_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Entered entered(Api::cudaEventElapsedTime);
  return done(elapsed_ms(ms, start, end));
}

PYFT_API CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  const Entered entered(Api::cuEventCreate);
  return static_cast<CUresult>(create_event(Flags, phEvent));
}

PYFT_API CUresult cuEventDestroy_v2(CUevent hEvent) {
  const Entered entered(Api::cuEventDestroy_v2);
  return static_cast<CUresult>(destroy_event(hEvent));
}

PYFT_API CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  const Entered entered(Api::cuEventRecord);
  return static_cast<CUresult>(record_event(hEvent, hStream));
}

PYFT_API CUresult cuEventQuery(CUevent hEvent) {
  const Entered entered(Api::cuEventQuery);
  return static_cast<CUresult>(query_event(hEvent));
}

PYFT_API CUresult cuEventSynchronize(CUevent hEvent) {
  const Entered entered(Api::cuEventSynchronize);
  return static_cast<CUresult>(synchronize_event(hEvent));
}

PYFT_API CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  const Entered entered(Api::cuEventElapsedTime_v2);
  return static_cast<CUresult>(elapsed_ms(pMilliseconds, hStart, hEnd));
}
