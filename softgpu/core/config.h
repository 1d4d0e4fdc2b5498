// What the environment decides once per process.
#ifndef SOFTGPU_CORE_CONFIG_H_
#define SOFTGPU_CORE_CONFIG_H_

#include <cstdint>
#include <string>

#include "core/placement.h"

namespace softgpu {

inline constexpr int kMaxDevices = 8;

struct Config {
  int installed = 1;                      // SOFTGPU_DEVICES
  int devices = 1;                        // of these, visible by CUDA_VISIBLE_DEVICES
  int installed_index[kMaxDevices] = {};  // which one a visible device is
  uint64_t memory_bytes = 0;              // SOFTGPU_MEMORY, per device
  int sms = 0;                            // SOFTGPU_SMS
  int blas_threads = 0;                   // SOFTGPU_BLAS_THREADS
  bool modules_anywhere = false;          // SOFTGPU_MODULES
};

// "GPU-" and 32 hexadecimal digits, as NVML and CUDA_VISIBLE_DEVICES write it.
std::string uuid_text(int installed);

// Read at the first call; a value that is not a positive number is reported and ignored.
const Config& config();

inline int installed_devices() {
  return config().installed;
}

// Of any device, for what is placed so.
inline Sms sms_for(const Placement& placement) {
  return {static_cast<uint64_t>(config().sms), placement.places};
}

}  // namespace softgpu

#endif  // SOFTGPU_CORE_CONFIG_H_
