#include <optional>

#include "api/runtime/memory_calls.h"
#include "api/support.h"
#include "device/memory_pool.h"
#include "graph/capture.h"
#include "graph/graph_memory.h"
#include "memory/memory_host.h"
#include "memory/pointers.h"

namespace api = softgpu::api;
using softgpu::Device;

namespace softgpu::api {

namespace {

void wait_for_all_devices() {
  for (int i = 0; i < device_count(); ++i) device(i).scheduler().wait_device();
}

// Memory that was allocated in stream order, freed at once: nothing is under way any more.
std::optional<cudaError_t> free_ordered(uint64_t address) {
  if (const auto pool = pool_of(address)) {
    const cudaError_t bad = pool->free(device(pool->device).legacy_stream(), address);
    pool->after_wait();
    return bad;
  }
  const auto memory = find_graph_memory(address);
  if (!memory) return std::nullopt;
  if (!graph_memory_live(address)) return cudaErrorInvalidValue;
  set_graph_memory_live(memory, false);
  return cudaSuccess;
}

}  // namespace

// Frees device memory after everything queued on its device: queued work may still use it.
cudaError_t free_device(uint64_t address) {
  const auto info = pointers().find(address);
  if (!info || info->kind != PointerKind::kDevice || info->base != address) {
    return cudaErrorInvalidValue;
  }
  if (const cudaError_t bad = check_unsafe_call(); bad != cudaSuccess) return bad;
  Device& owner = device(info->device);
  owner.scheduler().wait_device();
  if (const cudaError_t dead = owner.sticky(); dead != cudaSuccess) return dead;
  if (const auto done = free_ordered(address)) return *done;
  return owner.memory().release(address);
}

cudaError_t free_pinned(uint64_t address) {
  if (const cudaError_t bad = check_unsafe_call(); bad != cudaSuccess) return bad;
  wait_for_all_devices();
  return release_pinned(address);
}

}  // namespace softgpu::api

SOFTGPU_API cudaError_t cudaMalloc(void** out, size_t bytes) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020);
  return api::record(api::with_device([&](Device& d) {
    if (!out) return cudaErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (const cudaError_t bad = softgpu::check_unsafe_call(); bad != cudaSuccess) return bad;
    uint64_t address = 0;
    const cudaError_t status = d.memory().allocate(bytes, &address);
    if (status == cudaSuccess) *out = api::pointer(address);
    return status;
  }));
}

SOFTGPU_API cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  if (!pitch) return api::record(cudaErrorInvalidValue);
  *pitch = softgpu::round_up(width, softgpu::kSmallUnit);
  return cudaMalloc(out, *pitch * height);
}

SOFTGPU_API cudaError_t cudaFree(void* address) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020);
  return api::record(api::with_device(
      [&](Device&) { return address ? api::free_device(api::number(address)) : cudaSuccess; }));
}

SOFTGPU_API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return api::record(api::with_device([&](Device& d) {
    d.memory().info(free_bytes, total_bytes);
    return cudaSuccess;
  }));
}

SOFTGPU_API cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020);
  return api::record(api::with_device([&](Device& d) {
    if (!out) return cudaErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (const cudaError_t bad = softgpu::check_unsafe_call(); bad != cudaSuccess) return bad;
    uint64_t address = 0;
    const cudaError_t status = softgpu::allocate_pinned(bytes, flags, d.index(), &address);
    if (status == cudaSuccess) *out = api::pointer(address);
    return status;
  }));
}

SOFTGPU_API cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return cudaHostAlloc(out, bytes, 0);
}

SOFTGPU_API cudaError_t cudaFreeHost(void* address) {
  return api::record(api::with_device(
      [&](Device&) { return address ? api::free_pinned(api::number(address)) : cudaSuccess; }));
}

SOFTGPU_API cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  return api::record(api::with_device([&](Device& d) {
    return softgpu::register_host(api::number(address), bytes, flags, d.index());
  }));
}

SOFTGPU_API cudaError_t cudaHostUnregister(void* address) {
  return api::record(api::with_device([&](Device&) {
    if (const cudaError_t bad = softgpu::check_unsafe_call(); bad != cudaSuccess) return bad;
    api::wait_for_all_devices();
    return softgpu::unregister_host(api::number(address));
  }));
}

SOFTGPU_API cudaError_t cudaHostGetDevicePointer(void** out, void* host, unsigned) {
  const auto info = softgpu::pointers().find(api::number(host));
  if (!out || !info || !info->is_host()) return api::record(cudaErrorInvalidValue);
  *out = host;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  const auto info = softgpu::pointers().find(api::number(host));
  if (!flags || !info || !info->is_host()) return api::record(cudaErrorInvalidValue);
  *flags = info->flags;
  return cudaSuccess;
}

// Memory CUDA does not know is a success with type 0, which is_pinned relies on.
SOFTGPU_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  if (!out) return api::record(cudaErrorInvalidValue);
  // Field by field: what CUDA 13 has behind these four is not there in a CUDA 12 program.
  out->type = cudaMemoryTypeUnregistered;
  out->device = -1;
  out->devicePointer = nullptr;
  out->hostPointer = const_cast<void*>(address);
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  const auto info = softgpu::pointers().find(api::number(address));
  if (!info) return cudaSuccess;
  out->type = info->is_host() ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  out->device = info->device;
  out->devicePointer = const_cast<void*>(address);
  out->hostPointer = info->is_host() ? const_cast<void*>(address) : nullptr;
  return cudaSuccess;
}

SOFTGPU_API CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return api::driver_call([&](Device& d) {
    d.memory().info(free_bytes, total_bytes);
    return cudaSuccess;
  });
}

SOFTGPU_API CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_call([&](Device& d) {
    const cudaError_t bad = softgpu::check_unsafe_call();
    if (bad != cudaSuccess) return bad;
    return d.memory().allocate(bytes, reinterpret_cast<uint64_t*>(out));
  });
}

SOFTGPU_API CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width,
                                        size_t height, unsigned) {
  *pitch = softgpu::round_up(width, softgpu::kSmallUnit);
  return cuMemAlloc_v2(out, *pitch * height);
}

SOFTGPU_API CUresult cuMemFree_v2(CUdeviceptr address) {
  return api::driver_call([&](Device&) { return api::free_device(address); });
}

SOFTGPU_API CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return api::driver_result(cudaHostAlloc(out, bytes, flags));
}

SOFTGPU_API CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return api::driver_result(cudaHostAlloc(out, bytes, 0));
}

SOFTGPU_API CUresult cuMemFreeHost(void* address) {
  return api::driver_call([&](Device&) { return api::free_pinned(api::number(address)); });
}

SOFTGPU_API CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  return api::driver_call([&](Device& d) {
    return softgpu::register_host(api::number(address), bytes, flags, d.index());
  });
}

SOFTGPU_API CUresult cuMemHostUnregister(void* address) {
  return api::driver_result(cudaHostUnregister(address));
}

SOFTGPU_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* host, unsigned flags) {
  return api::driver_result(cudaHostGetDevicePointer(reinterpret_cast<void**>(out), host, flags));
}

SOFTGPU_API CUresult cuMemHostGetFlags(unsigned* flags, void* host) {
  return api::driver_result(cudaHostGetFlags(flags, host));
}

SOFTGPU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  const auto info = softgpu::pointers().find(address);
  if (!info) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = info->base;
  if (size) *size = info->size;
  return CUDA_SUCCESS;
}
