// malloc and free of kernels: first fit in a piece of device memory. Blocks and their state lie in
// that memory itself, so that allocations live on from launch to launch.
#ifndef SOFTGPU_EXEC_HEAP_H_
#define SOFTGPU_EXEC_HEAP_H_

#include "core/kernel.h"

namespace softgpu::exec {

// 16-byte aligned; 0 when the heap has no room.
uint64_t heap_allocate(const DeviceHeap& heap, uint64_t bytes);
// False if heap_allocate has not given this address, or it has been freed.
bool heap_free(const DeviceHeap& heap, uint64_t address);

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_HEAP_H_
