// A driver whose streams do their copies later, one at each look at them: from page-locked memory
// only, in a context that each thread has to enter, and beside captures that it does not forgive
// those that look at their streams or have not said that they are relaxed about them.
#ifndef PYFT_TESTS_WIRE_COPYING_DRIVER_H_
#define PYFT_TESTS_WIRE_COPYING_DRIVER_H_

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "api/mock_table.h"
#include "checkpoint/digest/nh.h"

namespace copying_driver {

using namespace pyft;  // NOLINT: a test

// Memory of the device is memory of this process.
struct Driver {
  struct Operation {
    void* to;
    const void* from;
    size_t bytes;
    CUevent event;                      // recorded instead
    checkpoint::KernelArgument kernel;  // launched instead, if it has any slices
  };
  std::mutex mutex;
  std::map<CUstream, std::deque<Operation>> queued;
  std::map<CUevent, CUstream> pending;                        // events that have not been reached
  std::map<std::byte*, size_t> locked;                        // pages
  std::vector<unsigned> flags;                                // of streams
  uint64_t locks = 0, copies = 0, pageable = 0, records = 0;  // what has been asked for
  bool stands_still = false, locks_nothing = false;
  bool captures = false, broken = false;
  std::function<void()> on_copy;   // about to be done
  int copy_code = 0, failure = 0;  // of the call; of the context, from when a copy is done
  int launch_code = 0;
  bool has_memory = true;  // of its own
  uint64_t seed = 0;       // of the digests that its kernel computes
  bool lies = false;       // in these
  uintptr_t handles = 0x1000;
};
inline Driver& driver() {
  static Driver one;
  return one;
}
inline void start_again() {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  d.queued.clear();
  d.pending.clear();
  d.flags.clear();
  d.locks = d.copies = d.pageable = d.records = 0;
  d.stands_still = d.locks_nothing = d.captures = d.broken = false;
  d.on_copy = {};
  d.copy_code = d.failure = d.launch_code = 0;
  d.has_memory = true;
  d.lies = false;
}

inline thread_local bool in_context = false;
inline thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

inline bool is_locked(const void* memory, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(memory);
  return std::ranges::any_of(driver().locked, [&](const auto& one) {
    return one.first <= at && at + bytes <= one.first + one.second;
  });
}

// What this thread does that is not safe for captures of others, or for one of the default stream.
inline int enter_call(CUstream stream) {
  Driver& d = driver();
  if (!in_context) return CUDA_ERROR_INVALID_CONTEXT;
  if (d.captures && (!stream || mode != CU_STREAM_CAPTURE_MODE_RELAXED)) d.broken = true;
  return d.broken ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : d.failure;
}

// The kernel of the digests.
inline void hash(const checkpoint::KernelArgument& kernel) {
  const checkpoint::NhKey& key = checkpoint::nh_key(driver().seed);
  for (unsigned i = 0; i < kernel.count; ++i) {
    const checkpoint::Slice slice = kernel.slices[i];
    checkpoint::NhSum sum(key);
    for (uint64_t at = 0; at < slice.bytes; at += checkpoint::kTileBytes)
      sum.add(checkpoint::nh_tile(key, reinterpret_cast<const std::byte*>(slice.address + at),
                                  std::min<uint64_t>(checkpoint::kTileBytes, slice.bytes - at)),
              1);
    const ring::Digest digest = sum.digest(0);
    kernel.sums[i] = (checkpoint::Number{digest.high} << 64 | digest.low) + driver().lies;
  }
}

// Does the next thing of a stream. Under the lock.
inline bool do_one(CUstream stream) {
  Driver& d = driver();
  auto& queue = d.queued[stream];
  if (queue.empty() || d.stands_still || d.failure) return false;
  const Driver::Operation next = queue.front();
  if (!next.event && !next.kernel.count && d.on_copy) d.on_copy();
  if (d.failure) return false;
  queue.pop_front();
  if (next.event)
    d.pending.erase(next.event);
  else if (next.kernel.count)
    hash(next.kernel);
  else
    std::memcpy(next.to, next.from, next.bytes);
  return true;
}
// All that has been asked for so far.
inline void do_all() {
  const std::lock_guard lock(driver().mutex);
  for (auto& [stream, queue] : driver().queued)
    while (do_one(stream)) continue;
}
inline size_t queued_copies() {
  const std::lock_guard lock(driver().mutex);
  size_t count = 0;
  for (const auto& [stream, queue] : driver().queued)
    count += static_cast<size_t>(std::ranges::count_if(
        queue, [](const auto& one) { return !one.event && !one.kernel.count; }));
  return count;
}

inline CUresult enqueue(void* to, const void* from, size_t bytes, CUstream stream,
                        const void* host) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int code = enter_call(stream)) return static_cast<CUresult>(code);
  if (d.copy_code) return static_cast<CUresult>(d.copy_code);
  ++d.copies;
  if (!host || is_locked(host, bytes)) {
    d.queued[stream].push_back({to, from, bytes, nullptr, {}});
  } else {
    ++d.pageable;
    std::memcpy(to, from, bytes);
  }
  return CUDA_SUCCESS;
}

