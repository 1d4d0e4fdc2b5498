// Questions about kernels and variables, and the driver API's modules and libraries.
#include <cstdio>
#include <fstream>

#include "client/code/fatbin.h"
#include "client/code/module.h"
#include "client/memory/copy.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

CUresult result(cudaError_t error) {
  return static_cast<CUresult>(error);
}

// Runs use(kernel, device) for a kernel handle on the current device.
template <class Use>
cudaError_t with_kernel(const void* handle, Use use) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  Kernel* kernel = kernel_of_handle(handle);
  return kernel ? use(*kernel, *device) : cudaErrorInvalidDeviceFunction;
}

cudaError_t function_attributes(Kernel& kernel, Device& device, cudaFuncAttributes* out) {
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(kernel, device, &here); error != cudaSuccess) return error;
  const int32_t* a = here->info.attributes;
  *out = {};
  out->maxThreadsPerBlock = a[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  out->sharedSizeBytes = static_cast<size_t>(a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES]);
  out->constSizeBytes = static_cast<size_t>(a[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES]);
  out->localSizeBytes = static_cast<size_t>(a[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES]);
  out->numRegs = a[CU_FUNC_ATTRIBUTE_NUM_REGS];
  out->ptxVersion = a[CU_FUNC_ATTRIBUTE_PTX_VERSION];
  out->binaryVersion = a[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
  out->cacheModeCA = a[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA];
  out->maxDynamicSharedSizeBytes = here->max_dynamic_shared;
  out->preferredShmemCarveout = a[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
  out->clusterDimMustBeSet = a[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET];
  return cudaSuccess;
}

cudaError_t parameter(Kernel& kernel, Device& device, size_t index, size_t* offset, size_t* bytes) {
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(kernel, device, &here); error != cudaSuccess) return error;
  if (index >= here->info.param_count) return cudaErrorInvalidValue;
  if (offset) *offset = here->info.params[index].offset;
  if (bytes) *bytes = here->info.params[index].bytes;
  return cudaSuccess;
}

// The driver refuses bad code at the call, so the module goes to the current device at once.
CUresult load_module(const void* image, Module** out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return result(error);
  if (!image || !image_bytes(unwrap(image))) return CUDA_ERROR_INVALID_IMAGE;
  auto module = std::make_unique<Module>(image, true);
  uint64_t handle = 0;
  if (const CUresult code = module->load(*device, &handle); code != CUDA_SUCCESS) return code;
  *out = module.release();  // kernels of an unloaded module may still be named: never deleted
  return CUDA_SUCCESS;
}

CUresult get_function(Module* module, const char* name, Kernel** out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return result(error);
  if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = module->kernel(name);
  KernelOnDevice* here = nullptr;
  error = resolve(*kernel, *device, &here);
  if (error == cudaSuccess) *out = kernel;
  return result(error);
}

CUresult get_global(Module* module, const char* name, CUdeviceptr* address, size_t* bytes) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return result(error);
  if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
  Global global;
  const CUresult code = module->global(*device, name, &global);
  if (code != CUDA_SUCCESS) return code;
  if (address) *address = global.address;
  if (bytes) *bytes = global.bytes;
  return CUDA_SUCCESS;
}

cudaError_t symbol(const void* name, Global* out) {
  cudaError_t error;
  Device* device = attached(&error);
  return device ? symbol_address(name, *device, out) : error;
}

cudaError_t copy_symbol(const void* name, const void* host, void* to_host, size_t count,
                        size_t offset, cudaStream_t stream, bool blocking) {
  Global global;
  if (const cudaError_t error = symbol(name, &global); error != cudaSuccess) return error;
  if (offset > global.bytes || count > global.bytes - offset) return cudaErrorInvalidValue;
  const uint64_t address = global.address + offset;
  return host ? copy(address, reinterpret_cast<uint64_t>(host), count, stream, blocking)
              : copy(reinterpret_cast<uint64_t>(to_host), address, count, stream, blocking);
}

}  // namespace

PYFT_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  const Entered entered(Api::__cudaGetKernel);
  Kernel* found = kernel_of_function(function);
  if (!kernel || !found) return done(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
  const Entered entered(Api::cudaGetKernel);
  Kernel* found = kernel_of_function(entryFuncAddr);
  if (!kernelPtr || !found) return done(cudaErrorInvalidDeviceFunction);
  *kernelPtr = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* functionPtr, const void* symbolPtr) {
  const Entered entered(Api::cudaGetFuncBySymbol);
  Kernel* found = kernel_of_function(symbolPtr);
  if (!functionPtr || !found) return done(cudaErrorInvalidDeviceFunction);
  *functionPtr = reinterpret_cast<cudaFunction_t>(found);
  return cudaSuccess;
}

PYFT_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attr, const void* func) {
  const Entered entered(Api::cudaFuncGetAttributes);
  if (!attr) return done(cudaErrorInvalidValue);
  return done(
      with_kernel(func, [attr](Kernel& k, Device& d) { return function_attributes(k, d, attr); }));
}

