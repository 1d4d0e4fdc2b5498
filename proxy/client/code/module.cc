#include "client/code/module.h"

#include <cstring>

#include "api/commands.h"
#include "client/code/fatbin.h"
#include "client/process/handles.h"
#include "client/queries/properties.h"

namespace pyft::client {
namespace {

// It is the image's fault. Anything else may pass: there may be memory again.
bool is_final(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
      return true;
    default:
      return false;
  }
}

}  // namespace

Module::Module(const void* image, bool own) : image_(image) {
  if (!own) return;
  const void* inner = unwrap(image);
  const auto* bytes = static_cast<const std::byte*>(inner);
  copy_.assign(bytes, bytes + image_bytes(inner));
  image_ = copy_.data();
}

CUresult Module::load(Device& device, uint64_t* handle) {
  const std::lock_guard lock(mutex_);
  const auto slot = static_cast<size_t>(device.ordinal());
  *handle = handles_[slot];
  if (*handle) return CUDA_SUCCESS;
  if (failed_[slot] != CUDA_SUCCESS) return failed_[slot];
  int major = 0, minor = 0;
  cudaError_t error =
      device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  if (error == cudaSuccess)
    error = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  if (error != cudaSuccess) return static_cast<CUresult>(error);
  const std::vector<std::byte> code = select_code(image_, major, minor);
  if (code.empty()) return failed_[slot] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  const uint64_t minted = mint_handle(HandleKind::kModule);
  if (!minted) return CUDA_ERROR_OUT_OF_MEMORY;
  error = device.confirm(Call::cuModuleLoadData, cmd::cuModuleLoadData{minted}, code);
  if (is_final(error)) failed_[slot] = static_cast<CUresult>(error);
  if (error != cudaSuccess) return static_cast<CUresult>(error);
  *handle = handles_[slot] = minted;
  return CUDA_SUCCESS;
}

CUresult Module::unload() {
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal) {
    Device* device = attached_or_null(ordinal);
    if (!device || !handles_[ordinal]) continue;
    const cudaError_t error =
        device->send(Call::cuModuleUnload, cmd::cuModuleUnload{handles_[ordinal]});
    if (error != cudaSuccess) result = static_cast<CUresult>(error);
    handles_[ordinal] = 0;
  }
  return result;
}

Kernel* Module::kernel(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto& slot = kernels_[name];
  if (!slot) slot = std::make_unique<Kernel>(*this, name);
  return slot.get();
}

CUresult Module::global(Device& device, const std::string& name, Global* out) {
  uint64_t handle = 0;
  if (const CUresult error = load(device, &handle); error != CUDA_SUCCESS) return error;
  const std::lock_guard lock(mutex_);
  const auto key = std::make_pair(device.ordinal(), name);
  if (const auto found = globals_.find(key); found != globals_.end()) {
    *out = found->second;
    return CUDA_SUCCESS;
  }
  Reply reply;
  const cmd::cuModuleGetGlobal_v2 body{handle};
  const cudaError_t error = device.call(static_cast<uint16_t>(Call::cuModuleGetGlobal_v2),
                                        bytes_of(body), &reply, {}, std::as_bytes(std::span(name)));
  if (error != cudaSuccess) return static_cast<CUresult>(error);
  if (reply.code != 0) return static_cast<CUresult>(reply.code);
  *out = globals_[key] = {reply.values[0], reply.values[1]};
  device.add_global(out->address, out->bytes);
  return CUDA_SUCCESS;
}

namespace {

struct Resolved {
  std::mutex mutex;
  std::unordered_map<uint64_t, Kernel*> by_handle;
};

// Never destroyed: kernels may be launched while the process exits.
Resolved& resolved() {
  static auto* const all = new Resolved;
  return *all;
}

}  // namespace

Kernel* kernel_of_command(uint64_t handle) {
  const std::lock_guard lock(resolved().mutex);
  const auto found = resolved().by_handle.find(handle);
  return found == resolved().by_handle.end() ? nullptr : found->second;
}

cudaError_t resolve(Kernel& kernel, Device& device, KernelOnDevice** out) {
  auto& slot = kernel.on[device.ordinal()];
  *out = slot.load(std::memory_order_acquire);
  if (*out) return cudaSuccess;
  const std::lock_guard lock(resolved().mutex);
  *out = slot.load(std::memory_order_acquire);
  if (*out) return cudaSuccess;
  uint64_t module = 0;
  if (const CUresult error = kernel.module.load(device, &module); error != CUDA_SUCCESS)
    return static_cast<cudaError_t>(error);
  auto made = std::make_unique<KernelOnDevice>();
  made->handle = mint_handle(HandleKind::kKernel);
  if (!made->handle) return cudaErrorMemoryAllocation;
  Reply reply;
  const cmd::cuModuleGetFunction body{made->handle, module};
  const cudaError_t error =
      device.call(static_cast<uint16_t>(Call::cuModuleGetFunction), bytes_of(body), &reply, {},
                  std::as_bytes(std::span(kernel.name)));
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  std::memcpy(&made->info, reply.data.data(), std::min(reply.data.size(), sizeof made->info));
  made->max_dynamic_shared = made->info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  *out = made.release();  // as long as the process: launches hold it without a lock
  resolved().by_handle[(*out)->handle] = &kernel;
  slot.store(*out, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t kernel_attribute(Kernel& kernel, Device& device, CUfunction_attribute attribute,
                             int* value) {
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(kernel, device, &here); error != cudaSuccess) return error;
  if (attribute < 0 || attribute >= static_cast<int>(KernelInfo::kAttributes))
    return cudaErrorInvalidValue;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
               ? here->max_dynamic_shared.load()
               : here->info.attributes[attribute];
  return cudaSuccess;
}

cudaError_t set_kernel_attribute(Kernel& kernel, Device& device, int attribute, int value) {
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(kernel, device, &here); error != cudaSuccess) return error;
  const cudaError_t error = device.confirm(Call::cuFuncSetAttribute,
                                           cmd::cuFuncSetAttribute{here->handle, attribute, value});
  if (error == cudaSuccess && attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    here->max_dynamic_shared = value;
  return error;
}

cudaError_t occupancy(Kernel& kernel, Device& device, int block_size, size_t shared_bytes,
                      unsigned flags, int* blocks) {
  if (!blocks) return cudaErrorInvalidValue;
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(kernel, device, &here); error != cudaSuccess) return error;
  using Key = std::tuple<uint64_t, int, int, size_t, unsigned>;
  static std::mutex mutex;
  static std::map<Key, int> cache;
  const Key key{here->handle, device.ordinal(), block_size, shared_bytes, flags};
  const std::lock_guard lock(mutex);
  if (const auto found = cache.find(key); found != cache.end()) {
    *blocks = found->second;
    return cudaSuccess;
  }
  Reply reply;
  const cmd::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags body{here->handle, block_size,
                                                                       flags, shared_bytes};
  const auto id = static_cast<uint16_t>(Call::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  const cudaError_t error = device.call(id, bytes_of(body), &reply);
  if (error != cudaSuccess) return error;
  if (reply.code != 0) return static_cast<cudaError_t>(reply.code);
  *blocks = cache[key] = static_cast<int>(reply.values[0]);
  return cudaSuccess;
}

}  // namespace pyft::client
