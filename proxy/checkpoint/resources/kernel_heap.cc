#include "checkpoint/resources/kernel_heap.h"

#include <algorithm>

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kNoModule = 0;

}  // namespace

void save_kernel_heap(DeviceState& state, std::vector<ring::ManifestPlace>* places) {
  const MemoryRange heap = state.kernel_heap();
  if (heap.bytes) places->push_back({heap.address, heap.bytes, kNoModule});
}

std::string restore_kernel_heap(const std::vector<ring::ManifestPlace>& places, DeviceState& state,
                                Placement& placement) {
  const auto heap = std::ranges::find(places, kNoModule, &ring::ManifestPlace::owner);
  if (heap == places.end()) return {};
  if (const int code = placement.place(*heap))
    return "the heap of kernels cannot be made again: code [" + std::to_string(code) + "]";
  if (placement.relocates() || state.kernel_heap() == MemoryRange{heap->address, heap->bytes})
    return {};
  return "the heap of kernels, of [" + std::to_string(heap->bytes) + "] bytes at [" +
         std::to_string(heap->address) + "], is not there again";
}

}  // namespace pyft::checkpoint
