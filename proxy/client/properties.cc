#include "client/properties.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/commands.h"
#include "client/stream.h"
#include "client/unserved.h"

namespace pyft::client {
namespace {

constexpr uint32_t kAttributes = 200;  // ids 1 .. 199; the server says how many it knows

struct Facts {
  std::mutex mutex;
  std::atomic<bool> ready{false};
  int32_t attributes[kAttributes] = {};
  uint32_t attribute_count = 0;
  cudaDeviceProp properties{};
  LaunchLimits limits{};
};
Facts facts[kMaxDevices];

void fill_limits(Facts& f) {
  const int32_t* a = f.attributes;
  for (int i = 0; i < 3; ++i) {
    f.limits.block[i] = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    f.limits.grid[i] = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
  }
  f.limits.threads = static_cast<uint32_t>(a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
}

cudaError_t fetch(Device& device, uint32_t number, Facts& f) {
  Reply reply;
  const cmd::cudaDeviceGetAttribute attributes{number, 0, kAttributes, 0};
  cudaError_t error = device.call(static_cast<uint16_t>(Call::cudaDeviceGetAttribute),
                                  bytes_of(attributes), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  const size_t bytes = std::min(reply.data.size(), sizeof f.attributes);
  std::memcpy(f.attributes, reply.data.data(), bytes);
  f.attribute_count = static_cast<uint32_t>(bytes / sizeof(int32_t));
  error = device.call(static_cast<uint16_t>(Call::cudaGetDeviceProperties),
                      bytes_of(cmd::cudaGetDeviceProperties{number, 0}), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  if (reply.data.size() != sizeof f.properties) return cudaErrorUnknown;
  std::memcpy(&f.properties, reply.data.data(), sizeof f.properties);
  hide_unserved(f.attributes, &f.properties);
  fill_limits(f);
  return cudaSuccess;
}

// PyTorch looks at all devices before it chooses one, which under torchrun is LOCAL_RANK.
int likely_device() {
  const char* rank = std::getenv("LOCAL_RANK");
  if (current_device() != 0 || !rank || !*rank) return current_device();
  char* end = nullptr;
  const long device = std::strtol(rank, &end, 10);
  const bool exists = *end == 0 && device >= 0 &&
                      device < static_cast<long>(process().devices.size()) &&
                      !attached_or_null(static_cast<int>(device));
  return exists ? static_cast<int>(device) : 0;
}

// Any server can be asked about any device, since it sees all of the job. PyTorch looks at all
// devices at its start: with one of their own for that, N ranks would have N * N servers.
Device* who_knows(int ordinal, cudaError_t* error) {
  *error = usable();
  if (*error != cudaSuccess) return nullptr;
  if (ordinal < 0 || ordinal >= static_cast<int>(process().devices.size())) {
    *error = cudaErrorInvalidDevice;
    return nullptr;
  }
  if (Device* itself = attached_or_null(ordinal)) return itself;
  for (int other = 0; other < kMaxDevices; ++other)
    if (Device* device = attached_or_null(other); device && device->health() == cudaSuccess)
      return device;
  const int likely = likely_device();
  return attach(attached_or_null(likely) ? ordinal : likely, error);  // attached: it is dead
}

cudaError_t facts_of(Device& device, int ordinal, const Facts** out) {
  Facts& f = facts[ordinal];
  *out = &f;
  if (f.ready.load(std::memory_order_acquire)) return cudaSuccess;
  const std::lock_guard lock(f.mutex);
  if (f.ready.load(std::memory_order_acquire)) return cudaSuccess;
  const bool itself = device.ordinal() == ordinal;
  const uint32_t number =
      itself ? device.channel().device() : static_cast<uint32_t>(process().devices[ordinal]);
  const cudaError_t error = fetch(device, number, f);
  if (error == cudaSuccess) f.ready.store(true, std::memory_order_release);
  return error;
}

cudaError_t attribute_of(Device& through, int ordinal, int attribute, int* value) {
  const Facts* f = nullptr;
  if (const cudaError_t error = facts_of(through, ordinal, &f); error != cudaSuccess) return error;
  if (attribute < 1 || attribute >= static_cast<int>(f->attribute_count))
    return cudaErrorInvalidValue;
  *value = f->attributes[attribute];
  return cudaSuccess;
}

}  // namespace

cudaError_t device_attribute(Device& device, int attribute, int* value) {
  return attribute_of(device, device.ordinal(), attribute, value);
}

cudaError_t attribute_of_ordinal(int ordinal, int attribute, int* value) {
  if (!value) return cudaErrorInvalidValue;
  cudaError_t error;
  Device* through = who_knows(ordinal, &error);
  return through ? attribute_of(*through, ordinal, attribute, value) : error;
}

cudaError_t properties_of_ordinal(int ordinal, const cudaDeviceProp** out) {
  cudaError_t error;
  Device* through = who_knows(ordinal, &error);
  if (!through) return error;
  const Facts* f = nullptr;
  error = facts_of(*through, ordinal, &f);
  *out = &f->properties;
  return error;
}

cudaError_t launch_limits(Device& device, const LaunchLimits** out) {
  const Facts* f = nullptr;
  const cudaError_t error = facts_of(device, device.ordinal(), &f);
  *out = &f->limits;
  return error;
}

}  // namespace pyft::client

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

cudaError_t device_count(int* count) {
  if (!count) return cudaErrorInvalidValue;
  *count = 0;
  const cudaError_t error = usable();
  if (error == cudaSuccess) *count = static_cast<int>(process().devices.size());
  return error;
}

}  // namespace

PYFT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
  enter(Api::cudaGetDeviceProperties);
  const cudaDeviceProp* found = nullptr;
  if (!prop) return done(cudaErrorInvalidValue);
  const cudaError_t error = properties_of_ordinal(device, &found);
  if (error == cudaSuccess) *prop = *found;
  return done(error);
}

PYFT_API cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  enter(Api::cudaDeviceGetAttribute);
  return done(attribute_of_ordinal(device, attr, value));
}

