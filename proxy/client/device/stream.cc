#include "client/device/stream.h"

#include <array>
#include <utility>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/process/handles.h"

namespace pyft::client {
namespace {

// Read by every call: this library is loaded at the start, so the cheap model is possible.
__attribute__((tls_model("initial-exec"))) thread_local bool null_stream_is_own = false;

cudaError_t create_stream(Device& device, unsigned flags, int priority, uint64_t* out) {
  const auto make = [](uint64_t handle, void* context) -> void* {
    return new Stream(*static_cast<Device*>(context), handle, Handle{handle}.index());
  };
  device.end_left_streams();
  const uint64_t handle = mint_word_handle(HandleKind::kStream, make, &device);
  if (!handle) return cudaErrorMemoryAllocation;
  auto* stream = static_cast<Stream*>(find_word_handle(handle, HandleKind::kStream));
  stream->flags = flags;
  stream->priority = priority;
  device.add_stream(stream);
  *out = handle;
  return device.send(Call::cudaStreamCreateWithPriority,
                     cmd::cudaStreamCreateWithPriority{handle, flags, priority});
}

// The default streams of one thread, by device. They are no object that ends: what ends behind
// them in the thread, and behind all threads' ends, may use them, and makes new ones.
thread_local std::array<uint64_t, kMaxDevices> thread_streams{};

struct EndsThreadStreams {
  ~EndsThreadStreams() {
    for (uint64_t& handle : thread_streams)
      if (handle) destroy_stream(reinterpret_cast<cudaStream_t>(std::exchange(handle, 0)));
  }
};

// Like any blocking stream it waits for the legacy stream, which waits for it.
Stream* thread_stream(Device& device, cudaError_t* error) {
  thread_local const EndsThreadStreams ends;
  static_cast<void>(ends);
  uint64_t& handle = thread_streams[static_cast<size_t>(device.ordinal())];
  if (!handle) *error = create_stream(device, 0, 0, &handle);
  auto* stream = static_cast<Stream*>(find_word_handle(handle, HandleKind::kStream));
  return *error == cudaSuccess ? stream : nullptr;
}

}  // namespace

OwnNullStream::OwnNullStream() : before_(std::exchange(null_stream_is_own, true)) {}

bool null_is_own() {
  return null_stream_is_own;
}

OwnNullStream::~OwnNullStream() {
  null_stream_is_own = before_;
}

Stream* default_stream(Device& device, uint64_t handle, cudaError_t* error) {
  const bool own = handle == 2 || (handle == 0 && null_stream_is_own);
  *error = cudaSuccess;
  return own ? thread_stream(device, error) : &device.null_stream();
}

Stream* stream_of(cudaStream_t handle, cudaError_t* error) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  if (value <= 2) {
    Device* device = attached(error);
    return device ? default_stream(*device, value, error) : nullptr;
  }
  *error = usable();
  if (*error != cudaSuccess) return nullptr;
  auto* stream = static_cast<Stream*>(find_word_handle(value, HandleKind::kStream));
  if (!stream) *error = cudaErrorInvalidResourceHandle;
  return stream;
}

cudaError_t create_stream(unsigned flags, int priority, cudaStream_t* out) {
  if (!out) return cudaErrorInvalidValue;
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  uint64_t handle = 0;
  error = create_stream(*device, flags, priority, &handle);
  if (handle) *out = reinterpret_cast<cudaStream_t>(handle);
  return error;
}

// What is still running on the stream runs on: the touch makes the null stream's next
// synchronisation wait for it, and the fence tells when it is done.
// The object is never freed: another thread may be synchronising the device through it.
cudaError_t destroy_stream(cudaStream_t handle) {
  if (reinterpret_cast<uint64_t>(handle) <= 2) return cudaErrorInvalidResourceHandle;
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  Device& device = stream->device;
  // In a capture a fence would become a node, and of a device that is lost nothing comes.
  uint64_t value = 0;
  if (stream->capture.load() || device.fence(*stream, &value) != cudaSuccess) value = 0;
  device.touch(device.null_stream());
  device.leave_stream(stream, value);
  error = device.send(Call::cudaStreamDestroy, cmd::cudaStreamDestroy{stream->handle});
  end_but_for_word(stream->handle, HandleKind::kStream);
  device.end_left_streams();
  return error;
}

cudaError_t query_stream(Stream& stream) {
  if (const cudaError_t error = check_wait(stream); error != cudaSuccess) return error;
  uint64_t value = 0;
  Device& device = stream.device;
  if (const cudaError_t error = device.fence(stream, &value); error != cudaSuccess) return error;
  if (const cudaError_t error = device.health(); error != cudaSuccess) return error;
  if (!device.reached(stream.word, value)) return cudaErrorNotReady;
  device.observe(stream, value);
  return cudaSuccess;
}

// The event is a point of a capture, or the stream takes part in one: the backend decides.
static cudaError_t wait_captured(Stream& stream, Event& event, unsigned flags) {
  const uint64_t capture = event.capture.load();
  if (&event.device != &stream.device) return cudaErrorStreamCaptureIsolation;
  if (!capture && !event.recorded.load().value) return cudaSuccess;
  // Before the command, which is part of the capture and is known by its stream.
  const bool joins = capture_lives(capture) && !stream.capture.load();
  if (joins) join_capture(stream, capture);
  const cudaError_t error = stream.device.confirm(
      Call::cudaStreamWaitEvent, cmd::cudaStreamWaitEvent{stream.handle, event.handle, flags, 0});
  if (joins && error != cudaSuccess) leave_capture(stream, capture);
  return error;
}

