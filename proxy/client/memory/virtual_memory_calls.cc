// The driver calls of virtual memory.
#include "client/memory/virtual_memory.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                      CUdeviceptr addr, unsigned long long flags) {
  const Entered entered(Api::cuMemAddressReserve);
  return reserve_addresses(size, alignment, addr, flags, ptr);
}

PYFT_API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  const Entered entered(Api::cuMemAddressFree);
  return free_addresses(ptr, size);
}

PYFT_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                              const CUmemAllocationProp* prop, unsigned long long flags) {
  const Entered entered(Api::cuMemCreate);
  return create_memory(size, prop, flags, handle);
}

PYFT_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Entered entered(Api::cuMemRelease);
  return release_memory(handle);
}

PYFT_API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Entered entered(Api::cuMemMap);
  return map_memory(ptr, size, offset, handle, flags);
}

PYFT_API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const Entered entered(Api::cuMemUnmap);
  return unmap_memory(ptr, size);
}

PYFT_API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                 size_t count) {
  const Entered entered(Api::cuMemSetAccess);
  return set_access(ptr, size, desc, count);
}

PYFT_API CUresult cuMemGetAllocationGranularity(size_t* granularity,
                                                const CUmemAllocationProp* prop,
                                                CUmemAllocationGranularity_flags option) {
  const Entered entered(Api::cuMemGetAllocationGranularity);
  if (!granularity || !prop) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_properties(*prop)) return bad;
  *granularity = ring::kGranule;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const Entered entered(Api::cuMemRetainAllocationHandle);
  return retain_memory(reinterpret_cast<uint64_t>(addr), handle);
}

PYFT_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                         CUmemGenericAllocationHandle handle) {
  const Entered entered(Api::cuMemGetAllocationPropertiesFromHandle);
  return memory_properties(handle, prop);
}
