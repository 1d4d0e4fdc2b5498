// Facts about a device that cannot change: fetched once per device, then answered locally.
#ifndef PYFT_CLIENT_PROPERTIES_H_
#define PYFT_CLIENT_PROPERTIES_H_

#include "client/device.h"

namespace pyft::client {

struct LaunchLimits {
  uint32_t grid[3], block[3], threads;
};

cudaError_t device_attribute(Device& device, int attribute, int* value);
cudaError_t device_properties(Device& device, const cudaDeviceProp** out);
cudaError_t launch_limits(Device& device, const LaunchLimits** out);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROPERTIES_H_
