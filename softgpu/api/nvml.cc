// The few NVML functions programs use to count and name GPUs. A library of its own, since NVML is
// one: it must answer before and without any use of the devices.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/config.h"
#include "softgpu.h"

// NVML's header is in no pip package, so the few types and codes used here are declared.
struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st*;
enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_GPU_IS_LOST = 15,
};
struct nvmlMemory_t {
  unsigned long long total, free, used;
};

#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

namespace {

// What the soft GPU of this process says about an installed device. Other processes' faults are
// known to them alone.
softgpu_state state_of(int installed) {
  using Query = int(int, softgpu_state*);
  static auto* const query = reinterpret_cast<Query*>(dlsym(RTLD_DEFAULT, "softgpu_device_state"));
  softgpu_state state{};
  const softgpu::Config& config = softgpu::config();
  for (int i = 0; query && i < config.devices; ++i) {
    if (config.installed_index[i] == installed && query(i, &state) != 0) state = {};
  }
  return state;
}

bool lost(int installed) {
  return state_of(installed).needs == SOFTGPU_NEEDS_REPLACEMENT;
}

// A device handle is the address of its number.
int numbers[softgpu::kMaxDevices] = {0, 1, 2, 3, 4, 5, 6, 7};

nvmlReturn_t index_of(nvmlDevice_t device, unsigned* index) {
  const auto* at = reinterpret_cast<const int*>(device);
  if (at < numbers || at >= numbers + softgpu::installed_devices()) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *index = static_cast<unsigned>(*at);
  return lost(*at) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t copy_text(const char* text, char* out, unsigned length) {
  if (!out || std::strlen(text) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text, std::strlen(text) + 1);
  return NVML_SUCCESS;
}

}  // namespace

SOFTGPU_API nvmlReturn_t nvmlInit_v2() {
  return NVML_SUCCESS;
}
SOFTGPU_API nvmlReturn_t nvmlInit() {
  return NVML_SUCCESS;
}
SOFTGPU_API nvmlReturn_t nvmlInitWithFlags(unsigned) {
  return NVML_SUCCESS;
}
SOFTGPU_API nvmlReturn_t nvmlShutdown() {
  return NVML_SUCCESS;
}

SOFTGPU_API const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

SOFTGPU_API nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return copy_text("580.0-softgpu", version, length);
}

SOFTGPU_API nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return copy_text("13.580.0-softgpu", version, length);
}

SOFTGPU_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  *version = 13000;
  return NVML_SUCCESS;
}

SOFTGPU_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

// All installed devices: CUDA_VISIBLE_DEVICES is the caller's to apply, as with real NVML.
SOFTGPU_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(softgpu::installed_devices());
  return NVML_SUCCESS;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index >= static_cast<unsigned>(softgpu::installed_devices())) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (lost(static_cast<int>(index))) return NVML_ERROR_GPU_IS_LOST;
  *device = reinterpret_cast<nvmlDevice_t>(&numbers[index]);
  return NVML_SUCCESS;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  return index_of(device, index);
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  return bad == NVML_SUCCESS ? copy_text("Soft GPU (sm_75)", name, length) : bad;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  if (bad != NVML_SUCCESS) return bad;
  return copy_text(softgpu::uuid_text(static_cast<int>(index)).c_str(), uuid, length);
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  if (bad != NVML_SUCCESS) return bad;
  // What processes have allocated is known to them alone.
  memory->total = memory->free = softgpu::config().memory_bytes;
  memory->used = 0;
  return NVML_SUCCESS;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                            int* minor) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  if (bad != NVML_SUCCESS) return bad;
  *major = 7;
  *minor = 5;
  return NVML_SUCCESS;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  unsigned bus = 0;
  if (!id || std::sscanf(id, "%*x:%x:", &bus) != 1) return NVML_ERROR_INVALID_ARGUMENT;
  return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned* current,
                                              unsigned* pending) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  if (bad != NVML_SUCCESS) return bad;
  *current = *pending = 1;
  return NVML_SUCCESS;
}

// Uncorrected errors (type 1) that this process was made to see; nothing is ever corrected.
SOFTGPU_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int,
                                                     unsigned long long* count) {
  unsigned index = 0;
  const nvmlReturn_t bad = index_of(device, &index);
  if (bad != NVML_SUCCESS) return bad;
  const int error = state_of(static_cast<int>(index)).error;
  *count = type == 1 && (error == SOFTGPU_ECC_UNCONTAINED || error == SOFTGPU_ECC_CONTAINED);
  return NVML_SUCCESS;
}

// Which processes use a soft GPU is not known here: the list is empty.
SOFTGPU_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned* count,
                                                              void*) {
  *count = 0;
  return NVML_SUCCESS;
}

// A soft GPU has no links to others.
SOFTGPU_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, void*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned, int*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

SOFTGPU_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t, unsigned, void*) {
  return NVML_ERROR_NOT_SUPPORTED;
}
