#include "device/limits.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"

namespace softgpu {
namespace {

struct Heaps {
  std::mutex mutex;
  std::map<int, DeviceHeap> by_device;
};

Heaps& heaps() {
  static Heaps* all = std::make_unique<Heaps>().release();
  return *all;
}

}  // namespace

Limits& limits() {
  static Limits instance;
  return instance;
}

DeviceHeap device_heap(int device) {
  const std::lock_guard lock(heaps().mutex);
  auto [it, fresh] = heaps().by_device.try_emplace(device);
  if (!fresh) return it->second;
  const uint64_t bytes = round_up(limits().heap_bytes, kGranule);
  uint64_t address = 0;
  if (softgpu::device(device).memory().allocate_auxiliary(bytes, &address) != cudaSuccess) {
    return {};
  }
  it->second = {address, bytes};
  return it->second;
}

DeviceHeap device_heap_if_used(int device) {
  const std::lock_guard lock(heaps().mutex);
  const auto found = heaps().by_device.find(device);
  return found == heaps().by_device.end() ? DeviceHeap{} : found->second;
}

}  // namespace softgpu
