// Allocation of device and pinned memory.
#ifndef PYFT_CLIENT_MEMORY_MEMORY_H_
#define PYFT_CLIENT_MEMORY_MEMORY_H_

#include "client/device/device.h"

namespace pyft::client {

cudaError_t allocate(size_t bytes, uint64_t* address);
cudaError_t release(uint64_t address);
cudaError_t allocate_pinned(size_t bytes, unsigned flags, void** out);
cudaError_t release_pinned(void* address);
cudaError_t memory_info(size_t* free, size_t* total);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_MEMORY_MEMORY_H_
