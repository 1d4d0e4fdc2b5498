#include <cstdio>

#include "api/support.h"
#include "core/config.h"
#include "device/limits.h"
#include "device/memory_pool.h"
#include "graph/capture.h"

namespace api = softgpu::api;
using softgpu::Device;

namespace {

// Limits are stored and told back. Stack and heap size are obeyed, the heap's until its first use.
size_t& limit_slot(cudaLimit limit) {
  static size_t slots[16] = {1024, 1 << 20, 8 << 20, 2, 2048, 128};
  return slots[static_cast<unsigned>(limit) % 16];
}

bool valid_device(int device) {
  return device >= 0 && device < softgpu::device_count();
}

}  // namespace

SOFTGPU_API cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return api::record(cudaErrorInvalidValue);
  *count = 0;
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  *count = softgpu::device_count();
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  *device = softgpu::thread_device().index;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  softgpu::thread_device() = {device, true};
  api::current_device();
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  softgpu::device(device).activate();
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceSynchronize() {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020);
  return api::record(api::with_device([](Device& d) {
    const cudaError_t bad = softgpu::check_device_wait(d.index());
    if (bad != cudaSuccess) return bad;
    if (const cudaError_t unsafe = softgpu::check_unsafe_call(); unsafe != cudaSuccess) {
      return unsafe;
    }
    d.scheduler().wait_device();
    softgpu::pools_after_wait(d.index());
    return d.sticky();
  }));
}

SOFTGPU_API cudaError_t cudaDeviceReset() {
  return cudaDeviceSynchronize();
}

SOFTGPU_API cudaError_t cudaSetDeviceFlags(unsigned) {
  return api::record(api::usable());
}

SOFTGPU_API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = cudaDeviceScheduleAuto | cudaDeviceMapHost;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaSetValidDevices(int*, int) {
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = 0;
  return api::record(api::usable());
}

SOFTGPU_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  if (!value) return api::record(cudaErrorInvalidValue);
  *value = limit_slot(limit);
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  limit_slot(limit) = value;
  if (limit == cudaLimitStackSize) softgpu::limits().stack_bytes = value;
  if (limit == cudaLimitMallocHeapSize) softgpu::limits().heap_bytes = value;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaCtxResetPersistingL2Cache() {
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!id || length < 13) return api::record(cudaErrorInvalidValue);
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  unsigned bus = 0;
  const bool parsed = id && std::sscanf(id, "%*x:%x:", &bus) == 1;
  if (!parsed || !valid_device(static_cast<int>(bus) - 1)) {
    return api::record(cudaErrorInvalidDevice);
  }
  *device = static_cast<int>(bus) - 1;
  return cudaSuccess;
}

// All devices share one address space: peers always reach each other.
SOFTGPU_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!valid_device(device) || !valid_device(peer)) return api::record(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return api::record(valid_device(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}

SOFTGPU_API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api::record(valid_device(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}

SOFTGPU_API cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int a, int b) {
  if (!valid_device(a) || !valid_device(b)) return api::record(cudaErrorInvalidDevice);
  *value = 0;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
SOFTGPU_API cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}
