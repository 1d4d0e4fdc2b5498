// NVML's questions about ways between GPUs: links, which a program behind servers cannot use, and
// neighbours, of which those of other jobs are left out.
#include <algorithm>
#include <array>

#include "nvml_driver.h"

using namespace pyft::nvml;  // NOLINT: exported functions live outside namespaces

namespace {

constexpr unsigned kMostGpus = 64;  // of a host

// Asks the driver for a list of GPUs, and hands out those of the job as NVML does: `count` is the
// room of the list, 0: only their number is asked for.
template <class Ask>
nvmlReturn_t list_of_job(Ask&& ask, unsigned* count, nvmlDevice_t* devices) {
  if (!count) return kInvalidArgument;
  std::array<nvmlDevice_t, kMostGpus> all{};
  unsigned there = kMostGpus, found = 0;
  if (const nvmlReturn_t code = ask(&there, all.data())) return code;
  for (unsigned i = 0; i < std::min(there, kMostGpus); ++i) {
    if (job_number(all[i]) < 0) continue;
    if (devices && found < *count) devices[found] = all[i];
    ++found;
  }
  *count = devices && *count ? std::min(found, *count) : found;
  return kSuccess;
}

}  // namespace

NVML_API nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level,
                                                       unsigned int* count,
                                                       nvmlDevice_t* deviceArray) {
  if (const auto asked = untouched(&nvmlDeviceGetTopologyNearestGpus, __func__))
    return asked(device, level, count, deviceArray);
  const auto asked = driver(&nvmlDeviceGetTopologyNearestGpus, __func__);
  if (!asked) return not_forwarded();
  return list_of_job([&](unsigned* n, nvmlDevice_t* all) { return asked(device, level, n, all); },
                     count, deviceArray);
}

NVML_API nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count,
                                                  nvmlDevice_t* deviceArray) {
  if (const auto asked = untouched(&nvmlSystemGetTopologyGpuSet, __func__))
    return asked(cpuNumber, count, deviceArray);
  const auto asked = driver(&nvmlSystemGetTopologyGpuSet, __func__);
  if (!asked) return not_forwarded();
  return list_of_job([&](unsigned* n, nvmlDevice_t* all) { return asked(cpuNumber, n, all); },
                     count, deviceArray);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, void* info) {
  if (const auto asked = untouched(&nvmlDeviceGetGpuFabricInfo, __func__))
    return asked(device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t device, void* info) {
  if (const auto asked = untouched(&nvmlDeviceGetGpuFabricInfo_v4, __func__))
    return asked(device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                       void* pci) {
  if (const auto asked = untouched(&nvmlDeviceGetNvLinkRemotePciInfo, __func__))
    return asked(device, link, pci);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                               int* isActive) {
  if (const auto asked = untouched(&nvmlDeviceGetNvLinkState, __func__))
    return asked(device, link, isActive);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                    int capability, unsigned int* capResult) {
  if (const auto asked = untouched(&nvmlDeviceGetNvLinkCapability, __func__))
    return asked(device, link, capability, capResult);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkInfo(nvmlDevice_t device, void* info) {
  if (const auto asked = untouched(&nvmlDeviceGetNvLinkInfo, __func__)) return asked(device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                 unsigned int* version) {
  if (const auto asked = untouched(&nvmlDeviceGetNvLinkVersion, __func__))
    return asked(device, link, version);
  return kNotSupported;
}
