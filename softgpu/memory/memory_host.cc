#include "memory/memory_host.h"

#include <sys/mman.h>

#include "memory/memory.h"
#include "memory/pointers.h"

namespace softgpu {

inline constexpr uint64_t kPage = 4096;

cudaError_t allocate_pinned(uint64_t bytes, uint32_t flags, int device, uint64_t* address) {
  const uint64_t rounded = round_up(bytes, kPage);
  void* got = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return cudaErrorMemoryAllocation;
  *address = reinterpret_cast<uint64_t>(got);
  pointers().add({*address, rounded, PointerKind::kPinned, device, flags});
  return cudaSuccess;
}

cudaError_t release_pinned(uint64_t address) {
  const auto info = pointers().find(address);
  if (!info || info->kind != PointerKind::kPinned || info->base != address) {
    return cudaErrorInvalidValue;
  }
  pointers().remove(address);
  munmap(reinterpret_cast<void*>(address), info->size);
  return cudaSuccess;
}

cudaError_t register_host(uint64_t address, uint64_t bytes, uint32_t flags, int device) {
  if (!address || !bytes) return cudaErrorInvalidValue;
  if (!pointers().add({address, bytes, PointerKind::kRegistered, device, flags})) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  return cudaSuccess;
}

cudaError_t unregister_host(uint64_t address) {
  const auto info = pointers().find(address);
  if (!info || info->kind != PointerKind::kRegistered || info->base != address) {
    return cudaErrorHostMemoryNotRegistered;
  }
  pointers().remove(address);
  return cudaSuccess;
}

}  // namespace softgpu
