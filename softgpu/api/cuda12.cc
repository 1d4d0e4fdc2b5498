// What programs built with CUDA 12 call by other names or with other structures than CUDA 13 has.
#include "api/support.h"
#include "device_properties.h"

// CUDA 12's name for the version with its structure; CUDA 13 has the plain name.
SOFTGPU_API cudaError_t cudaGetDeviceProperties_v2(void* out, int device) {
  cudaDeviceProp properties;
  const cudaError_t bad = cudaGetDeviceProperties(out ? &properties : nullptr, device);
  if (bad != cudaSuccess) return bad;
  device_properties_12(properties, out, [device](cudaDeviceAttr attribute) {
    int value = 0;
    cudaDeviceGetAttribute(&value, attribute, device);
    return value;
  });
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t start,
                                                cudaEvent_t end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}
