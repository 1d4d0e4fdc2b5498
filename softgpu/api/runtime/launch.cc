#include <algorithm>
#include <vector>

#include "api/support.h"
#include "work/launch.h"

namespace softgpu::api {
namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

Dim3 dimensions(dim3 d) {
  return {d.x, d.y, d.z};
}

cudaError_t launch(Function* function, const Configuration& c, void** arguments, bool cooperative) {
  return with_stream(c.stream, [&](const std::shared_ptr<Stream>& s) {
    if (!function) return cudaErrorInvalidDeviceFunction;
    Kernel* kernel = nullptr;
    const cudaError_t bad = resolve_kernel(*function, s->device, &kernel);
    if (bad != cudaSuccess) return bad;
    Launch l;
    l.kernel = kernel;
    l.grid = dimensions(c.grid);
    l.block = dimensions(c.block);
    l.dynamic_shared_bytes = static_cast<uint32_t>(std::min<size_t>(c.shared, UINT32_MAX));
    l.cooperative = cooperative;
    if (!arguments && !kernel->params.empty()) return cudaErrorInvalidValue;
    pack_arguments(*kernel, arguments, &l.params);
    return enqueue_launch(s, *function, std::move(l));
  });
}

// The kernel of a host address or handle on the current device.
template <class Body>
cudaError_t with_kernel(const void* address, Body body) {
  return record(with_device([&](Device& d) {
    Function* function = registered_function(address);
    if (!function) return cudaErrorInvalidDeviceFunction;
    Kernel* kernel = nullptr;
    const cudaError_t bad = resolve_kernel(*function, d.index(), &kernel);
    return bad == cudaSuccess ? body(*kernel) : bad;
  }));
}

}  // namespace

cudaError_t set_dynamic_shared(Kernel& kernel, int bytes) {
  const uint64_t total = uint64_t{kernel.static_shared_bytes} + static_cast<uint32_t>(bytes);
  if (bytes < 0 || total > kSharedPerBlockOptin) return cudaErrorInvalidValue;
  kernel.max_dynamic_shared_bytes = static_cast<uint32_t>(bytes);
  return cudaSuccess;
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::Kernel;

SOFTGPU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                 cudaStream_t stream) {
  api::configurations().push_back({grid, block, shared, stream});
  return 0;
}

SOFTGPU_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                   void* stream) {
  auto& stack = api::configurations();
  if (stack.empty()) return api::record(cudaErrorMissingConfiguration);
  *grid = stack.back().grid;
  *block = stack.back().block;
  *shared = stack.back().shared;
  *static_cast<cudaStream_t*>(stream) = stack.back().stream;
  stack.pop_back();
  return cudaSuccess;
}

SOFTGPU_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* address) {
  *kernel = reinterpret_cast<cudaKernel_t>(api::registered_function(address));
  return api::record(*kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

SOFTGPU_API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* address) {
  return __cudaGetKernel(kernel, address);
}

SOFTGPU_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* address) {
  return __cudaGetKernel(reinterpret_cast<cudaKernel_t*>(function), address);
}

SOFTGPU_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void** arguments, size_t shared, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  return api::record(api::launch(reinterpret_cast<softgpu::Function*>(kernel),
                                 {grid, block, shared, stream}, arguments, false));
}

SOFTGPU_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                         void** arguments, size_t shared, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  return api::record(api::launch(api::registered_function(function), {grid, block, shared, stream},
                                 arguments, false));
}

SOFTGPU_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                    void** arguments, size_t shared,
                                                    cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000);
  return api::record(api::launch(api::registered_function(function), {grid, block, shared, stream},
                                 arguments, true));
}

// Attributes that only advise (priorities, carve-out, early launch) change nothing here; clusters
// do not exist on this device.
SOFTGPU_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                            void** arguments) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060);
  if (!config) return api::record(cudaErrorInvalidValue);
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    const auto& cluster = a.val.clusterDim;
    if (a.id == cudaLaunchAttributeClusterDimension && cluster.x * cluster.y * cluster.z > 1) {
      return api::record(cudaErrorNotSupported);
    }
  }
  return api::record(
      api::launch(api::registered_function(function),
                  {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream},
                  arguments, cooperative));
}

SOFTGPU_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return api::with_kernel(function, [&](Kernel& k) {
    *out = cudaFuncAttributes{};
    out->sharedSizeBytes = k.static_shared_bytes;
    out->constSizeBytes = k.banks[3].size();
    out->localSizeBytes = k.local_bytes;
    out->maxThreadsPerBlock = static_cast<int>(k.max_threads);
    out->numRegs = static_cast<int>(k.register_count);
    out->ptxVersion = out->binaryVersion = 75;
    out->maxDynamicSharedSizeBytes = static_cast<int>(k.max_dynamic_shared_bytes);
    out->preferredShmemCarveout = -1;
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                             int value) {
  return api::with_kernel(function, [&](Kernel& k) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    return api::set_dynamic_shared(k, value);
  });
}

SOFTGPU_API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaFuncGetName(const char** name, const void* function) {
  softgpu::Function* f = api::registered_function(function);
  if (!f || !name) return api::record(cudaErrorInvalidValue);
  *name = f->name;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset,
                                             size_t* size) {
  return api::with_kernel(function, [&](Kernel& k) {
    if (index >= k.params.size()) return cudaErrorInvalidValue;
    *offset = k.params[index].offset;
    if (size) *size = k.params[index].size;
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                      const void* function,
                                                                      int threads, size_t shared) {
  return api::with_kernel(function, [&](Kernel& k) {
    *blocks = softgpu::blocks_per_sm(k, static_cast<uint32_t>(threads), shared);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

SOFTGPU_API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes,
                                                                  const void* function, int blocks,
                                                                  int) {
  return api::with_kernel(function, [&](Kernel& k) {
    const size_t share = softgpu::kSharedPerSm / static_cast<uint32_t>(std::max(blocks, 1));
    *bytes = share > k.static_shared_bytes ? share - k.static_shared_bytes : 0;
    return cudaSuccess;
  });
}
