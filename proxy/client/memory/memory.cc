#include "client/memory/memory.h"

#include "api/commands.h"
#include "client/device/capture.h"

namespace pyft::client {

// The address is ours to choose; whether there is memory behind it only the server knows, so the
// call waits for its code whenever a new granule must be mapped.
cudaError_t allocate(size_t bytes, uint64_t* address) {
  *address = 0;
  cudaError_t error = check_unsafe_call();
  if (error != cudaSuccess) return error;
  Device* device = attached(&error);
  if (!device) return error;
  if (bytes == 0) return cudaSuccess;
  const std::lock_guard lock(device->memory_mutex);
  Region map;
  const uint64_t found = device->memory.allocate(bytes, &map);
  if (!found) return cudaErrorMemoryAllocation;
  if (map.bytes) {
    error = device->confirm(Call::cudaMalloc, cmd::cudaMalloc{map.address, map.bytes});
    if (error != cudaSuccess) {
      device->memory.cancel(found);
      return error;
    }
  }
  device->writer().alloc_mark(found, bytes);
  *address = found;
  return cudaSuccess;
}

cudaError_t release(uint64_t address) {
  if (address == 0) return usable();
  Device* device = device_of_address(address);
  if (!device) return usable() != cudaSuccess ? usable() : cudaErrorInvalidValue;
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  if (const cudaError_t error = device->synchronize_all(); error != cudaSuccess) return error;
  const std::lock_guard lock(device->memory_mutex);
  Region unmap;
  uint64_t bytes = 0;
  if (!device->memory.release(address, &unmap, &bytes)) return cudaErrorInvalidValue;
  device->pooled.erase(address);
  device->writer().free_mark(address, bytes);
  if (!unmap.bytes) return cudaSuccess;
  return device->confirm(Call::cudaFree, cmd::cudaFree{unmap.address, unmap.bytes});
}

cudaError_t allocate_pinned(size_t bytes, unsigned flags, void** out) {
  if (!out) return cudaErrorInvalidValue;
  *out = nullptr;
  cudaError_t error = check_unsafe_call();
  if (error != cudaSuccess) return error;
  Device* device = attached(&error);
  if (!device) return error;
  if (bytes == 0) return cudaSuccess;
  const std::lock_guard lock(device->memory_mutex);
  Region map;
  const uint64_t address = device->pinned.allocate(bytes, &map);
  if (!address) {
    device->watch_pinned(bytes);
    return cudaErrorMemoryAllocation;
  }
  const uint64_t offset = address - reinterpret_cast<uint64_t>(device->channel().pinned());
  if (device->channel().back_pinned(offset, map.bytes) != 0)
    error = cudaErrorMemoryAllocation;
  else
    error = device->confirm(Call::cudaHostAlloc, cmd::cudaHostAlloc{address, map.bytes, flags, 0});
  if (error != cudaSuccess) {
    device->channel().release_pinned(offset, map.bytes);
    device->pinned.cancel(address);
    return error;
  }
  device->pinned_used += map.bytes;
  device->watch_pinned(0);
  // What is known to be in no log need not be looked for.
  device->watches_pinned.store(!device->channel().log().unreplayable_from.load());
  *out = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t release_pinned(void* pointer) {
  if (!pointer) return cudaSuccess;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Device* device = device_of_pinned(address, 1);
  if (!device) return cudaErrorInvalidValue;
  if (const cudaError_t error = device->synchronize_all(); error != cudaSuccess) return error;
  const std::lock_guard lock(device->memory_mutex);
  Region unmap;
  uint64_t bytes = 0;
  if (!device->pinned.release(address, &unmap, &bytes)) return cudaErrorInvalidValue;
  const cudaError_t error =
      device->confirm(Call::cudaFreeHost, cmd::cudaFreeHost{unmap.address, unmap.bytes});
  device->pinned_used -= unmap.bytes;
  device->channel().release_pinned(
      unmap.address - reinterpret_cast<uint64_t>(device->channel().pinned()), unmap.bytes);
  return error;
}

cudaError_t memory_info(size_t* free, size_t* total) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  Reply reply;
  const cmd::cudaMemGetInfo body{};
  error = device->call(static_cast<uint16_t>(Call::cudaMemGetInfo), bytes_of(body), &reply);
  if (error != cudaSuccess) return error;
  if (free) *free = reply.values[0];
  if (total) *total = reply.values[1];
  return static_cast<cudaError_t>(reply.code);
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaMalloc(void** devPtr, size_t size) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020);
  const Entered entered(Api::cudaMalloc);
  if (!devPtr) return done(cudaErrorInvalidValue);
  return done(allocate(size, reinterpret_cast<uint64_t*>(devPtr)));
}

PYFT_API cudaError_t cudaFree(void* devPtr) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020);
  const Entered entered(Api::cudaFree);
  return done(release(reinterpret_cast<uint64_t>(devPtr)));
}

PYFT_API cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020);
  const Entered entered(Api::cudaMallocAsync);
  if (!devPtr) return done(cudaErrorInvalidValue);
  auto* const address = reinterpret_cast<uint64_t*>(devPtr);
  const cudaError_t error = allocate(size, address);
  if (Device* device = *address ? device_of_address(*address) : nullptr) {
    const std::lock_guard lock(device->memory_mutex);
    device->pooled.insert(*address);
  }
  return done(error);
}

PYFT_API cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_v11020);
  const Entered entered(Api::cudaFreeAsync);
  return done(release(reinterpret_cast<uint64_t>(devPtr)));
}

PYFT_API cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020);
  const Entered entered(Api::cudaHostAlloc);
  return done(allocate_pinned(size, flags, pHost));
}

PYFT_API cudaError_t cudaMallocHost(void** ptr, size_t size) {
  const Entered entered(Api::cudaMallocHost);
  return done(allocate_pinned(size, 0, ptr));
}

PYFT_API cudaError_t cudaFreeHost(void* ptr) {
  const Entered entered(Api::cudaFreeHost);
  return done(release_pinned(ptr));
}

PYFT_API CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  const Entered entered(Api::cuMemAlloc_v2);
  if (!dptr || !bytesize) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const cudaError_t error = allocate(bytesize, &address);
  *dptr = address;
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuMemFree_v2(CUdeviceptr dptr) {
  const Entered entered(Api::cuMemFree_v2);
  return static_cast<CUresult>(release(dptr));
}

PYFT_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Entered entered(Api::cuMemGetInfo_v2);
  return static_cast<CUresult>(memory_info(free, total));
}

PYFT_API CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  const Entered entered(Api::cuMemAllocHost_v2);
  return static_cast<CUresult>(allocate_pinned(bytesize, 0, pp));
}

PYFT_API CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  const Entered entered(Api::cuMemHostAlloc);
  return static_cast<CUresult>(allocate_pinned(bytesize, Flags, pp));
}

PYFT_API CUresult cuMemFreeHost(void* p) {
  const Entered entered(Api::cuMemFreeHost);
  return static_cast<CUresult>(release_pinned(p));
}
