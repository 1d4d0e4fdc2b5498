// What programs built with CUDA 12 call by other names or with other structures than CUDA 13 has.
#include "client/queries/cuda12.h"

#include <dlfcn.h>

#include "client/device/stream.h"
#include "client/device_properties.h"
#include "client/queries/properties.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace pyft::client {

bool built_with_cuda_12() {
  void* const runtime = dlopen("libcudart.so.12", RTLD_LAZY | RTLD_NOLOAD);
  if (runtime) dlclose(runtime);
  return runtime;
}

}  // namespace pyft::client

// CUDA 12's name for the version with its structure; CUDA 13 has the plain name.
PYFT_API cudaError_t cudaGetDeviceProperties_v2(void* prop, int device) {
  const Entered entered(Api::cudaGetDeviceProperties_v2);
  const cudaDeviceProp* found = nullptr;
  if (!prop) return done(cudaErrorInvalidValue);
  const cudaError_t error = properties_of_ordinal(device, &found);
  if (error != cudaSuccess) return done(error);
  device_properties_12(*found, prop, [device](cudaDeviceAttr attribute) {
    int value = 0;
    attribute_of_ordinal(device, attribute, &value);
    return value;
  });
  return done(cudaSuccess);
}

PYFT_API cudaError_t cudaEventElapsedTime_v2(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Entered entered(Api::cudaEventElapsedTime_v2);
  return cudaEventElapsedTime(ms, start, end);
}

// Two versions of one function: CUDA 13 has the second one, by the plain name.
PYFT_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* captureStatus_out,
                                                 unsigned long long* id_out, cudaGraph_t* graph_out,
                                                 const cudaGraphNode_t** dependencies_out,
                                                 size_t* numDependencies_out) {
  const Entered entered(Api::cudaStreamGetCaptureInfo_v2);
  return cudaStreamGetCaptureInfo(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                  nullptr, numDependencies_out);
}

PYFT_API cudaError_t cudaStreamGetCaptureInfo_v2_ptsz(
    cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out, unsigned long long* id_out,
    cudaGraph_t* graph_out, const cudaGraphNode_t** dependencies_out, size_t* numDependencies_out) {
  const Entered entered(Api::cudaStreamGetCaptureInfo_v2_ptsz);
  const OwnNullStream own;
  return cudaStreamGetCaptureInfo(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                  nullptr, numDependencies_out);
}

PYFT_API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream,
                                                 cudaStreamCaptureStatus* captureStatus_out,
                                                 unsigned long long* id_out, cudaGraph_t* graph_out,
                                                 const cudaGraphNode_t** dependencies_out,
                                                 const cudaGraphEdgeData** edgeData_out,
                                                 size_t* numDependencies_out) {
  const Entered entered(Api::cudaStreamGetCaptureInfo_v3);
  return cudaStreamGetCaptureInfo(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                  edgeData_out, numDependencies_out);
}

PYFT_API cudaError_t cudaStreamGetCaptureInfo_v3_ptsz(
    cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out, unsigned long long* id_out,
    cudaGraph_t* graph_out, const cudaGraphNode_t** dependencies_out,
    const cudaGraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  const Entered entered(Api::cudaStreamGetCaptureInfo_v3_ptsz);
  const OwnNullStream own;
  return cudaStreamGetCaptureInfo(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                  edgeData_out, numDependencies_out);
}
