// NVML as the program sees it. On real GPUs the driver's answers, with the job's numbers; on soft
// GPUs what frameworks ask before they touch CUDA, such as how many devices there are. Needs no
// device and no agent, so that it also answers in a forked child.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "nvml_driver.h"
#include "pyft/settings.h"

using namespace pyft::nvml;  // NOLINT: exported functions live outside namespaces
namespace settings = pyft::settings;

namespace {

constexpr int kCudaVersion = 13000;
constexpr int kSoftMajor = 7, kSoftMinor = 5;  // a test compares them with the device's attributes

bool soft_gpus() {
  return std::strncmp(settings::gpus(), "soft:", 5) == 0;
}

unsigned device_count() {
  if (!*settings::agent() || settings::disable()) return 0;
  return static_cast<unsigned>(settings::devices());
}

nvmlReturn_t put(char* out, unsigned length, const char* text) {
  if (!out) return kInvalidArgument;
  if (std::strlen(text) + 1 > length) return kInsufficientSize;
  std::strcpy(out, text);
  return kSuccess;
}

// Real GPUs are listed in PYFT_GPUS by their names; soft ones have numbers.
void uuid_text(unsigned index, char* text, size_t bytes) {
  const char* at = settings::gpus();
  if (std::strncmp(at, "GPU-", 4) != 0) {
    std::snprintf(text, bytes, "GPU-70796674-0000-0000-0000-%012x", index);
    return;
  }
  for (; at && index; --index) at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr;
  if (!at) at = "";
  std::snprintf(text, bytes, "%.*s", static_cast<int>(std::strcspn(at, ",")), at);
}

// Handles are the index plus one, so that none is null.
unsigned index_of(nvmlDevice_t device) {
  constexpr size_t kNone = std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(std::min(reinterpret_cast<size_t>(device) - 1, kNone));
}

nvmlReturn_t handle_by_index(unsigned index, nvmlDevice_t* device) {
  if (!device || index >= device_count()) return kInvalidArgument;
  if (answers() == Answers::kDriver) return device_of_job(index, device);
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<size_t>(index) + 1);
  return kSuccess;
}

nvmlReturn_t count_devices(unsigned* count) {
  if (!count) return kInvalidArgument;
  if (answers() == Answers::kNobody) return kDriverNotLoaded;
  *count = device_count();
  return kSuccess;
}

// nvidia-smi without a driver hears of it at once.
nvmlReturn_t started() {
  return answers() == Answers::kNobody ? kDriverNotLoaded : kSuccess;
}

nvmlReturn_t cuda_version(int* version) {
  if (!version) return kInvalidArgument;
  *version = kCudaVersion;
  return kSuccess;
}

}  // namespace

NVML_API nvmlReturn_t nvmlInit() {
  ASK_DRIVER(nvmlInit);
  return started();
}
NVML_API nvmlReturn_t nvmlInit_v2() {
  ASK_DRIVER(nvmlInit_v2);
  return started();
}
NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  ASK_DRIVER(nvmlInitWithFlags, flags);
  return started();
}
NVML_API nvmlReturn_t nvmlShutdown() {
  ASK_DRIVER(nvmlShutdown);
  return kSuccess;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) {
  ASK_UNTOUCHED(nvmlDeviceGetCount, deviceCount);
  return count_devices(deviceCount);
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  ASK_UNTOUCHED(nvmlDeviceGetCount_v2, deviceCount);
  return count_devices(deviceCount);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  ASK_UNTOUCHED(nvmlDeviceGetHandleByIndex, index, device);
  return handle_by_index(index, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  ASK_UNTOUCHED(nvmlDeviceGetHandleByIndex_v2, index, device);
  return handle_by_index(index, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  ASK_UNTOUCHED(nvmlDeviceGetIndex, device, index);
  if (answers() == Answers::kDriver && index) {
    const int number = job_number(device);
    *index = static_cast<unsigned>(number);
    return number < 0 ? kNotFound : kSuccess;
  }
  if (!index || index_of(device) >= device_count()) return kInvalidArgument;
  *index = index_of(device);
  return kSuccess;
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  ASK_DRIVER(nvmlDeviceGetName, device, name, length);
  if (index_of(device) >= device_count()) return kInvalidArgument;
  return put(name, length, "GPU behind pyft");
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  ASK_DRIVER(nvmlDeviceGetUUID, device, uuid, length);
  if (index_of(device) >= device_count()) return kInvalidArgument;
  char text[64];
  uuid_text(index_of(device), text, sizeof text);
  return put(uuid, length, text);
}

// These two of a real GPU are known to its driver only.
NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                         int* minor) {
  ASK_DRIVER(nvmlDeviceGetCudaComputeCapability, device, major, minor);
  if (!soft_gpus()) return kNotSupported;
  if (!major || !minor || index_of(device) >= device_count()) return kInvalidArgument;
  *major = kSoftMajor;
  *minor = kSoftMinor;
  return kSuccess;
}

// What is in use is known to the servers. Frameworks ask for the size before they use a device.
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  ASK_DRIVER(nvmlDeviceGetMemoryInfo, device, memory);
  if (!soft_gpus()) return kNotSupported;
  if (!memory || index_of(device) >= device_count()) return kInvalidArgument;
  memory->total = memory->free = settings::memory();
  memory->used = 0;
  return kSuccess;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (const auto asked = driver(&nvmlDeviceGetHandleByUUID, __func__))
    return found(asked(uuid, device), device);
  char text[64];
  for (unsigned index = 0; uuid && index < device_count(); ++index) {
    uuid_text(index, text, sizeof text);
    if (std::strcmp(text, uuid) == 0) return handle_by_index(index, device);
  }
  return kInvalidArgument;
}

// Bus numbers of soft GPUs count from 1; only the driver of a real one knows better.
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device) {
  if (const auto asked = driver(&nvmlDeviceGetHandleByPciBusId_v2, __func__))
    return found(asked(pciBusId, device), device);
  unsigned bus = 0;
  if (!pciBusId || std::sscanf(pciBusId, "%*x:%x:", &bus) != 1) return kInvalidArgument;
  return handle_by_index(bus - 1, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const void* uuid, nvmlDevice_t* device) {
  if (const auto asked = driver(&nvmlDeviceGetHandleByUUIDV, __func__))
    return found(asked(uuid, device), device);
  return kNotSupported;
}

// Soft GPUs have no serial number.
NVML_API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  if (const auto asked = driver(&nvmlDeviceGetHandleBySerial, __func__))
    return found(asked(serial, device), device);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                           unsigned int* infoCount, void* infos) {
  ASK_DRIVER(nvmlDeviceGetComputeRunningProcesses, device, infoCount, infos);
  if (!infoCount || index_of(device) >= device_count()) return kInvalidArgument;
  *infoCount = 0;
  return kSuccess;
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  ASK_DRIVER(nvmlSystemGetDriverVersion, version, length);
  return put(version, length, "580.00");
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  ASK_DRIVER(nvmlSystemGetNVMLVersion, version, length);
  return put(version, length, "13.580.00");
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  ASK_DRIVER(nvmlSystemGetCudaDriverVersion, cudaDriverVersion);
  return cuda_version(cudaDriverVersion);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  ASK_DRIVER(nvmlSystemGetCudaDriverVersion_v2, cudaDriverVersion);
  return cuda_version(cudaDriverVersion);
}

NVML_API const char* nvmlErrorString(nvmlReturn_t result) {
  ASK_DRIVER(nvmlErrorString, result);
  return result == kSuccess ? "Success" : "Not supported or invalid argument";
}
