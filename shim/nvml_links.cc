// NVML's questions about ways between GPUs: links, which a program behind servers cannot use, and
// neighbours, of which those of other jobs are left out.
#include <algorithm>
#include <array>

#include "nvml_driver.h"

using namespace pyft::nvml;  // NOLINT: exported functions live outside namespaces

namespace {

constexpr unsigned kMostGpus = 64;  // of a host
constexpr int kP2pNotSupported = 5;

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
  ASK_UNTOUCHED(nvmlDeviceGetTopologyNearestGpus, device, level, count, deviceArray);
  const auto asked = driver(&nvmlDeviceGetTopologyNearestGpus, __func__);
  if (!asked) return not_forwarded();
  return list_of_job([&](unsigned* n, nvmlDevice_t* all) { return asked(device, level, n, all); },
                     count, deviceArray);
}

NVML_API nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count,
                                                  nvmlDevice_t* deviceArray) {
  ASK_UNTOUCHED(nvmlSystemGetTopologyGpuSet, cpuNumber, count, deviceArray);
  const auto asked = driver(&nvmlSystemGetTopologyGpuSet, __func__);
  if (!asked) return not_forwarded();
  return list_of_job([&](unsigned* n, nvmlDevice_t* all) { return asked(cpuNumber, n, all); },
                     count, deviceArray);
}

// Those below tell of ways that a program behind servers cannot use: the vendor's tool alone hears
// of them, beside soft GPUs.
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                          int* type) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkRemoteDeviceType, device, link, type);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                          void* pci) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkRemotePciInfo_v2, device, link, pci);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void* info) {
  ASK_UNTOUCHED(nvmlDeviceGetGpuFabricInfoV, device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, int index,
                                             int* status) {
  ASK_UNTOUCHED(nvmlDeviceGetP2PStatus, device, peer, index, status);
  if (!status) return kInvalidArgument;
  *status = kP2pNotSupported;
  return kSuccess;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, void* info) {
  ASK_UNTOUCHED(nvmlDeviceGetGpuFabricInfo, device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t device, void* info) {
  ASK_UNTOUCHED(nvmlDeviceGetGpuFabricInfo_v4, device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                       void* pci) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkRemotePciInfo, device, link, pci);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                               int* isActive) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkState, device, link, isActive);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                    int capability, unsigned int* capResult) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkCapability, device, link, capability, capResult);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkInfo(nvmlDevice_t device, void* info) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkInfo, device, info);
  return kNotSupported;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                 unsigned int* version) {
  ASK_UNTOUCHED(nvmlDeviceGetNvLinkVersion, device, link, version);
  return kNotSupported;
}