inline CUresult to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return enqueue(to, reinterpret_cast<const void*>(from), bytes, stream, to);
}
inline CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return enqueue(reinterpret_cast<void*>(to), from, bytes, stream, from);
}

inline CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return enqueue(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, stream,
                 nullptr);
}
inline CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream stream, void** arguments, void**) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int code = enter_call(stream)) return static_cast<CUresult>(code);
  if (d.launch_code) return static_cast<CUresult>(d.launch_code);
  d.queued[stream].push_back(
      {nullptr, nullptr, 0, nullptr, *static_cast<checkpoint::KernelArgument*>(arguments[0])});
  return CUDA_SUCCESS;
}

inline CUresult record(CUevent event, CUstream stream) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int code = enter_call(stream)) return static_cast<CUresult>(code);
  ++d.records;
  d.queued[stream].push_back({nullptr, nullptr, 0, event, {}});
  d.pending[event] = stream;
  return CUDA_SUCCESS;
}

inline CUresult look(CUstream stream, bool (*there)(CUstream, CUevent), CUevent event) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int code = enter_call(stream)) return static_cast<CUresult>(code);
  if (there(stream, event)) return CUDA_SUCCESS;
  do_one(stream);
  return d.failure ? static_cast<CUresult>(d.failure) : CUDA_ERROR_NOT_READY;
}
inline CUresult query_event(CUevent event) {
  CUstream stream = nullptr;
  {
    const std::lock_guard lock(driver().mutex);
    const auto found = driver().pending.find(event);
    stream = found == driver().pending.end() ? reinterpret_cast<CUstream>(1) : found->second;
  }
  return look(
      stream, [](CUstream, CUevent which) { return !driver().pending.contains(which); }, event);
}
inline CUresult query_stream(CUstream stream) {
  return look(
      stream, [](CUstream which, CUevent) { return driver().queued[which].empty(); }, nullptr);
}

inline CUresult lock_pages(void* memory, size_t bytes, unsigned) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int code = enter_call(reinterpret_cast<CUstream>(1)))
    return static_cast<CUresult>(code);
  if (d.locks_nothing) return CUDA_ERROR_OUT_OF_MEMORY;
  d.locked[static_cast<std::byte*>(memory)] = bytes;
  ++d.locks;
  return CUDA_SUCCESS;
}
inline CUresult unlock_pages(void* memory) {
  const std::lock_guard lock(driver().mutex);
  return driver().locked.erase(static_cast<std::byte*>(memory))
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

inline backend::Table make_table() {
  backend::Table t = backend::mock_table();
  t.cuCtxSetCurrent = [](CUcontext) {
    in_context = true;
    return CUDA_SUCCESS;
  };
  t.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* wanted) {
    std::swap(*wanted, mode);
    return CUDA_SUCCESS;
  };
  t.cuCtxSynchronize = [] {
    do_all();
    return static_cast<CUresult>(driver().failure);
  };
  t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int) {
    *stream = reinterpret_cast<CUstream>(++driver().handles);
    driver().flags.push_back(flags);
    return CUDA_SUCCESS;
  };
  t.cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(++driver().handles);
    return CUDA_SUCCESS;
  };
  t.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  t.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  t.cuMemcpyDtoHAsync_v2 = to_host;
  t.cuMemcpyHtoDAsync_v2 = to_device;
  t.cuEventRecord = record;
  t.cuEventQuery = query_event;
  t.cuStreamQuery = query_stream;
  t.cuMemHostRegister_v2 = lock_pages;
  t.cuMemHostUnregister = unlock_pages;
  t.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* there, void* here, unsigned) {
    *there = reinterpret_cast<CUdeviceptr>(here);
    return CUDA_SUCCESS;
  };
  t.cuMemAlloc_v2 = [](CUdeviceptr* at, size_t bytes) {
    if (!driver().has_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(4096, bytes));
    return CUDA_SUCCESS;
  };
  t.cuMemFree_v2 = [](CUdeviceptr at) {
    std::free(reinterpret_cast<void*>(at));
    return CUDA_SUCCESS;
  };
  t.cuMemcpyAsync = on_device;
  t.cuLaunchKernel = launch;
  t.cuStreamSynchronize = [](CUstream) {
    do_all();
    return static_cast<CUresult>(driver().failure);
  };
  return t;
}
inline const backend::Table& table() {
  static const backend::Table made = make_table();
  return made;
}

}  // namespace copying_driver

#endif  // PYFT_TESTS_WIRE_COPYING_DRIVER_H_
