// What programs ask about devices, by CUDA's names: most of it is answered from facts that cannot
// change (properties.h).
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "api/commands.h"
#include "client/device/stream.h"
#include "client/queries/properties.h"
#include "pyft/settings.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

constexpr int kCudaVersion = CUDART_VERSION;

cudaError_t bus_id(char* text, int length, int ordinal) {
  const cudaDeviceProp* prop = nullptr;
  if (!text || length < 13) return cudaErrorInvalidValue;
  const cudaError_t error = properties_of_ordinal(ordinal, &prop);
  if (error == cudaSuccess)
    std::snprintf(text, static_cast<size_t>(length), "%04x:%02x:%02x.0", prop->pciDomainID,
                  prop->pciBusID, prop->pciDeviceID);
  return error;
}

// Mostly a launcher starts more ranks than the job has GPUs: the error's words name neither number.
void say_how_many(int wanted) {
  static std::atomic<bool> said{false};
  const size_t count = process().devices.size();
  if (wanted < 0 || said.exchange(true)) return;
  std::string text = "the job has [" + std::to_string(count) + (count == 1 ? "] GPU" : "] GPUs");
  if (count < settings::devices()) text += " that CUDA_VISIBLE_DEVICES leaves";
  text += ", device [" + std::to_string(wanted) + "] was asked for";
  const char* gpus = settings::gpus();
  if (count == settings::devices() && gpus && !std::strncmp(gpus, "soft:", 5))
    text += ": --gpus soft:" + std::to_string(wanted + 1);
  say(text);
}

cudaError_t device_count(int* count) {
  if (!count) return cudaErrorInvalidValue;
  *count = 0;
  const cudaError_t error = usable();
  if (error == cudaSuccess) *count = static_cast<int>(process().devices.size());
  return error;
}

}  // namespace

PYFT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
  const Entered entered(Api::cudaGetDeviceProperties);
  const cudaDeviceProp* found = nullptr;
  if (!prop) return done(cudaErrorInvalidValue);
  const cudaError_t error = properties_of_ordinal(device, &found);
  if (error == cudaSuccess) *prop = *found;
  return done(error);
}

PYFT_API cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  const Entered entered(Api::cudaDeviceGetAttribute);
  return done(attribute_of_ordinal(device, attr, value));
}

PYFT_API cudaError_t cudaGetDeviceCount(int* count) {
  const Entered entered(Api::cudaGetDeviceCount);
  return done(device_count(count));
}

PYFT_API cudaError_t cudaGetDevice(int* device) {
  const Entered entered(Api::cudaGetDevice);
  if (!device) return done(cudaErrorInvalidValue);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  *device = current_device();
  return cudaSuccess;
}

PYFT_API cudaError_t cudaSetDevice(int device) {
  const Entered entered(Api::cudaSetDevice);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  if (device < 0 || device >= static_cast<int>(process().devices.size())) {
    say_how_many(device);
    return done(cudaErrorInvalidDevice);
  }
  set_current_device(device);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
  const Entered entered(Api::cudaInitDevice);
  cudaError_t error;
  return done(attach(device, &error) ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  const Entered entered(Api::cudaSetDeviceFlags);
  return done(usable());
}

PYFT_API cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  const Entered entered(Api::cudaGetDeviceFlags);
  if (flags) *flags = cudaDeviceScheduleAuto;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceReset() {
  const Entered entered(Api::cudaDeviceReset);
  Device* device = attached_or_null(current_device());
  return done(device ? device->synchronize_all() : usable());
}

PYFT_API cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  const Entered entered(Api::cudaDeviceGetPCIBusId);
  return done(bus_id(pciBusId, len, device));
}

PYFT_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* pciBusId) {
  const Entered entered(Api::cudaDeviceGetByPCIBusId);
  if (!device || !pciBusId) return done(cudaErrorInvalidValue);
  char text[32];
  for (int i = 0; i < static_cast<int>(process().devices.size()); ++i) {
    if (const cudaError_t error = bus_id(text, sizeof text, i); error != cudaSuccess)
      return done(error);
    if (std::strcmp(text, pciBusId) == 0) {
      *device = i;
      return cudaSuccess;
    }
  }
  return done(cudaErrorInvalidValue);
}