PYFT_API cudaError_t cudaFuncSetAttribute(const void* func, enum cudaFuncAttribute attr,
                                          int value) {
  const Entered entered(Api::cudaFuncSetAttribute);
  return done(with_kernel(func, [attr, value](Kernel& k, Device& d) {
    return set_kernel_attribute(k, d, attr, value);
  }));
}

PYFT_API cudaError_t cudaFuncSetCacheConfig(const void* func, enum cudaFuncCache cacheConfig) {
  const Entered entered(Api::cudaFuncSetCacheConfig);
  return done(usable());
}

PYFT_API cudaError_t cudaFuncGetName(const char** name, const void* func) {
  const Entered entered(Api::cudaFuncGetName);
  const Kernel* kernel = kernel_of_handle(func);
  if (!name || !kernel) return done(cudaErrorInvalidDeviceFunction);
  *name = kernel->name.c_str();
  return cudaSuccess;
}

PYFT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, const void* func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  const Entered entered(Api::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return done(with_kernel(func, [&](Kernel& k, Device& d) {
    return occupancy(k, d, blockSize, dynamicSMemSize, flags, numBlocks);
  }));
}

PYFT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void* func,
                                                                   int blockSize,
                                                                   size_t dynamicSMemSize) {
  const Entered entered(Api::cudaOccupancyMaxActiveBlocksPerMultiprocessor);
  return done(with_kernel(func, [&](Kernel& k, Device& d) {
    return occupancy(k, d, blockSize, dynamicSMemSize, 0, numBlocks);
  }));
}

PYFT_API cudaError_t cudaGetSymbolAddress(void** devPtr, const void* name) {
  const Entered entered(Api::cudaGetSymbolAddress);
  if (!devPtr) return done(cudaErrorInvalidValue);
  Global global;
  const cudaError_t error = symbol(name, &global);
  if (error == cudaSuccess) *devPtr = reinterpret_cast<void*>(global.address);
  return done(error);
}

PYFT_API cudaError_t cudaGetSymbolSize(size_t* size, const void* name) {
  const Entered entered(Api::cudaGetSymbolSize);
  if (!size) return done(cudaErrorInvalidValue);
  Global global;
  const cudaError_t error = symbol(name, &global);
  if (error == cudaSuccess) *size = global.bytes;
  return done(error);
}

PYFT_API cudaError_t cudaMemcpyToSymbol(const void* name, const void* src, size_t count,
                                        size_t offset, enum cudaMemcpyKind kind) {
  const Entered entered(Api::cudaMemcpyToSymbol);
  return done(copy_symbol(name, src, nullptr, count, offset, nullptr, true));
}

PYFT_API cudaError_t cudaMemcpyToSymbolAsync(const void* name, const void* src, size_t count,
                                             size_t offset, enum cudaMemcpyKind kind,
                                             cudaStream_t stream) {
  const Entered entered(Api::cudaMemcpyToSymbolAsync);
  return done(copy_symbol(name, src, nullptr, count, offset, stream, false));
}

PYFT_API cudaError_t cudaMemcpyFromSymbol(void* dst, const void* name, size_t count, size_t offset,
                                          enum cudaMemcpyKind kind) {
  const Entered entered(Api::cudaMemcpyFromSymbol);
  return done(copy_symbol(name, nullptr, dst, count, offset, nullptr, true));
}

PYFT_API cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* name, size_t count,
                                               size_t offset, enum cudaMemcpyKind kind,
                                               cudaStream_t stream) {
  const Entered entered(Api::cudaMemcpyFromSymbolAsync);
  return done(copy_symbol(name, nullptr, dst, count, offset, stream, false));
}

// ---- driver spelling -------------------------------------------------------------------------

PYFT_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const Entered entered(Api::cuModuleLoadData);
  return module ? load_module(image, reinterpret_cast<Module**>(module)) : CUDA_ERROR_INVALID_VALUE;
}

PYFT_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                     CUjit_option* options, void** optionValues) {
  const Entered entered(Api::cuModuleLoadDataEx);
  return module ? load_module(image, reinterpret_cast<Module**>(module)) : CUDA_ERROR_INVALID_VALUE;
}

PYFT_API CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  const Entered entered(Api::cuModuleLoad);
  if (!module || !fname) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(fname, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (image.size() < 64) image.resize(64);
  return load_module(image.data(), reinterpret_cast<Module**>(module));
}

PYFT_API CUresult cuModuleUnload(CUmodule hmod) {
  const Entered entered(Api::cuModuleUnload);
  Module* module = module_of_handle(hmod);
  return module ? module->unload() : CUDA_ERROR_INVALID_HANDLE;
}

