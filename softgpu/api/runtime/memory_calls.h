// Freeing memory, which waits for what may still use it.
#ifndef SOFTGPU_API_RUNTIME_MEMORY_CALLS_H_
#define SOFTGPU_API_RUNTIME_MEMORY_CALLS_H_

#include <driver_types.h>

#include <cstdint>

namespace softgpu::api {

cudaError_t free_device(uint64_t address);
cudaError_t free_pinned(uint64_t address);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_RUNTIME_MEMORY_CALLS_H_
