#include "core/device.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/capture.h"
#include "core/config.h"
#include "core/control_file.h"
#include "core/fault_injection.h"
#include "core/ipc_event.h"
#include "core/operation.h"

namespace softgpu {
namespace {

std::atomic<uint64_t> next_stream_id{1};
std::atomic<bool> in_forked_child{false};

struct Handles {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<const void*, std::unique_ptr<Event>> events;
};

Handles& handles() {
  static Handles* all = std::make_unique<Handles>().release();
  return *all;
}

void take_control_lines(std::string_view lines) {
  const std::string problem = inject_faults(lines);
  if (!problem.empty()) std::fprintf(stderr, "softgpu: [SOFTGPU_CONTROL]: %s\n", problem.c_str());
}

using Devices = std::vector<std::unique_ptr<Device>>;

Devices& devices() {
  static Devices* all = [] {
    auto made = std::make_unique<Devices>();
    for (int i = 0; i < config().devices; ++i) made->push_back(std::make_unique<Device>(i));
    pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
    watch_control_file(take_control_lines);
    std::atexit([] {
      if (forked()) return;
      if (const std::string text = missed_faults(); !text.empty()) std::fputs(text.c_str(), stderr);
      stop_faults();
      for (auto& d : devices()) d->scheduler().stop();
    });
    return made.release();
  }();
  return *all;
}

}  // namespace

Device::Device(int index)
    : index_(index),
      memory_(index, config().memory_bytes),
      scheduler_(index),
      legacy_(std::make_shared<Stream>(index, StreamKind::kLegacy, 0, 0)) {
  if (const Fault fault = fault_from_start(index)) scheduler_.fail_now(fault);
}

std::shared_ptr<Stream> Device::thread_stream() {
  thread_local std::map<int, std::shared_ptr<Stream>> streams;
  auto& stream = streams[index_];
  if (!stream)
    stream = std::make_shared<Stream>(index_, StreamKind::kBlocking, 0, next_stream_id++);
  return stream;
}

cudaError_t Device::sticky() const {
  return fault_code(scheduler_.fault());
}

cudaError_t fault_code(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return cudaSuccess;
    case FaultKind::kIllegalAddress:
      return cudaErrorIllegalAddress;
    case FaultKind::kMisalignedAddress:
      return cudaErrorMisalignedAddress;
    case FaultKind::kIllegalInstruction:
      return cudaErrorIllegalInstruction;
    case FaultKind::kAssert:
      return cudaErrorAssert;
    case FaultKind::kLaunchTimeout:
      return cudaErrorLaunchTimeout;
    case FaultKind::kDeviceTrap:
      return cudaErrorLaunchFailure;
    case FaultKind::kEccUncontained:
      return cudaErrorECCUncorrectable;
    case FaultKind::kEccContained:
      return cudaErrorContained;
    case FaultKind::kDeviceLost:
      return cudaErrorUnknown;
    case FaultKind::kCode:
      break;
  }
  return static_cast<cudaError_t>(static_cast<int>(kind) - static_cast<int>(FaultKind::kCode));
}

int device_count() {
  return config().devices;
}

Device& device(int index) {
  return *devices()[static_cast<size_t>(index)];
}

ThreadDevice& thread_device() {
  thread_local ThreadDevice current;
  return current;
}

bool forked() {
  return in_forked_child.load(std::memory_order_relaxed);
}

bool& null_stream_is_per_thread() {
  thread_local bool per_thread = false;
  return per_thread;
}

std::shared_ptr<Stream> create_stream(int device_index, bool blocking, int priority) {
  auto stream = std::make_shared<Stream>(
      device_index, blocking ? StreamKind::kBlocking : StreamKind::kNonBlocking, priority,
      next_stream_id++);
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
