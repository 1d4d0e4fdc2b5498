// Virtual memory management as the driver offers it: reserve addresses, create memory, map it.
#ifndef SOFTGPU_DEVICE_MEMORY_VIRTUAL_H_
#define SOFTGPU_DEVICE_MEMORY_VIRTUAL_H_

#include <driver_types.h>

#include <cstdint>

namespace softgpu {

// All thread-safe. `wanted` is honoured exactly when the range is free; else another address comes
// back and the caller compares, as with the real driver.
cudaError_t reserve_addresses(uint64_t bytes, uint64_t alignment, uint64_t wanted,
                              uint64_t* address);
cudaError_t free_addresses(uint64_t address, uint64_t bytes);
// `exportable`: other processes may be given it (memory_export.h).
cudaError_t create_memory(int device, uint64_t bytes, bool exportable, uint64_t* handle);
cudaError_t release_memory(uint64_t handle);
cudaError_t retain_memory(uint64_t mapped_address, uint64_t* handle);
cudaError_t map_memory(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle);
// Precondition: no queued work uses the range.
cudaError_t unmap_memory(uint64_t address, uint64_t bytes);
cudaError_t set_access(uint64_t address, uint64_t bytes, bool readable, bool writable);
// Whether nothing has written to the range (or read it) since its memory was created: all zeros.
bool untouched(uint64_t address, uint64_t bytes);
// The file behind a mapping: where the address lies in it, and how much of the mapping follows.
bool mapped_file(uint64_t address, int* fd, uint64_t* offset, uint64_t* bytes);
cudaError_t memory_device(uint64_t handle, int* device, bool* exportable);
// Where memory that others may be given lies; false: it is not such, or another process's.
bool exportable_memory(uint64_t handle, int* fd, uint64_t* offset, uint64_t* bytes);
// A handle for memory in a file of another process, which is given away. It is charged to no device
// here.
uint64_t adopt_memory(int device, int fd, uint64_t offset, uint64_t bytes);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_MEMORY_VIRTUAL_H_
