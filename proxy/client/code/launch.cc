// Kernel launches. The client checks what the driver would check at the call, so the entry needs
// no answer.
#include <cstring>

#include "api/commands.h"
#include "client/code/module.h"
#include "client/device/stream.h"
#include "client/queries/properties.h"

namespace pyft::client {
namespace {

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  dim3 cluster{0, 0, 0};
  uint32_t flags = 0;
};

// Parameters as an array of pointers, or already packed.
struct Arguments {
  void** pointers = nullptr;
  const void* packed = nullptr;
  size_t packed_bytes = 0;
};

cudaError_t check(const Launch& l, const KernelOnDevice& kernel, Device& device) {
  const LaunchLimits* limits = nullptr;
  if (const cudaError_t error = launch_limits(device, &limits); error != cudaSuccess) return error;
  const uint64_t threads = uint64_t{l.block.x} * l.block.y * l.block.z;
  if (!threads || !l.grid.x || !l.grid.y || !l.grid.z) return cudaErrorInvalidConfiguration;
  if (l.grid.x > limits->grid[0] || l.grid.y > limits->grid[1] || l.grid.z > limits->grid[2])
    return cudaErrorInvalidConfiguration;
  if (l.block.x > limits->block[0] || l.block.y > limits->block[1] || l.block.z > limits->block[2])
    return cudaErrorInvalidConfiguration;
  if (threads > limits->threads) return cudaErrorInvalidConfiguration;
  const int most = kernel.info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (most > 0 && threads > static_cast<uint64_t>(most)) return cudaErrorLaunchOutOfResources;
  if (l.shared_bytes > static_cast<size_t>(kernel.max_dynamic_shared.load()))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

}  // namespace

cudaError_t check_launch(const KernelOnDevice& kernel, Device& device, dim3 grid, dim3 block,
                         size_t shared_bytes) {
  return check({grid, block, shared_bytes}, kernel, device);
}

namespace {

bool pack(const KernelInfo& info, const Arguments& args, std::byte* out) {
  if (args.packed) {
    if (args.packed_bytes < info.param_bytes) return false;
    std::memcpy(out, args.packed, info.param_bytes);
    return true;
  }
  if (info.param_count && !args.pointers) return false;
  for (uint32_t i = 0; i < info.param_count; ++i)
    std::memcpy(out + info.params[i].offset, args.pointers[i], info.params[i].bytes);
  return true;
}

// Whether a word among the parameters, also inside of structs, is an address in page-locked memory.
bool names_pinned(Device& device, const std::byte* packed, uint32_t bytes) {
  const auto base = reinterpret_cast<uint64_t>(device.channel().pinned());
  const uint64_t size = device.channel().pinned_bytes();
  bool found = false;
  for (uint32_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, packed + at, sizeof word);
    found |= word - base < size;
  }
  return found;
}

// Copies from such memory are kept in the journal, kernels that read it are not (C1).
void announce_pinned(Device& device) {
  device.watches_pinned.store(false, std::memory_order_relaxed);
  if (device.writer().unreplayable())
    say("[cuLaunchKernel] gives page-locked memory to a kernel, or has such an address left over "
        "in a parameter: what kernels read and write there is in no log, so that from here on a "
        "replay may come to other values");
}

cudaError_t launch(Kernel& kernel, const Launch& l, const Arguments& args) {
  cudaError_t error;
  Stream* stream = stream_of(l.stream, &error);
  if (!stream) return error;
  Device& device = stream->device;
  KernelOnDevice* here = nullptr;
  if ((error = resolve(kernel, device, &here)) != cudaSuccess) return error;
  if ((error = check(l, *here, device)) != cudaSuccess) return error;
  const uint32_t bytes = here->info.param_bytes;
  std::byte small[4096];
  std::vector<std::byte> large(bytes > sizeof small ? bytes : 0);
  std::byte* const packed = large.empty() ? small : large.data();
  std::memset(packed, 0, bytes);  // gaps between parameters: equal launches are equal bytes
  if (!pack(here->info, args, packed)) return cudaErrorInvalidValue;
  if (device.watches_pinned.load(std::memory_order_relaxed) && names_pinned(device, packed, bytes))
    announce_pinned(device);
  const cmd::cuLaunchKernel body{
      here->handle, stream->handle, l.grid.x,
      l.grid.y,     l.grid.z,       l.block.x,
      l.block.y,    l.block.z,      static_cast<uint32_t>(l.shared_bytes),
      bytes,        l.cluster.x,    l.cluster.y,
      l.cluster.z,  l.flags};
  error = device.send(static_cast<uint16_t>(Call::cuLaunchKernel), bytes_of(body), {packed, bytes});
  device.touch(*stream);
  return error != cudaSuccess ? error : device.late_error();
}

cudaError_t launch_function(const void* function, const Launch& l, void** args) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return error;
  Kernel* kernel = kernel_of_handle(function);
  return kernel ? launch(*kernel, l, {args}) : cudaErrorInvalidDeviceFunction;
}