cudaError_t wait_event(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  Event* event = event_of(event_handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->capture.load() || stream->capture.load()) return wait_captured(*stream, *event, flags);
  const Record recorded = event->recorded.load(std::memory_order_acquire);
  if (!recorded.value && !event->shared)
    return cudaSuccess;                   // an event never recorded counts as complete
  if (&event->device != &stream->device)  // another server's event: the host waits for it
    return event->shared ? synchronize_event(event_handle)
                         : event->device.wait(recorded.word, recorded.value);
  error = stream->device.send(Call::cudaStreamWaitEvent,
                              cmd::cudaStreamWaitEvent{stream->handle, event->handle, flags, 0});
  stream->device.touch(*stream);
  return error;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

cudaError_t with_stream(cudaStream_t handle, cudaError_t (*use)(Stream&)) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? use(*stream) : error;
}

cudaError_t synchronize(cudaStream_t handle) {
  return with_stream(handle, [](Stream& s) {
    const cudaError_t error = check_wait(s);
    return error != cudaSuccess ? error : s.device.synchronize(s);
  });
}

}  // namespace

PYFT_API cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  const Entered entered(Api::cudaStreamCreate);
  return done(create_stream(0, 0, pStream));
}

PYFT_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  const Entered entered(Api::cudaStreamCreateWithFlags);
  return done(create_stream(flags, 0, pStream));
}

PYFT_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags,
                                                  int priority) {
  const Entered entered(Api::cudaStreamCreateWithPriority);
  return done(create_stream(flags, priority, pStream));
}

PYFT_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Entered entered(Api::cudaStreamDestroy);
  return done(destroy_stream(stream));
}

PYFT_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020);
  const Entered entered(Api::cudaStreamSynchronize);
  return done(synchronize(stream));
}

PYFT_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Entered entered(Api::cudaStreamQuery);
  return done(with_stream(stream, query_stream));
}

PYFT_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                         unsigned int flags) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020);
  const Entered entered(Api::cudaStreamWaitEvent);
  return done(wait_event(stream, event, flags));
}

PYFT_API cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
  const Entered entered(Api::cudaStreamGetPriority);
  cudaError_t error;
  const Stream* stream = stream_of(hStream, &error);
  if (stream && priority) *priority = stream->priority;
  return done(stream ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags) {
  const Entered entered(Api::cudaStreamGetFlags);
  cudaError_t error;
  const Stream* stream = stream_of(hStream, &error);
  if (stream && flags) *flags = stream->flags;
  return done(stream ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int* device) {
  const Entered entered(Api::cudaStreamGetDevice);
  cudaError_t error;
  Stream* stream = stream_of(hStream, &error);
  if (stream && device) *device = stream->device.ordinal();
  return done(stream ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId) {
  const Entered entered(Api::cudaStreamGetId);
  cudaError_t error;
  const Stream* stream = stream_of(hStream, &error);
  if (stream && streamId) *streamId = stream->id;
  return done(stream ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaDeviceSynchronize() {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020);
  const Entered entered(Api::cudaDeviceSynchronize);
  cudaError_t error;
  Device* device = attached(&error);
  if (device) error = check_wait(*device);
  return done(device && error == cudaSuccess ? device->synchronize_all() : error);
}

// ---- driver spelling -------------------------------------------------------------------------

PYFT_API CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  const Entered entered(Api::cuStreamCreate);
  return static_cast<CUresult>(create_stream(Flags, 0, phStream));
}

PYFT_API CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  const Entered entered(Api::cuStreamCreateWithPriority);
  return static_cast<CUresult>(create_stream(flags, priority, phStream));
}

PYFT_API CUresult cuStreamDestroy_v2(CUstream hStream) {
  const Entered entered(Api::cuStreamDestroy_v2);
  return static_cast<CUresult>(destroy_stream(hStream));
}

PYFT_API CUresult cuStreamSynchronize(CUstream hStream) {
  const Entered entered(Api::cuStreamSynchronize);
  return static_cast<CUresult>(synchronize(hStream));
}

PYFT_API CUresult cuStreamQuery(CUstream hStream) {
  const Entered entered(Api::cuStreamQuery);
  return static_cast<CUresult>(with_stream(hStream, query_stream));
}

PYFT_API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  const Entered entered(Api::cuStreamWaitEvent);
  return static_cast<CUresult>(wait_event(hStream, hEvent, Flags));
}

PYFT_API CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  const Entered entered(Api::cuStreamGetPriority);
  cudaError_t error;
  const Stream* stream = stream_of(hStream, &error);
  if (stream && priority) *priority = stream->priority;
  return static_cast<CUresult>(stream ? cudaSuccess : error);
}

PYFT_API CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  const Entered entered(Api::cuStreamGetFlags);
  cudaError_t error;
  const Stream* stream = stream_of(hStream, &error);
  if (stream && flags) *flags = stream->flags;
  return static_cast<CUresult>(stream ? cudaSuccess : error);
}
