#include "client/capture.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "api/commands.h"
#include "client/graph.h"
#include "client/handles.h"

namespace pyft::client {
namespace {

struct Capture {
  Device* device;
  Stream* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<Stream*> streams;
  bool invalidated = false;  // by a call that never reached the backend
};

struct Captures {
  std::mutex mutex;
  std::map<uint64_t, Capture> live;
  uint64_t next_id = 1;
};

// Never destroyed: streams may be asked while the process exits.
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

// How many captures there are: without one no lock is taken.
std::atomic<int> live_captures{0};

void leave(Captures& all, std::map<uint64_t, Capture>::iterator capture) {
  for (Stream* stream : capture->second.streams) stream->capture.store(0);
  capture->second.device->captures.fetch_sub(1);
  live_captures.fetch_sub(1);
  all.live.erase(capture);
}

cudaError_t ask_backend(Stream& stream, cudaStreamCaptureStatus* status) {
  Reply reply;
  const cmd::cudaStreamIsCapturing body{stream.handle};
  const cudaError_t error = stream.device.call(static_cast<uint16_t>(Call::cudaStreamIsCapturing),
                                               bytes_of(body), &reply);
  if (error != cudaSuccess) return error;
  *status = static_cast<cudaStreamCaptureStatus>(reply.values[0]);
  return static_cast<cudaError_t>(reply.code);
}

bool is_invalidated(uint64_t id) {
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().live.find(id);
  return found != captures().live.end() && found->second.invalidated;
}

}  // namespace

cudaStreamCaptureMode& thread_capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t begin_capture(Stream& stream, cudaStreamCaptureMode mode) {
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
    return cudaErrorInvalidValue;
  if (stream.handle <= 1) return cudaErrorStreamCaptureUnsupported;  // the legacy stream
  if (stream.capture.load()) return cudaErrorIllegalState;
  const cudaError_t error = stream.device.confirm(Call::cudaStreamBeginCapture,
                                                  cmd::cudaStreamBeginCapture{stream.handle});
  if (error != cudaSuccess) return error;
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  const uint64_t id = all.next_id++;
  all.live[id] = {&stream.device, &stream, mode, std::this_thread::get_id(), {&stream}};
  stream.device.captures.fetch_add(1);
  live_captures.fetch_add(1);
  stream.capture.store(id);
  return cudaSuccess;
}

cudaError_t end_capture(Stream& stream, cudaGraph_t* graph) {
  if (!graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  Captures& all = captures();
  bool invalidated = false;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.live.find(stream.capture.load());
    if (found == all.live.end()) return cudaErrorIllegalState;
    const Capture& capture = found->second;
    if (capture.origin != &stream) return cudaErrorStreamCaptureUnmatched;
    if (capture.mode != cudaStreamCaptureModeRelaxed &&
        capture.thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    invalidated = capture.invalidated;
    leave(all, found);
  }
  const uint64_t handle = mint_graph(stream.device, HandleKind::kGraph);
  if (!handle) return cudaErrorMemoryAllocation;
  cudaError_t error = stream.device.confirm(Call::cudaStreamEndCapture,
                                            cmd::cudaStreamEndCapture{handle, stream.handle});
  if (error == cudaSuccess && invalidated) {
    error = stream.device.send(Call::cudaGraphDestroy, cmd::cudaGraphDestroy{handle});
    if (error == cudaSuccess) error = cudaErrorStreamCaptureInvalidated;
  }
  if (error == cudaSuccess)
    *graph = reinterpret_cast<cudaGraph_t>(handle);
  else if (forget_graph(handle))
    end_handle(handle);
  return error;
}

cudaError_t capture_status(Stream& stream, cudaStreamCaptureStatus* status, uint64_t* id) {
  *status = cudaStreamCaptureStatusNone;
  *id = stream.capture.load();
  // The legacy stream waits for blocking streams that capture: only the backend knows what to say.
  if (!*id && (stream.handle > 1 || !device_captures(stream.device))) return cudaSuccess;
  if (is_invalidated(*id)) {
    *status = cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  }
  return ask_backend(stream, status);
}

void join_capture(Stream& stream, uint64_t id) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(id);
  if (found == all.live.end()) return;
  if (stream.capture.exchange(id) != id) found->second.streams.push_back(&stream);
}

void leave_capture(Stream& stream, uint64_t id) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(id);
  if (found != all.live.end()) std::erase(found->second.streams, &stream);
  stream.capture.store(0);
}

bool capture_lives(uint64_t id) {
  const std::lock_guard lock(captures().mutex);
  return captures().live.contains(id);
}

bool device_captures(const Device& device) {
  return device.captures.load(std::memory_order_relaxed) > 0;
}

bool belongs_to_capture(const Device& device, Call call, Bytes body) {
  if (call == Call::cudaStreamBeginCapture || call == Call::cudaStreamEndCapture) return true;
  constexpr uint16_t kOfObjects = ring::kCreates | ring::kDestroys;
  if (!device_captures(device) || call == Call::cudaStreamIsCapturing ||
      entry_flags(call) & kOfObjects)
    return false;
  const std::lock_guard lock(captures().mutex);
  for (size_t at = 0; at + sizeof(uint64_t) <= body.size(); at += sizeof(uint64_t)) {
    const uint64_t word = ring::object_key(body.subspan(at));
    for (const auto& [id, capture] : captures().live)
      for (const Stream* stream : capture.streams)
        if (capture.device == &device && stream->handle == word) return true;
  }
  return false;
}

