// How many clusters of blocks a device holds, and how large they may be.
#include "api/commands.h"
#include "client/code/module.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

struct Shape {
  dim3 grid, block, cluster{0, 0, 0};
  size_t shared_bytes = 0;
};

cudaError_t ask(const void* function, const Shape& s, bool largest, int* out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  Kernel* kernel = kernel_of_handle(function);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!out || s.shared_bytes > UINT32_MAX) return cudaErrorInvalidValue;
  KernelOnDevice* here = nullptr;
  error = resolve(*kernel, *device, &here);
  if (error != cudaSuccess) return error;
  const cmd::cuOccupancyMaxActiveClusters body{here->handle,
                                               s.grid.x,
                                               s.grid.y,
                                               s.grid.z,
                                               s.block.x,
                                               s.block.y,
                                               s.block.z,
                                               static_cast<uint32_t>(s.shared_bytes),
                                               s.cluster.x,
                                               s.cluster.y,
                                               s.cluster.z,
                                               largest,
                                               0};
  Reply reply;
  error = device->call(static_cast<uint16_t>(Call::cuOccupancyMaxActiveClusters), bytes_of(body),
                       &reply);
  if (error == cudaSuccess) error = static_cast<cudaError_t>(reply.code);
  if (error == cudaSuccess) *out = static_cast<int>(reply.values[0]);
  return error;
}

cudaError_t ask_runtime(const void* function, const cudaLaunchConfig_t* c, bool largest, int* out) {
  if (!c || (c->numAttrs && !c->attrs)) return cudaErrorInvalidValue;
  Shape shape{c->gridDim, c->blockDim, {0, 0, 0}, c->dynamicSmemBytes};
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const auto& cluster = c->attrs[i].val.clusterDim;
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
      shape.cluster = {cluster.x, cluster.y, cluster.z};
  }
  return ask(function, shape, largest, out);
}

CUresult ask_driver(CUfunction function, const CUlaunchConfig* c, bool largest, int* out) {
  if (!c || (c->numAttrs && !c->attrs)) return CUDA_ERROR_INVALID_VALUE;
  Shape shape{{c->gridDimX, c->gridDimY, c->gridDimZ},
              {c->blockDimX, c->blockDimY, c->blockDimZ},
              {0, 0, 0},
              c->sharedMemBytes};
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const auto& cluster = c->attrs[i].value.clusterDim;
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      shape.cluster = {cluster.x, cluster.y, cluster.z};
  }
  return static_cast<CUresult>(ask(function, shape, largest, out));
}

}  // namespace

PYFT_API cudaError_t cudaOccupancyMaxActiveClusters(int* numClusters, const void* func,
                                                    const cudaLaunchConfig_t* launchConfig) {
  const Entered entered(Api::cudaOccupancyMaxActiveClusters);
  return done(ask_runtime(func, launchConfig, false, numClusters));
}

PYFT_API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* clusterSize, const void* func,
                                                          const cudaLaunchConfig_t* launchConfig) {
  const Entered entered(Api::cudaOccupancyMaxPotentialClusterSize);
  return done(ask_runtime(func, launchConfig, true, clusterSize));
}

PYFT_API CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                               const CUlaunchConfig* config) {
  const Entered entered(Api::cuOccupancyMaxActiveClusters);
  return ask_driver(func, config, false, numClusters);
}

PYFT_API CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                     const CUlaunchConfig* config) {
  const Entered entered(Api::cuOccupancyMaxPotentialClusterSize);
  return ask_driver(func, config, true, clusterSize);
}
