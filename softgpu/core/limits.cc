#include "core/limits.h"

#include <cstring>
#include <map>

#include "core/device.h"

namespace softgpu {

Limits& limits() {
  static Limits instance;
  return instance;
}

DeviceHeap device_heap(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceHeap> heaps;
  const std::lock_guard lock(mutex);
  auto [it, fresh] = heaps.try_emplace(device);
  if (!fresh) return it->second;
  const uint64_t bytes = round_up(limits().heap_bytes, kGranule);
  uint64_t address = 0;
  if (softgpu::device(device).memory().allocate_auxiliary(bytes, &address) != cudaSuccess) {
    return {};
  }
  it->second = {address, bytes};
  return it->second;
}

}  // namespace softgpu
