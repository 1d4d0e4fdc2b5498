// The runtime's names for the driver's libraries of kernels, and for questions about clusters.
#include "api/support.h"

namespace api = softgpu::api;

namespace {

cudaError_t result(CUresult code) {
  return api::record(static_cast<cudaError_t>(code));
}

CUlibrary driver(cudaLibrary_t library) {
  return reinterpret_cast<CUlibrary>(library);
}

// Both structures say the same; of attributes only the dimension of clusters matters.
CUresult ask_clusters(decltype(&cuOccupancyMaxActiveClusters) ask, int* out, const void* function,
                      const cudaLaunchConfig_t* c) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute cluster{};
  CUlaunchConfig config{};
  config.gridDimX = c->gridDim.x, config.gridDimY = c->gridDim.y, config.gridDimZ = c->gridDim.z;
  config.blockDimX = c->blockDim.x, config.blockDimY = c->blockDim.y;
  config.blockDimZ = c->blockDim.z;
  config.sharedMemBytes = static_cast<unsigned>(c->dynamicSmemBytes);
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const auto& wanted = c->attrs[i].val.clusterDim;
    if (c->attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {wanted.x, wanted.y, wanted.z};
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  // A kernel of a library is no registered function, but a handle itself.
  const void* const registered = api::registered_function(function);
  const auto handle = reinterpret_cast<uint64_t>(registered ? registered : function);
  return ask(out, reinterpret_cast<CUfunction>(handle), &config);
}

}  // namespace

SOFTGPU_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code,
                                            cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                                            void**, unsigned) {
  return result(cuLibraryLoadData(reinterpret_cast<CUlibrary*>(library), code, nullptr, nullptr, 0,
                                  nullptr, nullptr, 0));
}

SOFTGPU_API cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* name,
                                                cudaJitOption*, void**, unsigned,
                                                cudaLibraryOption*, void**, unsigned) {
  return result(cuLibraryLoadFromFile(reinterpret_cast<CUlibrary*>(library), name, nullptr, nullptr,
                                      0, nullptr, nullptr, 0));
}

SOFTGPU_API cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return result(cuLibraryUnload(driver(library)));
}

SOFTGPU_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library,
                                             const char* name) {
  return result(cuLibraryGetKernel(reinterpret_cast<CUkernel*>(kernel), driver(library), name));
}

SOFTGPU_API cudaError_t cudaLibraryGetGlobal(void** address, size_t* bytes, cudaLibrary_t library,
                                             const char* name) {
  CUdeviceptr found = 0;
  const CUresult code = cuLibraryGetGlobal(&found, bytes, driver(library), name);
  if (code == CUDA_SUCCESS && address) *address = reinterpret_cast<void*>(found);
  return result(code);
}

SOFTGPU_API cudaError_t cudaLibraryGetKernelCount(unsigned* count, cudaLibrary_t library) {
  return result(cuLibraryGetKernelCount(count, driver(library)));
}

SOFTGPU_API cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned count,
                                                    cudaLibrary_t library) {
  return result(
      cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(kernels), count, driver(library)));
}

SOFTGPU_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                        cudaFuncAttribute attribute, int value,
                                                        int device) {
  return result(cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                     reinterpret_cast<CUkernel>(kernel), device));
}

SOFTGPU_API cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                                       const cudaLaunchConfig_t* config) {
  return result(ask_clusters(cuOccupancyMaxActiveClusters, clusters, function, config));
}

SOFTGPU_API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, const void* function,
                                                             const cudaLaunchConfig_t* config) {
  return result(ask_clusters(cuOccupancyMaxPotentialClusterSize, blocks, function, config));
}
