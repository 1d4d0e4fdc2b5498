#include "client/device/capture.h"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "api/commands.h"

namespace pyft::client {
namespace {

struct Capture {
  Device* device;
  Stream* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<Stream*> streams;
  EndedCapture ended;  // what there will be to say of it
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
  return found != captures().live.end() && found->second.ended.invalidated;
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
  all.live[id] = {&stream.device, &stream, mode, std::this_thread::get_id(), {&stream}, {}};
  stream.device.captures.fetch_add(1);
  live_captures.fetch_add(1);
  stream.capture.store(id);
  return cudaSuccess;
}

cudaError_t leave_to_end(Stream& stream, EndedCapture* ended) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(stream.capture.load());
  if (found == all.live.end()) return cudaErrorIllegalState;
  const Capture& capture = found->second;
  if (capture.origin != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  *ended = capture.ended;
  leave(all, found);
  return cudaSuccess;
}

uint64_t graph_of_capture(uint64_t id, uint64_t offered) {
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().live.find(id);
  if (found == captures().live.end()) return 0;
  uint64_t& graph = found->second.ended.graph;
  if (!graph) graph = offered;
  return graph;
}

bool any_captures() {
  return live_captures.load(std::memory_order_relaxed) > 0;
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
    found->second.ended.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_wait(const Device& device) {
  if (!device_captures(device)) return cudaSuccess;
  const std::lock_guard lock(captures().mutex);
  for (auto& [id, capture] : captures().live)
    if (capture.device == &device) capture.ended.invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_unsafe_call() {
  if (!any_captures()) return cudaSuccess;
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
    capture.ended.invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

}  // namespace pyft::client
