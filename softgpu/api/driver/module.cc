#include <fstream>
#include <iterator>
#include <set>

#include "api/support.h"
#include "core/log.h"
#include "softgpu.h"
#include "work/launch.h"

namespace softgpu::api {
namespace {

// CUmodule and CUlibrary handles. A CUmodule is a library that belongs to one device.
struct LoadedCode {
  Library library;  // first: cuFuncGetModule takes its address for the handle
  int device;       // -1: any
  LoadedCode(const void* image, int device) : library(image), device(device) {}
};

struct LoadedCodes {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<LoadedCode>> all;
};

LoadedCodes& loaded() {
  static LoadedCodes* codes = std::make_unique<LoadedCodes>().release();
  return *codes;
}

LoadedCode* find_code(const void* handle) {
  std::lock_guard lock(loaded().mutex);
  const auto it = loaded().all.find(handle);
  return it == loaded().all.end() ? nullptr : it->second.get();
}

CUresult load_code(void** out, const void* image, bool per_device) {
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  return driver_call([&](Device& d) {
    auto code = std::make_unique<LoadedCode>(image, per_device ? d.index() : -1);
    std::string error = code->library.keep();
    // A module exists on its device at once, so that a bad image fails here.
    if (error.empty()) code->library.module(d.index(), &error);
    if (!error.empty()) {
      log_line(SOFTGPU_LOG_WARNING, "a module cannot be loaded: %s", error.c_str());
      return cudaErrorInvalidKernelImage;
    }
    *out = code.get();
    std::lock_guard lock(loaded().mutex);
    loaded().all[*out] = std::move(code);
    return cudaSuccess;
  });
}

CUresult load_file(void** out, const char* name, bool per_device) {
  std::ifstream file(name ? name : "", std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 64) return CUDA_ERROR_INVALID_IMAGE;
  return load_code(out, bytes.data(), per_device);
}

// The record itself stays: function handles of it may still be around and must not dangle.
CUresult unload_code(const void* handle) {
  LoadedCode* code = find_code(handle);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < device_count(); ++i) device(i).scheduler().wait_device();
  code->library.unload();
  return CUDA_SUCCESS;
}

Module* module_of(LoadedCode& code) {
  std::string error;
  return code.library.module(code.device >= 0 ? code.device : current_device().index(), &error);
}

CUresult get_function(Function** out, const void* handle, const char* name) {
  LoadedCode* code = find_code(handle);
  if (!code || !out || !name) return CUDA_ERROR_INVALID_VALUE;
  return driver_call([&](Device&) {
    Module* module = module_of(*code);
    if (!module || !module->kernel(name)) return cudaErrorSymbolNotFound;
    *out = code->library.function(name, code->device);
    return cudaSuccess;
  });
}

CUresult get_global(CUdeviceptr* address, size_t* bytes, const void* handle, const char* name) {
  LoadedCode* code = find_code(handle);
  if (!code || !name) return CUDA_ERROR_INVALID_VALUE;
  return driver_call([&](Device&) {
    uint64_t found = 0, size = 0;
    Module* module = module_of(*code);
    if (!module || !module->variable(name, &found, &size)) return cudaErrorSymbolNotFound;
    if (address) *address = found;
    if (bytes) *bytes = size;
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::Function;
using softgpu::Module;

SOFTGPU_API CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return api::load_code(reinterpret_cast<void**>(out), image, true);
}

SOFTGPU_API CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, CUjit_option*,
                                        void**) {
  return api::load_code(reinterpret_cast<void**>(out), image, true);
}

SOFTGPU_API CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return api::load_code(reinterpret_cast<void**>(out), image, true);
}

SOFTGPU_API CUresult cuModuleLoad(CUmodule* out, const char* file) {
  return api::load_file(reinterpret_cast<void**>(out), file, true);
}

SOFTGPU_API CUresult cuModuleUnload(CUmodule module) {
  return api::unload_code(module);
}

SOFTGPU_API int softgpu_module_variables(void* handle, unsigned long long* address,
                                         unsigned long long* bytes) {
  api::LoadedCode* code = api::find_code(handle);
  Module* module = code ? api::module_of(*code) : nullptr;
  if (!module || !address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  *address = module->variables_address();
  *bytes = module->variables_bytes();
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return api::get_function(reinterpret_cast<Function**>(out), module, name);
}

SOFTGPU_API CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  api::LoadedCode* code = api::find_code(handle);
  Module* module = code ? api::module_of(*code) : nullptr;
  if (!module || !count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->kernels().size());
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule handle) {
  api::LoadedCode* code = api::find_code(handle);
  Module* module = code ? api::module_of(*code) : nullptr;
  if (!module || !out) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [name, kernel] : module->kernels()) {
    if (count-- == 0) break;
    *out++ = reinterpret_cast<CUfunction>(code->library.function(name, code->device));
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                          const char* name) {
  return api::get_global(address, bytes, module, name);
}

SOFTGPU_API CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**,
                                       unsigned, CUlibraryOption*, void**, unsigned) {
  return api::load_code(reinterpret_cast<void**>(out), image, false);
}

SOFTGPU_API CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* file, CUjit_option*, void**,
                                           unsigned, CUlibraryOption*, void**, unsigned) {
  return api::load_file(reinterpret_cast<void**>(out), file, false);
}

SOFTGPU_API CUresult cuLibraryUnload(CUlibrary library) {
  return api::unload_code(library);
}

SOFTGPU_API CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return api::get_function(reinterpret_cast<Function**>(out), library, name);
}

SOFTGPU_API CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return cuModuleGetFunctionCount(count, reinterpret_cast<CUmodule>(library));
}

SOFTGPU_API CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary library) {
  return cuModuleEnumerateFunctions(reinterpret_cast<CUfunction*>(out), count,
                                    reinterpret_cast<CUmodule>(library));
}

// A library handle answers to both kinds of calls.
SOFTGPU_API CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  if (!api::find_code(library)) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

SOFTGPU_API CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                        const char* name) {
  return api::get_global(address, bytes, library, name);
}

SOFTGPU_API CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
