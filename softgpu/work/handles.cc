#include "work/handles.h"

#include <mutex>
#include <unordered_map>

#include "device/device.h"
#include "graph/capture.h"
#include "stream/ipc_event.h"
#include "work/perform.h"

namespace softgpu {
namespace {

struct Handles {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<const void*, std::unique_ptr<Event>> events;
};

Handles& handles() {
  static Handles* all = std::make_unique<Handles>().release();
  return *all;
}

}  // namespace

bool& null_stream_is_per_thread() {
  thread_local bool per_thread = false;
  return per_thread;
}

std::shared_ptr<Stream> create_stream(int device_index, bool blocking, int priority) {
  auto stream = std::make_shared<Stream>(
      device_index, blocking ? StreamKind::kBlocking : StreamKind::kNonBlocking, priority,
      next_stream_id());
  std::lock_guard lock(handles().mutex);
  handles().streams[stream.get()] = stream;
  return stream;
}

// Work still queued keeps the stream alive until it has run.
cudaError_t destroy_stream(const void* handle) {
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(handles().mutex);
    const auto it = handles().streams.find(handle);
    if (it == handles().streams.end()) return cudaErrorInvalidResourceHandle;
    stream = std::move(it->second);
    handles().streams.erase(it);
  }
  abandon_capture(*stream);
  return cudaSuccess;
}

std::shared_ptr<Stream> find_stream(const void* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Device& current = device(thread_device().index);
  const bool own = number == 2 || (number == 0 && null_stream_is_per_thread());
  if (number <= 1 && !own) return current.legacy_stream();
  if (own) return current.thread_stream();
  std::lock_guard lock(handles().mutex);
  const auto it = handles().streams.find(handle);
  return it == handles().streams.end() ? nullptr : it->second;
}

Event* create_event(int device_index, uint32_t flags, std::shared_ptr<SharedEvent> shared) {
  auto event = std::make_unique<Event>();
  event->device = device_index;
  event->flags = flags;
  event->shared = std::move(shared);
  Event* raw = event.get();
  std::lock_guard lock(handles().mutex);
  handles().events[raw] = std::move(event);
  return raw;
}

cudaError_t destroy_event(const void* handle) {
  std::lock_guard lock(handles().mutex);
  return handles().events.erase(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

bool find_event(const void* handle, Event* copy) {
  std::lock_guard lock(handles().mutex);
  const auto it = handles().events.find(handle);
  if (it == handles().events.end()) return false;
  *copy = *it->second;
  return true;
}

Work record_work(const void* handle, int device_index) {
  Work work;
  auto state = std::make_shared<EventState>();
  std::lock_guard lock(handles().mutex);
  const auto it = handles().events.find(handle);
  if (it == handles().events.end()) return work;
  Event& event = *it->second;
  event.captured.reset();
  event.device = device_index;
  if (event.shared) work.run = event.shared->record();
  event.last = state;
  work.record = std::move(state);
  return work;
}

Work wait_work(const void* handle) {
  Work work;
  Event event;
  if (!find_event(handle, &event)) return work;
  if (event.shared) {
    work.poll = event.shared->recorded();
  } else {
    work.after = event.last;
  }
  return work;
}

cudaError_t record_event(const void* handle, const std::shared_ptr<Stream>& stream, bool external) {
  Event event;
  if (!find_event(handle, &event)) return cudaErrorInvalidResourceHandle;
  if (any_capture()) {
    if (external) return perform(stream, RecordOperation{handle});
    if (event.shared) {
      const cudaError_t bad = refuse_in_capture(*stream);
      if (bad != cudaSuccess) return bad;
    }
    std::shared_ptr<CapturedEvent> captured;
    if (const auto done = capture_record(stream, &captured)) {
      if (*done != cudaSuccess) return *done;
      std::lock_guard lock(handles().mutex);
      const auto it = handles().events.find(handle);
      if (it == handles().events.end()) return cudaErrorInvalidResourceHandle;
      it->second->captured = std::move(captured);
      it->second->last.reset();
      return cudaSuccess;
    }
  }
  device(stream->device).scheduler().submit(stream, record_work(handle, stream->device));
  return cudaSuccess;
}

cudaError_t stream_wait_event(const std::shared_ptr<Stream>& stream, const void* handle,
                              bool external) {
  Event event;
  if (!find_event(handle, &event)) return cudaErrorInvalidResourceHandle;
  if (any_capture() || event.captured) {
    if (external) return perform(stream, WaitOperation{handle});
    const bool recorded = event.last || event.shared;
    if (const auto done = capture_wait(stream, event.captured, recorded)) return *done;
  }
  Work work = wait_work(handle);
  if (!work.after && !work.poll) return cudaSuccess;  // never recorded: nothing to wait for
  device(stream->device).scheduler().submit(stream, std::move(work));
  return cudaSuccess;
}

}  // namespace softgpu
