// The devices of this process, and what a thread calls its current one.
#ifndef SOFTGPU_DEVICE_DEVICE_H_
#define SOFTGPU_DEVICE_DEVICE_H_

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "fault/fault_kinds.h"
#include "memory/memory.h"
#include "stream/stream.h"

namespace softgpu {

class Device {
 public:
  explicit Device(int index);
  int index() const { return index_; }
  DeviceMemory& memory() { return memory_; }
  Scheduler& scheduler() { return scheduler_; }
  const std::shared_ptr<Stream>& legacy_stream() const { return legacy_; }
  // The default stream of the calling thread.
  std::shared_ptr<Stream> thread_stream();
  // cudaSuccess, or the code of the fault that ended this device.
  cudaError_t sticky() const;
  bool active() const { return active_.load(std::memory_order_relaxed); }
  uint64_t warp_instructions() const { return warp_instructions_.load(std::memory_order_relaxed); }
  uint64_t kernel_time_ns() const { return kernel_time_ns_.load(std::memory_order_relaxed); }
  void count_kernel(uint64_t instructions, uint64_t time_ns) {
    warp_instructions_.fetch_add(instructions, std::memory_order_relaxed);
    kernel_time_ns_.fetch_add(time_ns, std::memory_order_relaxed);
  }
  void activate() { active_.store(true, std::memory_order_relaxed); }

 private:
  const int index_;
  DeviceMemory memory_;
  Scheduler scheduler_;
  std::shared_ptr<Stream> legacy_;
  std::atomic<bool> active_{false};
  std::atomic<uint64_t> warp_instructions_{0}, kernel_time_ns_{0};
};

int device_count();
Device& device(int index);  // precondition: index < device_count()

// The device that calls of this thread mean, and whether the thread has chosen one (the driver API
// tells the difference: without it no context is current).
struct ThreadDevice {
  int index = 0;
  bool bound = false;
};
ThreadDevice& thread_device();

// True in a child forked after a device was used: no thread of ours lives there.
bool forked();

// Of streams: in the order of their creation, over all devices.
uint64_t next_stream_id();

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_DEVICE_H_
