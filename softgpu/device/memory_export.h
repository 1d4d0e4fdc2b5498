// Memory of handles for other processes, as a file descriptor.
//
// All memory of a device lies in one file, so the descriptor cannot be that file's: it is a small
// file of its own that says where the memory lies, and a process that has it opens the other one
// through /proc, which lets only the same user do so. What differs from a real GPU: the memory goes
// with its process, and to others that have mapped it, it is zeros, or the next allocation, when it
// has been released.
#ifndef SOFTGPU_DEVICE_MEMORY_EXPORT_H_
#define SOFTGPU_DEVICE_MEMORY_EXPORT_H_

#include <driver_types.h>

#include <cstdint>

namespace softgpu {

// Both thread-safe. The descriptor is the caller's; it stays so in an import.
cudaError_t export_handle(uint64_t handle, int* fd);
cudaError_t import_handle(int device, int fd, uint64_t* handle);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_MEMORY_EXPORT_H_