PYFT_API cudaError_t cudaGetDeviceCount(int* count) {
  enter(Api::cudaGetDeviceCount);
  return done(device_count(count));
}

PYFT_API cudaError_t cudaGetDevice(int* device) {
  enter(Api::cudaGetDevice);
  if (!device) return done(cudaErrorInvalidValue);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  *device = current_device();
  return cudaSuccess;
}

PYFT_API cudaError_t cudaSetDevice(int device) {
  enter(Api::cudaSetDevice);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  if (device < 0 || device >= static_cast<int>(process().devices.size()))
    return done(cudaErrorInvalidDevice);
  set_current_device(device);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
  enter(Api::cudaInitDevice);
  cudaError_t error;
  return done(attach(device, &error) ? cudaSuccess : error);
}

PYFT_API cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  enter(Api::cudaSetDeviceFlags);
  return done(usable());
}

PYFT_API cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  enter(Api::cudaGetDeviceFlags);
  if (flags) *flags = cudaDeviceScheduleAuto;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceReset() {
  enter(Api::cudaDeviceReset);
  Device* device = attached_or_null(current_device());
  return done(device ? device->synchronize_all() : usable());
}

PYFT_API cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  enter(Api::cudaDeviceGetPCIBusId);
  return done(bus_id(pciBusId, len, device));
}

PYFT_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* pciBusId) {
  enter(Api::cudaDeviceGetByPCIBusId);
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
  enter(Api::cudaDeviceGetStreamPriorityRange);
  if (leastPriority) *leastPriority = 0;
  if (greatestPriority) *greatestPriority = -5;
  return done(usable());
}

PYFT_API cudaError_t cudaDriverGetVersion(int* driverVersion) {
  enter(Api::cudaDriverGetVersion);
  if (!driverVersion) return done(cudaErrorInvalidValue);
  *driverVersion = process().enabled ? kCudaVersion : 0;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  enter(Api::cudaRuntimeGetVersion);
  if (!runtimeVersion) return done(cudaErrorInvalidValue);
  *runtimeVersion = kCudaVersion;
  return cudaSuccess;
}

PYFT_API cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  enter(Api::cudaDeviceCanAccessPeer);
  if (!canAccessPeer) return done(cudaErrorInvalidValue);
  *canAccessPeer = 0;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  enter(Api::cudaDeviceEnablePeerAccess);
  return done(cudaErrorPeerAccessUnsupported);
}

PYFT_API cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  enter(Api::cudaDeviceDisablePeerAccess);
  return done(cudaErrorPeerAccessNotEnabled);
}

PYFT_API cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache* pCacheConfig) {
  enter(Api::cudaDeviceGetCacheConfig);
  if (pCacheConfig) *pCacheConfig = cudaFuncCachePreferNone;
  return done(usable());
}

PYFT_API cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig) {
  enter(Api::cudaDeviceSetCacheConfig);
  return done(usable());
}

PYFT_API cudaError_t cudaProfilerStart() {
  enter(Api::cudaProfilerStart);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaProfilerStop() {
  enter(Api::cudaProfilerStop);
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
  enter(Api::cudaGetLastError);
  return last_error_of_device(true);
}

PYFT_API cudaError_t cudaPeekAtLastError() {
  enter(Api::cudaPeekAtLastError);
  return last_error_of_device(false);
}

// ---- driver spelling -------------------------------------------------------------------------

PYFT_API CUresult cuInit(unsigned int Flags) {
  enter(Api::cuInit);
  return static_cast<CUresult>(usable());
}

PYFT_API CUresult cuDriverGetVersion(int* driverVersion) {
  enter(Api::cuDriverGetVersion);
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kCudaVersion;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDeviceGetCount(int* count) {
  enter(Api::cuDeviceGetCount);
  return static_cast<CUresult>(device_count(count));
}

PYFT_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  enter(Api::cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (const cudaError_t error = usable(); error != cudaSuccess) return static_cast<CUresult>(error);
  if (ordinal < 0 || ordinal >= static_cast<int>(process().devices.size()))
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  enter(Api::cuDeviceGetName);
  const cudaDeviceProp* prop = nullptr;
  if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) std::snprintf(name, static_cast<size_t>(len), "%s", prop->name);
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  enter(Api::cuDeviceGetUuid_v2);
  const cudaDeviceProp* prop = nullptr;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) std::memcpy(uuid, &prop->uuid, sizeof *uuid);
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  enter(Api::cuDeviceTotalMem_v2);
  const cudaDeviceProp* prop = nullptr;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t error = properties_of_ordinal(dev, &prop);
  if (error == cudaSuccess) *bytes = prop->totalGlobalMem;
  return static_cast<CUresult>(error);
}

PYFT_API CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  enter(Api::cuDeviceGetAttribute);
  return static_cast<CUresult>(attribute_of_ordinal(dev, attrib, pi));
}

PYFT_API CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  enter(Api::cuDeviceGetPCIBusId);
  return static_cast<CUresult>(bus_id(pciBusId, len, dev));
}

PYFT_API CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  enter(Api::cuDeviceCanAccessPeer);
  if (!canAccessPeer) return CUDA_ERROR_INVALID_VALUE;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}
