// Pinned host memory: allocated here, or the caller's pages registered.
#ifndef SOFTGPU_MEMORY_MEMORY_HOST_H_
#define SOFTGPU_MEMORY_MEMORY_HOST_H_

#include <driver_types.h>

#include <cstdint>

namespace softgpu {

cudaError_t allocate_pinned(uint64_t bytes, uint32_t flags, int device, uint64_t* address);
cudaError_t release_pinned(uint64_t address);
cudaError_t register_host(uint64_t address, uint64_t bytes, uint32_t flags, int device);
cudaError_t unregister_host(uint64_t address);

}  // namespace softgpu

#endif  // SOFTGPU_MEMORY_MEMORY_HOST_H_