cudaError_t check_wait(const Stream& stream) {
  const uint64_t id = stream.capture.load(std::memory_order_relaxed);
  if (!id) return cudaSuccess;
  const std::lock_guard lock(captures().mutex);
  if (const auto found = captures().live.find(id); found != captures().live.end())
    found->second.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_wait(const Device& device) {
  if (!device_captures(device)) return cudaSuccess;
  const std::lock_guard lock(captures().mutex);
  for (auto& [id, capture] : captures().live)
    if (capture.device == &device) capture.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_unsafe_call() {
  if (!live_captures.load(std::memory_order_relaxed)) return cudaSuccess;
  const cudaStreamCaptureMode mode = thread_capture_mode();
  if (mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  const std::lock_guard lock(captures().mutex);
  for (auto& [id, capture] : captures().live) {
    const bool own = capture.thread == std::this_thread::get_id() &&
                     capture.mode != cudaStreamCaptureModeRelaxed;
    const bool global =
        capture.mode == cudaStreamCaptureModeGlobal && mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    capture.invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? begin_capture(*stream, mode) : error;
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? end_capture(*stream, graph) : error;
}

cudaError_t status_of(cudaStream_t handle, cudaStreamCaptureStatus* status, uint64_t* id) {
  if (!status) return cudaErrorInvalidValue;
  // Without a capture nothing is looked up: this is asked at every allocation.
  *status = cudaStreamCaptureStatusNone;
  *id = 0;
  if (!live_captures.load(std::memory_order_relaxed)) return cudaSuccess;
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? capture_status(*stream, status, id) : error;
}

template <class Mode>
bool exchange_mode(Mode* mode) {
  if (!mode) return false;
  const auto wanted = static_cast<cudaStreamCaptureMode>(*mode);
  if (wanted < cudaStreamCaptureModeGlobal || wanted > cudaStreamCaptureModeRelaxed) return false;
  *mode = static_cast<Mode>(std::exchange(thread_capture_mode(), wanted));
  return true;
}

// The graph and its nodes stay the backend's.
template <class... Out>
cudaError_t no_nodes(size_t* count, Out... wanted) {
  if (count) *count = 0;
  for (const bool asked : {wanted != nullptr...})
    if (asked) return cudaErrorNotSupported;
  return cudaSuccess;
}

}  // namespace

PYFT_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  enter(Api::cudaStreamBeginCapture);
  return done(begin(stream, mode));
}

PYFT_API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  enter(Api::cuStreamBeginCapture_v2);
  return static_cast<CUresult>(begin(hStream, static_cast<cudaStreamCaptureMode>(mode)));
}

PYFT_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  enter(Api::cudaStreamEndCapture);
  return done(end(stream, pGraph));
}

PYFT_API CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  enter(Api::cuStreamEndCapture);
  return static_cast<CUresult>(end(hStream, phGraph));
}

PYFT_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                           enum cudaStreamCaptureStatus* pCaptureStatus) {
  enter(Api::cudaStreamIsCapturing);
  uint64_t id = 0;
  return done(status_of(stream, pCaptureStatus, &id));
}

PYFT_API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  enter(Api::cuStreamIsCapturing);
  uint64_t id = 0;
  return static_cast<CUresult>(
      status_of(hStream, reinterpret_cast<cudaStreamCaptureStatus*>(captureStatus), &id));
}

PYFT_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                              enum cudaStreamCaptureStatus* captureStatus_out,
                                              unsigned long long* id_out, cudaGraph_t* graph_out,
                                              const cudaGraphNode_t** dependencies_out,
                                              const cudaGraphEdgeData** edgeData_out,
                                              size_t* numDependencies_out) {
  enter(Api::cudaStreamGetCaptureInfo);
  uint64_t id = 0;
  const cudaError_t error = status_of(stream, captureStatus_out, &id);
  if (id_out) *id_out = id;
  if (error != cudaSuccess || !id) return done(error);
  return done(no_nodes(numDependencies_out, graph_out, dependencies_out, edgeData_out));
}

PYFT_API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream,
                                            CUstreamCaptureStatus* captureStatus_out,
                                            cuuint64_t* id_out, CUgraph* graph_out,
                                            const CUgraphNode** dependencies_out,
                                            const CUgraphEdgeData** edgeData_out,
                                            size_t* numDependencies_out) {
  enter(Api::cuStreamGetCaptureInfo_v3);
  uint64_t id = 0;
  const cudaError_t error =
      status_of(hStream, reinterpret_cast<cudaStreamCaptureStatus*>(captureStatus_out), &id);
  if (id_out) *id_out = id;
  if (error != cudaSuccess || !id) return static_cast<CUresult>(error);
  return static_cast<CUresult>(
      no_nodes(numDependencies_out, graph_out, dependencies_out, edgeData_out));
}

PYFT_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  enter(Api::cudaThreadExchangeStreamCaptureMode);
  return done(exchange_mode(mode) ? cudaSuccess : cudaErrorInvalidValue);
}

PYFT_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  enter(Api::cuThreadExchangeStreamCaptureMode);
  return exchange_mode(mode) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