// The driver API's two ways to pass parameters.
CUresult driver_arguments(void** params, void** extra, Arguments* out) {
  *out = {};
  if (params && extra) return CUDA_ERROR_INVALID_VALUE;
  out->pointers = params;
  for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      out->packed = extra[1];
    else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      out->packed_bytes = *static_cast<const size_t*>(extra[1]);
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult driver_launch(CUfunction f, const Launch& l, void** params, void** extra) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return static_cast<CUresult>(error);
  Kernel* kernel = kernel_of_handle(f);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  Arguments args;
  if (const CUresult error = driver_arguments(params, extra, &args); error != CUDA_SUCCESS)
    return error;
  return static_cast<CUresult>(launch(*kernel, l, args));
}

// Runtime and driver attributes have the same ids and layout.
cudaError_t apply_attributes(const cudaLaunchAttribute* attributes, unsigned count, Launch* l) {
  for (unsigned i = 0; i < count; ++i) {
    const cudaLaunchAttribute& a = attributes[i];
    switch (a.id) {
      case cudaLaunchAttributeClusterDimension:
        l->cluster = {a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z};
        break;
      case cudaLaunchAttributeCooperative:
        if (a.val.cooperative) l->flags |= kLaunchCooperative;
        break;
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeAccessPolicyWindow:
      case cudaLaunchAttributeSynchronizationPolicy:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeMemSyncDomainMap:
      case cudaLaunchAttributePreferredClusterDimension:
      case cudaLaunchAttributePreferredSharedMemoryCarveout:
      case cudaLaunchAttributeProgrammaticStreamSerialization:
      case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      case cudaLaunchAttributeMemSyncDomain:
        break;  // hints: without them the launch is only slower
      default:
        say("launch attribute [" + std::to_string(static_cast<int>(a.id)) + "] is not supported");
        return cudaErrorNotSupported;
    }
  }
  return cudaSuccess;
}

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> call_configurations;

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim,
                                        void** args, size_t sharedMem, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  const Entered entered(Api::__cudaLaunchKernel);
  if (const cudaError_t error = usable(); error != cudaSuccess) return done(error);
  auto* known = reinterpret_cast<Kernel*>(kernel);  // from __cudaGetKernel, no look-up needed
  if (!known || known->magic != Kernel::kMagic) return done(cudaErrorInvalidDeviceFunction);
  return done(launch(*known, {gridDim, blockDim, sharedMem, stream}, {args}));
}

PYFT_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim,
                                             void** args, size_t sharedMem, cudaStream_t stream) {
  const Entered entered(Api::__cudaLaunchKernel_ptsz);
  const cudaStream_t real = stream ? stream : cudaStreamPerThread;
  return done(launch_function(kernel, {gridDim, blockDim, sharedMem, real}, args));
}

PYFT_API cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                      size_t sharedMem, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  const Entered entered(Api::cudaLaunchKernel);
  return done(launch_function(func, {gridDim, blockDim, sharedMem, stream}, args));
}

PYFT_API cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 gridDim, dim3 blockDim,
                                                 void** args, size_t sharedMem,
                                                 cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000);
  const Entered entered(Api::cudaLaunchCooperativeKernel);
  Launch l{gridDim, blockDim, sharedMem, stream};
  l.flags = kLaunchCooperative;
  return done(launch_function(func, l, args));
}

PYFT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func,
                                         void** args) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060);
  const Entered entered(Api::cudaLaunchKernelExC);
  if (!config) return done(cudaErrorInvalidValue);
  Launch l{config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream};
  const cudaError_t error = apply_attributes(config->attrs, config->numAttrs, &l);
  return done(error == cudaSuccess ? launch_function(func, l, args) : error);
}

PYFT_API unsigned int __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                                  struct CUstream_st* stream) {
  const Entered entered(Api::__cudaPushCallConfiguration);
  call_configurations.push_back({gridDim, blockDim, sharedMem, stream});
  return 0;
}

PYFT_API cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem,
                                                void* stream) {
  const Entered entered(Api::__cudaPopCallConfiguration);
  if (call_configurations.empty()) return done(cudaErrorMissingConfiguration);
  const CallConfiguration top = call_configurations.back();
  call_configurations.pop_back();
  *gridDim = top.grid;
  *blockDim = top.block;
  *sharedMem = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

PYFT_API CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                 unsigned int gridDimZ, unsigned int blockDimX,
                                 unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, CUstream hStream, void** kernelParams,
                                 void** extra) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  const Entered entered(Api::cuLaunchKernel);
  const Launch l{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, hStream};
  return driver_launch(f, l, kernelParams, extra);
}

PYFT_API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                            unsigned int gridDimY, unsigned int gridDimZ,
                                            unsigned int blockDimX, unsigned int blockDimY,
                                            unsigned int blockDimZ, unsigned int sharedMemBytes,
                                            CUstream hStream, void** kernelParams) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel);
  const Entered entered(Api::cuLaunchCooperativeKernel);
  Launch l{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, hStream};
  l.flags = kLaunchCooperative;
  return driver_launch(f, l, kernelParams, nullptr);
}

PYFT_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                   void** extra) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
  const Entered entered(Api::cuLaunchKernelEx);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  Launch l{{config->gridDimX, config->gridDimY, config->gridDimZ},
           {config->blockDimX, config->blockDimY, config->blockDimZ},
           config->sharedMemBytes,
           config->hStream};
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  const auto* attributes = reinterpret_cast<const cudaLaunchAttribute*>(config->attrs);
  const cudaError_t error = apply_attributes(attributes, config->numAttrs, &l);
  if (error != cudaSuccess) return static_cast<CUresult>(error);
  return driver_launch(f, l, kernelParams, extra);
}
