// The driver's virtual memory calls.
#include "api/support.h"
#include "device/memory_export.h"
#include "device/memory_virtual.h"

namespace api = softgpu::api;
using softgpu::Device;

namespace {

// Queued work may use a range that is about to go away.
void wait_for_all_devices() {
  for (int i = 0; i < softgpu::device_count(); ++i) softgpu::device(i).scheduler().wait_device();
}

bool names_device(const CUmemAllocationProp* prop) {
  return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
         prop->location.id < softgpu::device_count();
}

}  // namespace

SOFTGPU_API CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment,
                                         CUdeviceptr wanted, unsigned long long) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  uint64_t address = 0;
  const cudaError_t status = softgpu::reserve_addresses(bytes, alignment, wanted, &address);
  *out = address;
  return api::driver_result(status);
}

SOFTGPU_API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return api::driver_result(softgpu::free_addresses(address, bytes));
}

SOFTGPU_API CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                                 const CUmemAllocationProp* prop, unsigned long long) {
  if (!out || !names_device(prop)) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_call([&](Device&) {
    uint64_t handle = 0;
    const bool exportable = prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const cudaError_t status =
        softgpu::create_memory(prop->location.id, bytes, exportable, &handle);
    *out = handle;
    return status;
  });
}

SOFTGPU_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return api::driver_result(softgpu::release_memory(handle));
}

SOFTGPU_API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long) {
  return api::driver_call(
      [&](Device&) { return softgpu::map_memory(address, bytes, offset, handle); });
}

SOFTGPU_API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  wait_for_all_devices();
  return api::driver_result(softgpu::unmap_memory(address, bytes));
}

// All devices reach what one of them reaches, so any grant of access is access.
SOFTGPU_API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list,
                                    size_t count) {
  if (!list || !count) return CUDA_ERROR_INVALID_VALUE;
  unsigned flags = 0;
  for (size_t i = 0; i < count; ++i) flags |= list[i].flags;
  return api::driver_result(softgpu::set_access(address, bytes,
                                                flags & CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                                flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

SOFTGPU_API CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*,
                                                   CUmemAllocationGranularity_flags) {
  *out = softgpu::kGranule;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  uint64_t handle = 0;
  const cudaError_t status = softgpu::retain_memory(api::number(address), &handle);
  *out = handle;
  return api::driver_result(status);
}

SOFTGPU_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                            CUmemGenericAllocationHandle handle) {
  int index = 0;
  bool exportable = false;
  const cudaError_t status = softgpu::memory_device(handle, &index, &exportable);
  if (status != cudaSuccess) return api::driver_result(status);
  *prop = CUmemAllocationProp{};
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop->location.id = index;
  if (exportable) prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags) {
  if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  return api::driver_result(softgpu::export_handle(handle, static_cast<int*>(out)));
}

SOFTGPU_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out,
                                                    void* os_handle,
                                                    CUmemAllocationHandleType type) {
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_call([&](Device& d) {
    uint64_t handle = 0;
    const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
    const cudaError_t status = softgpu::import_handle(d.index(), fd, &handle);
    *out = handle;
    return status;
  });
}
