// The devices of this process, their streams and events, and what a thread calls its current one.
#ifndef SOFTGPU_CORE_DEVICE_H_
#define SOFTGPU_CORE_DEVICE_H_

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/memory.h"
#include "core/stream.h"

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

struct CapturedEvent;
class SharedEvent;

// Stream and event handles. Invalid ones are cudaErrorInvalidResourceHandle.
struct Event {
  uint32_t flags = 0;
  int device = 0;
  // The last record: empty until recorded; guarded by the handle table. At most one of these two.
  std::shared_ptr<EventState> last;
  std::shared_ptr<CapturedEvent> captured;
  std::shared_ptr<SharedEvent> shared;  // of an event that other processes may open
};

// Whether the calling thread is inside a call that means its own stream by 0.
bool& null_stream_is_per_thread();

std::shared_ptr<Stream> create_stream(int device, bool blocking, int priority);
cudaError_t destroy_stream(const void* handle);
// Resolves 0 and 1 (legacy), 2 (per thread) and created streams; empty if there is none.
std::shared_ptr<Stream> find_stream(const void* handle);

Event* create_event(int device, uint32_t flags, std::shared_ptr<SharedEvent> shared);
cudaError_t destroy_event(const void* handle);
bool find_event(const void* handle, Event* copy);
// `external`: in a capture a node of its own, instead of an order between nodes.
cudaError_t record_event(const void* handle, const std::shared_ptr<Stream>& stream, bool external);
cudaError_t stream_wait_event(const std::shared_ptr<Stream>& stream, const void* event,
                              bool external);
// The work of recording or waiting now. An event that is gone records nothing and is complete.
Work record_work(const void* event, int device);
Work wait_work(const void* event);

cudaError_t fault_code(FaultKind kind);

}  // namespace softgpu

#endif  // SOFTGPU_CORE_DEVICE_H_
