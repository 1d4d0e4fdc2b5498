// softgpu.h: memory as another program's snapshots and restores want it.
#include "api/support.h"
#include "core/windows.h"
#include "device/limits.h"
#include "device/memory_virtual.h"
#include "memory/pointers.h"
#include "softgpu.h"

namespace {

bool is_device(int index) {
  return softgpu::api::usable() == cudaSuccess && index >= 0 && index < softgpu::device_count();
}

}  // namespace

SOFTGPU_API const void* softgpu_view(unsigned long long address, unsigned long long bytes) {
  if (softgpu::api::usable() != cudaSuccess || bytes == 0 || bytes > UINT64_MAX - address ||
      !softgpu::is_device_memory(address) || !softgpu::is_device_memory(address + bytes - 1))
    return nullptr;
  return softgpu::pointers().covers(address, bytes) ? reinterpret_cast<const void*>(address)
                                                    : nullptr;
}

SOFTGPU_API int softgpu_untouched(unsigned long long address, unsigned long long bytes) {
  return softgpu_view(address, bytes) && softgpu::untouched(address, bytes) ? 1 : 0;
}

SOFTGPU_API int softgpu_kernel_heap(int device, int create, unsigned long long* address,
                                    unsigned long long* bytes) {
  if (!is_device(device) || !address || !bytes) return 1;
  const softgpu::DeviceHeap heap =
      create ? softgpu::device_heap(device) : softgpu::device_heap_if_used(device);
  *address = heap.address;
  *bytes = heap.bytes;
  return create && !heap.bytes ? 1 : 0;
}

SOFTGPU_API int softgpu_place(int device, unsigned long long address) {
  if (!is_device(device)) return 1;
  softgpu::device(device).memory().place_next_auxiliary(address);
  return 0;
}