PYFT_API CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  const Entered entered(Api::cuModuleGetFunction);
  if (!hfunc) return CUDA_ERROR_INVALID_VALUE;
  return get_function(module_of_handle(hmod), name, reinterpret_cast<Kernel**>(hfunc));
}

PYFT_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                       const char* name) {
  const Entered entered(Api::cuModuleGetGlobal_v2);
  return get_global(module_of_handle(hmod), name, dptr, bytes);
}

PYFT_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                    void** jitOptionsValues, unsigned int numJitOptions,
                                    CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                    unsigned int numLibraryOptions) {
  const Entered entered(Api::cuLibraryLoadData);
  return library ? load_module(code, reinterpret_cast<Module**>(library))
                 : CUDA_ERROR_INVALID_VALUE;
}

PYFT_API CUresult cuLibraryUnload(CUlibrary library) {
  const Entered entered(Api::cuLibraryUnload);
  Module* module = module_of_handle(library);
  return module ? module->unload() : CUDA_ERROR_INVALID_HANDLE;
}

PYFT_API CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  const Entered entered(Api::cuLibraryGetKernel);
  if (!pKernel) return CUDA_ERROR_INVALID_VALUE;
  return get_function(module_of_handle(library), name, reinterpret_cast<Kernel**>(pKernel));
}

PYFT_API CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  const Entered entered(Api::cuLibraryGetModule);
  if (!pMod || !module_of_handle(library)) return CUDA_ERROR_INVALID_HANDLE;
  *pMod = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                     const char* name) {
  const Entered entered(Api::cuLibraryGetGlobal);
  return get_global(module_of_handle(library), name, dptr, bytes);
}

PYFT_API CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  const Entered entered(Api::cuKernelGetFunction);
  if (!pFunc || !kernel_of_handle(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  const Entered entered(Api::cuFuncGetModule);
  Kernel* kernel = kernel_of_handle(hfunc);
  if (!hmod || !kernel) return CUDA_ERROR_INVALID_HANDLE;
  *hmod = reinterpret_cast<CUmodule>(&kernel->module);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  const Entered entered(Api::cuFuncGetAttribute);
  if (!pi) return CUDA_ERROR_INVALID_VALUE;
  return result(
      with_kernel(hfunc, [&](Kernel& k, Device& d) { return kernel_attribute(k, d, attrib, pi); }));
}

PYFT_API CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel,
                                       CUdevice dev) {
  const Entered entered(Api::cuKernelGetAttribute);
  if (!pi) return CUDA_ERROR_INVALID_VALUE;
  return result(with_kernel(
      kernel, [&](Kernel& k, Device& d) { return kernel_attribute(k, d, attrib, pi); }));
}

PYFT_API CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  const Entered entered(Api::cuFuncSetAttribute);
  return result(with_kernel(
      hfunc, [&](Kernel& k, Device& d) { return set_kernel_attribute(k, d, attrib, value); }));
}

PYFT_API CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                       CUdevice dev) {
  const Entered entered(Api::cuKernelSetAttribute);
  return result(with_kernel(
      kernel, [&](Kernel& k, Device& d) { return set_kernel_attribute(k, d, attrib, val); }));
}

PYFT_API CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  const Entered entered(Api::cuFuncSetCacheConfig);
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                     size_t* paramSize) {
  const Entered entered(Api::cuFuncGetParamInfo);
  return result(with_kernel(func, [&](Kernel& k, Device& d) {
    return parameter(k, d, paramIndex, paramOffset, paramSize);
  }));
}

PYFT_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                       size_t* paramSize) {
  const Entered entered(Api::cuKernelGetParamInfo);
  return result(with_kernel(kernel, [&](Kernel& k, Device& d) {
    return parameter(k, d, paramIndex, paramOffset, paramSize);
  }));
}

PYFT_API CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  const Entered entered(Api::cuFuncGetName);
  const Kernel* kernel = kernel_of_handle(hfunc);
  if (!name || !kernel) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuFuncLoad(CUfunction function) {
  const Entered entered(Api::cuFuncLoad);
  return result(with_kernel(function, [](Kernel& k, Device& d) {
    KernelOnDevice* here = nullptr;
    return resolve(k, d, &here);
  }));
}

PYFT_API CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  const Entered entered(Api::cuFuncIsLoaded);
  const Kernel* kernel = kernel_of_handle(function);
  if (!state || !kernel) return CUDA_ERROR_INVALID_HANDLE;
  const bool loaded = kernel->on[current_device()].load() != nullptr;
  *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

PYFT_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                              int blockSize,
                                                              size_t dynamicSMemSize) {
  const Entered entered(Api::cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return result(with_kernel(func, [&](Kernel& k, Device& d) {
    return occupancy(k, d, blockSize, dynamicSMemSize, 0, numBlocks);
  }));
}

PYFT_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  const Entered entered(Api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return result(with_kernel(func, [&](Kernel& k, Device& d) {
    return occupancy(k, d, blockSize, dynamicSMemSize, flags, numBlocks);
  }));
}
