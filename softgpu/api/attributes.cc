// What a program can ask about the device: a Turing card as far as limits decide what code does.
#include <cstdio>
#include <cstring>

#include "api/support.h"
#include "core/config.h"
#include "work/launch.h"

namespace softgpu::api {
namespace {

struct Attribute {
  int id, value;
};

constexpr int kMax2D = 131072;

// Everything not listed is 0: absent, unsupported or unlimited in no way that code relies on.
constexpr Attribute kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, kSharedPerBlock},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxPitch, 0x7fffffff},
    {cudaDevAttrMaxRegistersPerBlock, kRegistersPerSm},
    {cudaDevAttrClockRate, 1500000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrMaxTexture1DWidth, kMax2D},
    {cudaDevAttrMaxTexture2DWidth, kMax2D},
    {cudaDevAttrMaxTexture2DHeight, 65536},
    {cudaDevAttrSurfaceAlignment, 512},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrMemoryClockRate, 5000000},
    {cudaDevAttrGlobalMemoryBusWidth, 256},
    {cudaDevAttrL2CacheSize, 4 << 20},
    {cudaDevAttrMaxThreadsPerMultiProcessor, kThreadsPerSm},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrTexturePitchAlignment, 32},
    {cudaDevAttrComputeCapabilityMajor, 7},
    {cudaDevAttrComputeCapabilityMinor, 5},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrGlobalL1CacheSupported, 1},
    {cudaDevAttrLocalL1CacheSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kSharedPerSm},
    {cudaDevAttrMaxRegistersPerMultiprocessor, kRegistersPerSm},
    {cudaDevAttrSingleToDoublePrecisionPerfRatio, 32},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedPerBlockOptin},
    {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksPerSm},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0},
};

void fill_uuid(int device, cudaUUID_t* uuid) {
  std::memcpy(uuid->bytes, "softgpu sm_75 0", 15);
  uuid->bytes[15] = static_cast<char>(device);
}

}  // namespace

cudaError_t device_attribute(int attribute, int device, int* value) {
  if (!value) return cudaErrorInvalidValue;
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  *value = 0;
  if (attribute <= 0 || attribute >= cudaDevAttrMax + 64) return cudaErrorInvalidValue;
  if (attribute == cudaDevAttrMultiProcessorCount) *value = config().sms;
  if (attribute == cudaDevAttrPciBusId) *value = device + 1;
  for (const Attribute& a : kAttributes) {
    if (a.id == attribute) *value = a.value;
  }
  return cudaSuccess;
}

void device_properties(int device, cudaDeviceProp* prop) {
  const auto get = [device](cudaDeviceAttr attribute) {
    int value = 0;
    device_attribute(attribute, device, &value);
    return value;
  };
  *prop = cudaDeviceProp{};
  std::snprintf(prop->name, sizeof prop->name, "Soft GPU (sm_75)");
  fill_uuid(device, &prop->uuid);
  prop->totalGlobalMem = config().memory_bytes;
  prop->sharedMemPerBlock = kSharedPerBlock;
  prop->sharedMemPerBlockOptin = kSharedPerBlockOptin;
  prop->sharedMemPerMultiprocessor = kSharedPerSm;
  prop->regsPerBlock = prop->regsPerMultiprocessor = kRegistersPerSm;
  prop->warpSize = 32;
  prop->memPitch = 0x7fffffff;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 0x7fffffff;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->totalConstMem = 65536;
  prop->major = 7;
  prop->minor = 5;
  prop->textureAlignment = prop->surfaceAlignment = 512;
  prop->texturePitchAlignment = 32;
  prop->multiProcessorCount = config().sms;
  prop->canMapHostMemory = 1;
  prop->concurrentKernels = 1;
  prop->pciBusID = get(cudaDevAttrPciBusId);
  prop->asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
  prop->unifiedAddressing = 1;
  prop->memoryBusWidth = get(cudaDevAttrGlobalMemoryBusWidth);
  prop->l2CacheSize = get(cudaDevAttrL2CacheSize);
  prop->maxThreadsPerMultiProcessor = kThreadsPerSm;
  prop->maxBlocksPerMultiProcessor = kBlocksPerSm;
  prop->streamPrioritiesSupported = 1;
  prop->globalL1CacheSupported = prop->localL1CacheSupported = 1;
  prop->canUseHostPointerForRegisteredMem = 1;
  prop->cooperativeLaunch = 1;
  prop->hostRegisterSupported = 1;
}

}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return api::record(bad);
  if (!prop) return api::record(cudaErrorInvalidValue);
  if (device < 0 || device >= softgpu::device_count()) return api::record(cudaErrorInvalidDevice);
  api::device_properties(device, prop);
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api::record(api::device_attribute(attribute, device, value));
}

SOFTGPU_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) {
  return api::driver_result(api::device_attribute(attribute, dev, value));
}

SOFTGPU_API CUresult cuDeviceGetName(char* name, int length, CUdevice dev) {
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (dev < 0 || dev >= softgpu::device_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "Soft GPU (sm_75)");
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (dev < 0 || dev >= softgpu::device_count()) return CUDA_ERROR_INVALID_DEVICE;
  api::fill_uuid(dev, uuid);
  return CUDA_SUCCESS;
}
