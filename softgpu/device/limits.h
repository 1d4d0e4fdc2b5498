// What cudaDeviceSetLimit sets and the executor obeys. Limits are the process's, not a device's.
#ifndef SOFTGPU_DEVICE_LIMITS_H_
#define SOFTGPU_DEVICE_LIMITS_H_

#include <atomic>

#include "core/kernel.h"

namespace softgpu {

struct Limits {
  std::atomic<uint64_t> stack_bytes{1024};  // per thread
  std::atomic<uint64_t> heap_bytes{uint64_t{8} << 20};
};
Limits& limits();

// Where malloc of kernels on `device` takes memory from: allocated when first asked for, and kept.
// Empty when the device has no room.
DeviceHeap device_heap(int device);
// The same, empty while none has been asked for.
DeviceHeap device_heap_if_used(int device);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_LIMITS_H_
