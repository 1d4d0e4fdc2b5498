#include <algorithm>
#include <cstring>

#include "api/graph/support.h"
#include "api/support.h"
#include "core/config.h"
#include "work/launch.h"

namespace softgpu::api {

cudaError_t set_dynamic_shared(Kernel& kernel, int bytes);

// Arguments come as pointers to each, or packed in one buffer named in `extra`.
cudaError_t take_arguments(const Kernel& kernel, void** arguments, void** extra,
                           std::vector<uint8_t>* packed) {
  if (!extra) {
    if (!arguments && !kernel.params.empty()) return cudaErrorInvalidValue;
    pack_arguments(kernel, arguments, packed);
    return cudaSuccess;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
    if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(at[1]);
  }
  packed->assign(kernel.param_bytes, 0);
  if (buffer) std::memcpy(packed->data(), buffer, std::min(bytes, packed->size()));
  return cudaSuccess;
}

namespace {

Function* function_of(const void* handle) {
  return static_cast<Function*>(const_cast<void*>(handle));
}

template <class Body>
CUresult with_kernel(const void* handle, int on_device, Body body) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  return driver_call([&](Device& d) {
    Function& function = *function_of(handle);
    int index = function.device >= 0 ? function.device : d.index();
    if (on_device >= 0) index = on_device;
    Kernel* kernel = nullptr;
    const cudaError_t bad = resolve_kernel(function, index, &kernel);
    return bad == cudaSuccess ? body(*kernel) : bad;
  });
}

CUresult launch(const void* handle, Dim3 grid, Dim3 block, size_t shared, CUstream stream,
                void** arguments, void** extra, bool cooperative) {
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  return driver_result(with_stream(stream, [&](const std::shared_ptr<Stream>& s) {
    Kernel* kernel = nullptr;
    const cudaError_t bad = resolve_kernel(*function_of(handle), s->device, &kernel);
    if (bad != cudaSuccess) return bad;
    Launch l;
    l.kernel = kernel;
    l.grid = grid;
    l.block = block;
    l.dynamic_shared_bytes = static_cast<uint32_t>(shared);
    l.cooperative = cooperative;
    const cudaError_t status = take_arguments(*kernel, arguments, extra, &l.params);
    return status == cudaSuccess ? enqueue_launch(s, *function_of(handle), std::move(l)) : status;
  }));
}

cudaError_t kernel_attribute(const Kernel& k, CUfunction_attribute attribute, int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(k.max_threads);
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(k.static_shared_bytes);
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(k.banks[3].size());
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(k.local_bytes);
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(k.register_count);
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 75;
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(k.max_dynamic_shared_bytes);
      return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;
      return cudaSuccess;
    default:
      *value = 0;
      return attribute < CU_FUNC_ATTRIBUTE_MAX ? cudaSuccess : cudaErrorInvalidValue;
  }
}

cudaError_t set_kernel_attribute(Kernel& k, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return cudaSuccess;
  return set_dynamic_shared(k, value);
}

cudaError_t param_info(const Kernel& k, size_t index, size_t* offset, size_t* size) {
  if (index >= k.params.size()) return cudaErrorInvalidValue;
  if (offset) *offset = k.params[index].offset;
  if (size) *size = k.params[index].size;
  return cudaSuccess;
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::Kernel;

SOFTGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                    unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                    CUstream stream, void** arguments, void** extra) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  return api::launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, arguments, extra, false);
}

SOFTGPU_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy,
                                               unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                               unsigned shared, CUstream stream, void** arguments) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel);
  return api::launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, arguments, nullptr,
                     true);
}

SOFTGPU_API CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function,
                                      void** arguments, void** extra) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const CUlaunchAttribute& a = c->attrs[i];
    if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative = a.value.cooperative != 0;
    const auto& cluster = a.value.clusterDim;
    if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && cluster.x * cluster.y * cluster.z > 1) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return api::launch(function, {c->gridDimX, c->gridDimY, c->gridDimZ},
                     {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes, c->hStream,
                     arguments, extra, cooperative);
}

SOFTGPU_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                        CUfunction function) {
  return api::with_kernel(function, -1,
                          [&](Kernel& k) { return api::kernel_attribute(k, attribute, value); });
}

SOFTGPU_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                        int value) {
  return api::with_kernel(
      function, -1, [&](Kernel& k) { return api::set_kernel_attribute(k, attribute, value); });
}

SOFTGPU_API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute,
                                          CUkernel kernel, CUdevice dev) {
  return api::with_kernel(kernel, dev,
                          [&](Kernel& k) { return api::kernel_attribute(k, attribute, value); });
}

SOFTGPU_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                                          CUkernel kernel, CUdevice dev) {
  return api::with_kernel(
      kernel, dev, [&](Kernel& k) { return api::set_kernel_attribute(k, attribute, value); });
}

SOFTGPU_API CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) {
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuFuncGetName(const char** name, CUfunction function) {
  if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
  *name = api::function_of(function)->name;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, reinterpret_cast<CUfunction>(kernel));
}

SOFTGPU_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                        size_t* size) {
  return api::with_kernel(function, -1,
                          [&](Kernel& k) { return api::param_info(k, index, offset, size); });
}

SOFTGPU_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset,
                                          size_t* size) {
  return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), index, offset, size);
}

SOFTGPU_API CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuFuncLoad(CUfunction function) {
  return api::with_kernel(function, -1, [](Kernel&) { return cudaSuccess; });
}

SOFTGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                 int threads, size_t shared) {
  return api::with_kernel(function, -1, [&](Kernel& k) {
    *blocks = softgpu::blocks_per_sm(k, static_cast<uint32_t>(threads), shared);
    return cudaSuccess;
  });
}

SOFTGPU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                          CUfunction function,
                                                                          int threads,
                                                                          size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

// There are no clusters on this device but those of one block.
SOFTGPU_API CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                                  const CUlaunchConfig* c) {
  if (!clusters || !c) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    const auto& cluster = c->attrs[i].value.clusterDim;
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
        cluster.x * cluster.y * cluster.z > 1)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  const uint64_t threads = uint64_t{c->blockDimX} * c->blockDimY * c->blockDimZ;
  return api::with_kernel(function, -1, [&](Kernel& k) {
    if (threads == 0 || threads > k.max_threads) return cudaErrorInvalidValue;
    const int blocks = softgpu::blocks_per_sm(k, static_cast<uint32_t>(threads), c->sharedMemBytes);
    *clusters = blocks * softgpu::config().sms;
    return cudaSuccess;
  });
}

SOFTGPU_API CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction function,
                                                        const CUlaunchConfig* c) {
  int clusters = 0;
  if (!blocks) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = cuOccupancyMaxActiveClusters(&clusters, function, c);
  if (bad == CUDA_SUCCESS) *blocks = 1;
  return bad;
}

SOFTGPU_API CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  if (!module || !function) return CUDA_ERROR_INVALID_VALUE;
  // A module handle is the library's owner: they begin with the library.
  *module = reinterpret_cast<CUmodule>(api::function_of(function)->library);
  return CUDA_SUCCESS;
}