PYFT_API cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  const Entered entered(Api::cudaDeviceGetStreamPriorityRange);
  if (leastPriority) *leastPriority = 0;
  if (greatestPriority) *greatestPriority = -5;
  return done(usable());
}

PYFT_API cudaError_t cudaDriverGetVersion(int* driverVersion) {
  const Entered entered(Api::cudaDriverGetVersion);
  if (!driverVersion) return done(cudaErrorInvalidValue);
  *driverVersion = process().enabled ? kCudaVersion : 0;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  const Entered entered(Api::cudaRuntimeGetVersion);
  if (!runtimeVersion) return done(cudaErrorInvalidValue);
  *runtimeVersion = kCudaVersion;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  const Entered entered(Api::cudaDeviceCanAccessPeer);
  if (!canAccessPeer) return done(cudaErrorInvalidValue);
  *canAccessPeer = 0;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  const Entered entered(Api::cudaDeviceEnablePeerAccess);
  return done(cudaErrorPeerAccessUnsupported);
}

PYFT_API cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  const Entered entered(Api::cudaDeviceDisablePeerAccess);
  return done(cudaErrorPeerAccessNotEnabled);
}

PYFT_API cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache* pCacheConfig) {
  const Entered entered(Api::cudaDeviceGetCacheConfig);
  if (pCacheConfig) *pCacheConfig = cudaFuncCachePreferNone;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig) {
  const Entered entered(Api::cudaDeviceSetCacheConfig);
  return done(usable());
}

PYFT_API cudaError_t cudaProfilerStart() {
  const Entered entered(Api::cudaProfilerStart);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaProfilerStop() {
  const Entered entered(Api::cudaProfilerStop);
  return cudaSuccess;
}

static cudaError_t last_error_of_device(bool clear) {
  const cudaError_t error = last_error(clear);
  if (error != cudaSuccess) return error;
  Device* device = attached_or_null(current_device());
  if (!device) return cudaSuccess;
  if (const cudaError_t sticky = device->health(); sticky != cudaSuccess) return sticky;
  const cudaError_t late = device->late_error();
  return clear ? late : done(late);
}

PYFT_API cudaError_t cudaGetLastError() {
  const Entered entered(Api::cudaGetLastError);
  return last_error_of_device(true);
}

PYFT_API cudaError_t cudaPeekAtLastError() {
  const Entered entered(Api::cudaPeekAtLastError);
  return last_error_of_device(false);
}

// ---- driver spelling -------------------------------------------------------------------------

PYFT_API CUresult cuInit(unsigned int Flags) {
  const Entered entered(Api::cuInit);
  return static_cast<CUresult>(usable());
}

PYFT_API CUresult cuDriverGetVersion(int* driverVersion) {
  const Entered entered(Api::cuDriverGetVersion);
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kCudaVersion;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDeviceGetCount(int* count) {
  const Entered entered(Api::cuDeviceGetCount);
  return static_cast<CUresult>(device_count(count));
}

PYFT_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Entered entered(Api::cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t error = usable(); error != cudaSuccess) return static_cast<CUresult>(error);
  if (ordinal < 0 || ordinal >= static_cast<int>(process().devices.size()))
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const Entered entered(Api::cuDeviceGetName);
  const cudaDeviceProp* prop = nullptr;
  if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) std::snprintf(name, static_cast<size_t>(len), "%s", prop->name);
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  const Entered entered(Api::cuDeviceGetUuid_v2);
  const cudaDeviceProp* prop = nullptr;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) std::memcpy(uuid, &prop->uuid, sizeof *uuid);
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const Entered entered(Api::cuDeviceTotalMem_v2);
  const cudaDeviceProp* prop = nullptr;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) *bytes = prop->totalGlobalMem;
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const Entered entered(Api::cuDeviceGetAttribute);
  return static_cast<CUresult>(attribute_of_ordinal(dev, attrib, pi));
}

PYFT_API CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const Entered entered(Api::cuDeviceGetPCIBusId);
  return static_cast<CUresult>(bus_id(pciBusId, len, dev));
}

PYFT_API CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  const Entered entered(Api::cuDeviceCanAccessPeer);
  if (!canAccessPeer) return CUDA_ERROR_INVALID_VALUE;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}
