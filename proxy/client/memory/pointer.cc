// Questions about addresses: both windows are the client's own, so it can answer.
#include "client/device/device.h"
#include "client/memory/host_register.h"
#include "client/memory/virtual_memory.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

struct Found {
  Device* device = nullptr;
  bool host = false;
  bool reachable = true;  // by the device
  uint64_t start = 0, bytes = 0;
};

Found find_in_program(uint64_t address) {
  Registered range;
  if (!find_registered(address, &range)) return {};
  return {range.device, true, false, range.start, range.bytes};
}

Found find(uint64_t address) {
  Found found;
  found.device = device_of_address(address);
  if (!found.device) {
    found.device = device_of_pinned(address, 1);
    found.host = true;
  }
  if (!found.device) return find_in_program(address);
  Mapped range;
  if (!found.host && find_reserved(address, &range)) {
    if (!range.accessible) return {};
    found.start = range.start;
    found.bytes = range.bytes;
    return found;
  }
  const std::lock_guard lock(found.device->memory_mutex);
  const Window& window = found.host ? found.device->pinned : found.device->memory;
  // Module globals lie outside our allocations but inside the window: still device memory.
  if (!window.find(address, &found.start, &found.bytes) && found.host) return {};
  return found;
}

cudaError_t device_pointer(void* host, void** out) {
  if (!out) return cudaErrorInvalidValue;
  const auto address = reinterpret_cast<uint64_t>(host);
  Registered range;
  if (find_registered(address, &range)) return no_device_pointer();
  if (!device_of_pinned(address, 1)) return cudaErrorInvalidValue;
  *out = host;
  return cudaSuccess;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, const Found& found,
                           CUdeviceptr ptr) {
  const auto set = [data](auto value) {
    *static_cast<decltype(value)*>(data) = value;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return set(static_cast<unsigned>(found.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!found.reachable) return static_cast<CUresult>(no_device_pointer());
      return set(ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!found.host) return CUDA_ERROR_INVALID_VALUE;
      return set(reinterpret_cast<void*>(ptr));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return set(found.device->ordinal());
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return set(0u);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return set(found.reachable ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return set(CUdeviceptr{found.start});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return set(size_t{found.bytes});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return set(static_cast<unsigned long long>(found.start));
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

PYFT_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes,
                                              const void* ptr) {
  const Entered entered(Api::cudaPointerGetAttributes);
  if (!attributes) return done(cudaErrorInvalidValue);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  *attributes = {};
  attributes->device = -2;
  const Found found = find(reinterpret_cast<uint64_t>(ptr));
  if (!found.device) {
    attributes->hostPointer = const_cast<void*>(ptr);
    return cudaSuccess;
  }
  attributes->type = found.host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = found.device->ordinal();
  attributes->devicePointer = found.reachable ? const_cast<void*>(ptr) : nullptr;
  attributes->hostPointer = found.host ? const_cast<void*>(ptr) : nullptr;
  return cudaSuccess;
}

PYFT_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                        CUdeviceptr ptr) {
  const Entered entered(Api::cuPointerGetAttribute);
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t error = usable(); error != cudaSuccess) return static_cast<CUresult>(error);
  const Found found = find(ptr);
  if (!found.device) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(data, attribute, found, ptr);
}

PYFT_API CUresult cuPointerGetAttributes(unsigned int numAttributes,
                                         CUpointer_attribute* attributes, void** data,
                                         CUdeviceptr ptr) {
  const Entered entered(Api::cuPointerGetAttributes);
  if (!attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  const Found found = find(ptr);
  for (unsigned i = 0; i < numAttributes; ++i)
    if (found.device) pointer_attribute(data[i], attributes[i], found, ptr);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const Entered entered(Api::cuMemGetAddressRange_v2);
  const Found found = find(dptr);
  if (!found.device || !found.bytes) return CUDA_ERROR_NOT_FOUND;
  if (pbase) *pbase = found.start;
  if (psize) *psize = found.bytes;
  return CUDA_SUCCESS;
}

PYFT_API cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  const Entered entered(Api::cudaHostGetDevicePointer);
  return done(device_pointer(pHost, pDevice));
}

PYFT_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  const Entered entered(Api::cuMemHostGetDevicePointer_v2);
  return static_cast<CUresult>(device_pointer(p, reinterpret_cast<void**>(pdptr)));
}

PYFT_API cudaError_t cudaHostGetFlags(unsigned int* pFlags, void* pHost) {
  const Entered entered(Api::cudaHostGetFlags);
  if (!pFlags) return done(cudaErrorInvalidValue);
  Registered range;
  if (device_of_pinned(reinterpret_cast<uint64_t>(pHost), 1))
    *pFlags = cudaHostAllocMapped | cudaHostAllocPortable;
  else if (find_registered(reinterpret_cast<uint64_t>(pHost), &range))
    *pFlags = range.flags;
  else
    return done(cudaErrorInvalidValue);
  return cudaSuccess;
}

// ---- memory pools: one dummy per device ------------------------------------------------------

PYFT_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  const Entered entered(Api::cudaDeviceGetDefaultMemPool);
  if (!memPool || device < 0 || device >= static_cast<int>(process().devices.size()))
    return done(cudaErrorInvalidValue);
  const uint32_t index = static_cast<uint32_t>(device) + 1;
  *memPool = reinterpret_cast<cudaMemPool_t>(Handle::make(HandleKind::kMemPool, index, 1).value);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                             void* value) {
  const Entered entered(Api::cudaMemPoolGetAttribute);
  if (!value) return done(cudaErrorInvalidValue);
  *static_cast<uint32_t*>(value) = 0;
  if (attr >= cudaMemPoolAttrReleaseThreshold) *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                             void* value) {
  const Entered entered(Api::cudaMemPoolSetAttribute);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
  const Entered entered(Api::cudaMemPoolTrimTo);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool,
                                          const struct cudaMemAccessDesc* descList, size_t count) {
  const Entered entered(Api::cudaMemPoolSetAccess);
  return cudaSuccess;
}
