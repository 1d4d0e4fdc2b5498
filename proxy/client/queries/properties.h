// Facts about a device that cannot change: fetched once per device, then answered locally.
#ifndef PYFT_CLIENT_QUERIES_PROPERTIES_H_
#define PYFT_CLIENT_QUERIES_PROPERTIES_H_

#include "client/device/device.h"

namespace pyft::client {

struct LaunchLimits {
  uint32_t grid[3], block[3], threads;
};

cudaError_t device_attribute(Device& device, int attribute, int* value);
// The same by ordinal, which needs no server of that device.
cudaError_t attribute_of_ordinal(int ordinal, int attribute, int* value);
cudaError_t properties_of_ordinal(int ordinal, const cudaDeviceProp** out);
cudaError_t launch_limits(Device& device, const LaunchLimits** out);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_QUERIES_PROPERTIES_H_
