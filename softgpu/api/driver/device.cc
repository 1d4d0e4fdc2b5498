#include <utility>
#include <vector>

#include "api/support.h"
#include "core/config.h"
#include "memory/pointers.h"

namespace api = softgpu::api;
using softgpu::Device;

namespace {

// One context per device, the primary one; a context handle is the device's address.
CUcontext context_of(int index) {
  return reinterpret_cast<CUcontext>(&softgpu::device(index));
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < softgpu::device_count();
}

int device_of(CUcontext context) {
  for (int i = 0; i < softgpu::device_count(); ++i) {
    if (context_of(i) == context) return i;
  }
  return -1;
}

CUcontext current_context() {
  const auto& current = softgpu::thread_device();
  return current.bound ? context_of(current.index) : nullptr;
}

CUresult make_current(CUcontext context) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  if (!context) {
    softgpu::thread_device().bound = false;
    return CUDA_SUCCESS;
  }
  const int index = device_of(context);
  if (index < 0) return CUDA_ERROR_INVALID_CONTEXT;
  softgpu::thread_device() = {index, true};
  softgpu::device(index).activate();
  return CUDA_SUCCESS;
}

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

}  // namespace

SOFTGPU_API CUresult cuInit(unsigned) {
  return api::driver_result(api::usable());
}

SOFTGPU_API CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = api::error_text(error);
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : api::error_name(error);
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  if (!valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetCount(int* count) {
  *count = softgpu::forked() ? 0 : softgpu::device_count();
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = softgpu::config().memory_bytes;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice dev) {
  return api::driver_result(cudaDeviceGetPCIBusId(id, length, dev));
}

SOFTGPU_API CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* id) {
  return api::driver_result(cudaDeviceGetByPCIBusId(dev, id));
}

SOFTGPU_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  return api::driver_result(cudaDeviceCanAccessPeer(can, dev, peer));
}

SOFTGPU_API CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  softgpu::device(dev).activate();
  *out = context_of(dev);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
SOFTGPU_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) {
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = softgpu::device(dev).active();
  return CUDA_SUCCESS;
}

// A program that makes contexts of its own gets the primary one: the device has no other.
SOFTGPU_API CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned, CUdevice dev) {
  const CUresult status = cuDevicePrimaryCtxRetain(out, dev);
  return status == CUDA_SUCCESS ? cuCtxPushCurrent_v2(*out) : status;
}

SOFTGPU_API CUresult cuCtxDestroy_v2(CUcontext context) {
  if (device_of(context) < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_context() == context) softgpu::thread_device().bound = false;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxGetCurrent(CUcontext* out) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::driver_result(bad);
  *out = current_context();
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSetCurrent(CUcontext context) {
  return make_current(context);
}

SOFTGPU_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const CUcontext before = current_context();
  const CUresult status = make_current(context);
  if (status == CUDA_SUCCESS) context_stack().push_back(before);
  return status;
}

SOFTGPU_API CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  if (out) *out = current_context();
  if (context_stack().empty()) {
    softgpu::thread_device().bound = false;
    return CUDA_SUCCESS;
  }
  const CUcontext before = context_stack().back();
  context_stack().pop_back();
  return make_current(before);
}

SOFTGPU_API CUresult cuCtxGetDevice(CUdevice* dev) {
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *dev = softgpu::thread_device().index;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxGetDevice_v2(CUdevice* dev, CUcontext context) {
  if (!context) return cuCtxGetDevice(dev);
  for (int index = 0; index < softgpu::device_count(); ++index) {
    if (context_of(index) != context) continue;
    *dev = index;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSetFlags(unsigned) {
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxSynchronize() {
  return api::driver_result(cudaDeviceSynchronize());
}

SOFTGPU_API CUresult cuCtxSynchronize_v2(CUcontext context) {
  CUdevice wanted = 0;
  const CUresult bad = cuCtxGetDevice_v2(&wanted, context);
  if (bad != CUDA_SUCCESS) return bad;
  const int before = std::exchange(softgpu::thread_device().index, wanted);
  const cudaError_t result = cudaDeviceSynchronize();
  softgpu::thread_device().index = before;
  return api::driver_result(result);
}

SOFTGPU_API CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return api::driver_result(cudaDeviceGetLimit(value, static_cast<cudaLimit>(limit)));
}

SOFTGPU_API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return api::driver_result(cudaDeviceSetLimit(static_cast<cudaLimit>(limit), value));
}

SOFTGPU_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return api::driver_result(cudaDeviceGetStreamPriorityRange(least, greatest));
}

SOFTGPU_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return device_of(peer) < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return device_of(peer) < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                           CUdeviceptr address) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const auto info = softgpu::pointers().find(address);
  if (!info) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = context_of(info->device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = info->is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(data) =
          attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? address : info->base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!info->is_host()) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = api::pointer(address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<size_t*>(data) = info->size;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = info->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = info->base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(data) = 1;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned*>(data) = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

SOFTGPU_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                                            void** data, CUdeviceptr address) {
  for (unsigned i = 0; i < count; ++i) {
    cuPointerGetAttribute(data[i], attributes[i], address);
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) {
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* out) {
  CUdevice index = 0;
  const CUresult status = cuStreamGetDevice(stream, &index);
  if (status == CUDA_SUCCESS) *out = context_of(index);
  return status;
}

// There are no green contexts.
SOFTGPU_API CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* out, CUgreenCtx* green) {
  const CUresult status = cuStreamGetCtx(stream, out);
  if (status == CUDA_SUCCESS && green) *green = nullptr;
  return status;
}
